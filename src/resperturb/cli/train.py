"""``resperturb train``: train a network, private or not, and keep it as a run."""

import inspect
import os
import re
import time
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import MISSING, fields
from functools import cache
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand

from resperturb.cli.output import DataInOption, JsonOption, emit, training_progress
from resperturb.errors import UsageError

if TYPE_CHECKING:
    from resperturb.privacy.guarantee import Guarantee
    from resperturb.training.config import TrainConfig
    from resperturb.training.loop import Update


DATA, NETWORK, TRAINING, RUN = "Data", "Network", "Training", "Run"
NOISE, METHOD = "Residual perturbation", "Method: DP head, DP-SGD"
# Fields whose option has another name.
FLAGS = {
    "data.spec": "--data",
    "skip": "--skip/--no-skip",
    "seeded_noise": "--seeded-noise",
    "perturbation.name": "--strategy",
    "method.name": "--method",
}
# Of these one says how much noise there is: an option replaces either of a file.
_AMOUNT_OF_NOISE = ("noise_multiplier", "target_epsilon")
OF_THE_NETWORK = ("model", "model_args", "weights", "norm", "skip", "dropout")


def _option(key: str, kind: Any, panel: str, help: str) -> inspect.Parameter:
    """Make the option that sets a value of the configuration: ``--limit`` sets ``data.limit``; left out, none."""
    kinds = _alternatives(kind)
    simple = len(kinds) == 1 and (kinds[0] in (int, float, bool) or get_origin(kinds[0]) is Literal)
    # The configuration reads lists and pairs.
    read = list[str] if any(get_origin(one) is dict for one in kinds) else kinds[0] if simple else str
    flag = FLAGS.get(key) or f"--{key.rpartition('.')[2].replace('_', '-')}"
    option = typer.Option(flag, help=help, rich_help_panel=panel)
    annotation = Annotated[read | None, option]  # type: ignore[valid-type]
    name = key.replace(".", "__")
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _alternatives(kind: Any) -> list[Any]:
    """Take a type apart into what it may be besides None.

    >>> _alternatives(Annotated[float, "positive"] | None)
    [<class 'float'>]
    """
    if get_origin(kind) is Annotated:
        return _alternatives(get_args(kind)[0])
    if get_origin(kind) in (None, dict, tuple, list, Literal):
        return [kind]
    return [found for part in get_args(kind) if part is not NoneType for found in _alternatives(part)]


def _settings() -> Iterator[inspect.Parameter]:
    """Find the settings: described fields of the configuration, and the parameters of strategies and methods."""
    from resperturb.perturbation.strategy import STRATEGIES
    from resperturb.training.config import NORMALIZATIONS, DataConfig, TrainConfig
    from resperturb.training.method import methods

    for name, field in DataConfig.model_fields.items():
        if field.description:
            yield _option(f"data.{name}", field.annotation, DATA, field.description)
    names = Literal[tuple(NORMALIZATIONS)]  # type: ignore[valid-type]
    yield _option("normalization", names, DATA, "Constants that pixels are normalised by.")
    yield _option("features", str, NETWORK, "Frozen features: scattering, efficientnet-lite0, timm:NAME, file:PATH.")
    for name, field in TrainConfig.model_fields.items():
        if field.description:
            panel = NETWORK if name in OF_THE_NETWORK else NOISE if name == "seeded_noise" else TRAINING
            yield _option(name, field.annotation, panel, field.description)
    known = ", ".join(STRATEGIES)
    yield _option("perturbation.name", str, NOISE, f"none, {known}; additive with --gamma.")
    parameters = {field.name: of for of in reversed(STRATEGIES.names()) for field in fields(STRATEGIES[of])}
    for name, of in parameters.items():
        kind = get_type_hints(STRATEGIES[of])[name]
        yield _option(f"perturbation.{name}", kind, NOISE, _documented(STRATEGIES[of], name))
    yield _option("method.name", str, METHOD, f"How to train: {', '.join(methods)}; sgd unless given.")
    for name, field in {name: field for of in methods for name, field in methods[of].model_fields.items()}.items():
        if field.description:
            yield _option(f"method.{name}", field.annotation, METHOD, field.description)


def _documented(strategy: type, parameter: str) -> str:
    """Give the first clause that the docstring of a strategy has on a parameter."""
    found = re.search(rf"^\s*{parameter}: (.*?)[.;]\s", strategy.__doc__ or "", re.MULTILINE | re.DOTALL)
    return " ".join(found[1].split()) + "." if found else f"Parameter of {strategy.__name__}."


def _refuse_foreign(values: Mapping[str, Any], known: Container[str], whose: str) -> None:
    if foreign := [key for key in values if key != "name" and key not in known]:
        flags = ", ".join(f"--{key.replace('_', '-')}" for key in sorted(foreign))
        raise UsageError(f"{flags} does not go with {whose}")


def read_config(path: Path | None) -> dict[str, Any]:
    """Read a YAML file of settings."""
    from resperturb.files import read_yaml

    if path is None:
        return {}
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise UsageError(f"{path} must hold settings by name, such as `epochs: 20`.")
    content.pop("schema", None), content.pop("resperturb", None)  # of the config.json of a run
    if isinstance(content.get("data"), str):
        content["data"] = {"spec": content["data"]}
    return content


def settings(options: Mapping[str, Any], file: Mapping[str, Any]) -> dict[str, Any]:
    """Lay the options that were given over the settings of a file; see :func:`resperturb.training.make_config`."""
    from resperturb.perturbation.strategy import STRATEGIES
    from resperturb.training.method import methods

    given: dict[str, dict[str, Any]] = {"": {}, "data": {}, "perturbation": {}, "method": {}}
    for key, value in options.items():
        if value not in (None, ()):
            group, _, name = key.rpartition("__")
            given[group][name] = ",".join(value) if isinstance(value, list | tuple) else value
    found = {**file, **given[""], "data": {**file.get("data", {}), **given["data"]}}
    if "spec" not in found["data"]:
        raise UsageError("say which images to train on: --data FOLDER, or `data:` in the file of --config.")
    if noise := given["perturbation"]:
        name = noise.setdefault("name", "additive" if "gamma" in noise else "none")
        known = {} if name == "none" else {field.name: field for field in fields(STRATEGIES[name])}
        _refuse_foreign(noise, known, f"the strategy {name!r}.")
        if "gamma" in known and known["gamma"].default is MISSING and "gamma" not in noise:
            raise UsageError(f"the strategy {name!r} needs --gamma, the level of the noise.")
        found["perturbation"] = noise
    if given["method"]:
        before = file.get("method", {})
        same = isinstance(before, dict) and given["method"].get("name", before.get("name")) == before.get("name")
        kept = dict(before) if same else {}
        if not given["method"].keys().isdisjoint(_AMOUNT_OF_NOISE):
            kept = {key: value for key, value in kept.items() if key not in _AMOUNT_OF_NOISE}
        method = {"name": "sgd", **kept, **given["method"]}
        whose = f"the training method {method['name']!r}; name its own by --method."
        _refuse_foreign(method, methods[method["name"]].model_fields, whose)
        found["method"] = method
    return found


class Command(TyperCommand):
    """``train`` with its settings as options, which are found when they are first needed: that imports torch."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Give the settings, then the options of its own."""
        return [*_options(), *super().get_params(ctx)]

    def invoke(self, ctx: Any) -> Any:
        """Hand the settings over in ``obj``, for the function does not name them."""
        ctx.obj = {option.name: ctx.params.pop(option.name) for option in _options()}
        return super().invoke(ctx)


@cache
def _options() -> tuple[Any, ...]:
    def command(**values: Any) -> None:
        pass

    parameters = list(_settings())
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    app = typer.Typer(add_completion=False)
    app.command()(command)
    return tuple(typer.main.get_command(app).params)


def _of_run(text: str, **options: Any) -> Any:
    return typer.Option(help=text, rich_help_panel=RUN, **options)


def train(
    context: typer.Context,
    config: Annotated[Path | None, _of_run("YAML file of settings; options override it.")] = None,
    recipe: Annotated[
        str | None,
        typer.Option(help="Published settings: handcrafted-cnn, handcrafted-linear.", rich_help_panel=METHOD),
    ] = None,
    out: Annotated[Path | None, _of_run("Folder of the run; named by its hash if left out.")] = None,
    runs: Annotated[Path, _of_run("Folder of all runs.")] = Path("runs"),
    draws: Annotated[int, _of_run("Noise draws averaged for the final accuracies.", min=1)] = 1,
    data_in: DataInOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train a network on your images and keep it as a run.

    `--data` is an image folder (`train/<class>/*.png`), a parquet file or a folder of them, an `.npz`, a Hugging Face
    name such as `cifar10`, or `fashion-sample`, which is built in. All training images are used; images for the test
    are held out where there are none.

    Example: `resperturb train --data ./patches --gamma 0.5 --out runs/noisy`

    Any network: `resperturb train --data ./patches --model timm:resnet26d --image-size 224 --out runs/timm`

    With a formal guarantee, per patient: `resperturb train --data ./xrays --method dp-head --features scattering
    --group-column patient --target-epsilon 3 --out runs/dp`

    By a published recipe: `resperturb train --data cifar10 --recipe handcrafted-cnn`

    From a file: `resperturb train --config run.yaml`, whose keys are those of a run's `config.json`; options override
    it.

    A run that was stopped or killed is resumed by the same command.

    On several GPUs: `torchrun --standalone --nproc-per-node 4 -m resperturb train ...`
    """
    from resperturb.training.config import make_config
    from resperturb.training.distributed import launched
    from resperturb.training.inputs import load_inputs
    from resperturb.training.loop import train as train_run
    from resperturb.training.recipes import read_recipe

    file = read_config(config)
    if recipe:
        data = context.obj["data__spec"] or file.get("data", {}).get("spec", "")
        file = {**read_recipe(recipe, data), **file}
    wanted = make_config(**settings(context.obj, file))
    leads = os.environ.get("RANK", "0") == "0" or not launched()
    with training_progress("training", shown=leads) as on_update:
        run = train_run(wanted, out=out, runs=runs, draws=draws, on_update=_advised(wanted, on_update))
    if not leads:
        return
    loaded = load_inputs(run.config.data).train.summary
    payload = {"run": str(run.path), "hash": run.config.digest, **run.result.to_dict(), "data": loaded}
    if run.config.method.private:
        facts = run.guarantee().to_dict()
        payload["guarantee"] = {**facts.pop("details"), **facts}
    emit(payload, as_json, lambda console: _show(console, run, loaded))


def _advised(config: "TrainConfig", on_update: "Callable[[Update], None]") -> "Callable[[Update], None]":
    """Say once in a long training what bf16 would save."""
    from resperturb.progress import SECONDS_WATCHED
    from resperturb.training.inputs import load_inputs
    from resperturb.training.loop import resolve_config
    from resperturb.training.precision import advice

    began: tuple[float, int] | None = None
    done = False

    def tell(update: "Update") -> None:
        nonlocal began, done
        on_update(update)
        began = began or (time.monotonic(), update.step)
        passed, steps = time.monotonic() - began[0], update.step - began[1]
        # The precision of a training that was resumed is settled.
        if done or not steps or passed < SECONDS_WATCHED or began[1] > 1:
            return
        done = True
        inputs, left = load_inputs(config.data), passed / steps * (update.steps - update.step)
        if said := advice(resolve_config(config, inputs), inputs.members(), left):
            typer.echo(said, err=True)

    return tell


def _show(console: Any, run: Any, loaded: Any) -> None:
    from resperturb.training.folders import describe

    result = run.result
    lines = [
        f"{run.path}: {describe(run.config)}",
        f"Train accuracy {result.train_accuracy:.3f}, test accuracy {result.test_accuracy:.3f}, gap "
        f"{result.gap:.3f}, in {result.seconds:.0f} s",
    ]
    if result.auroc is not None and result.sensitivity is not None and result.specificity is not None:
        classes = len(result.classes)
        of = f"positive: {result.classes[1]}" if classes == 2 else f"means over {classes} classes"
        lines.append(
            f"On the test images: AUROC {result.auroc:.3f}, sensitivity {result.sensitivity:.3f}, specificity "
            f"{result.specificity:.3f} ({of})"
        )
    for line in (*lines, loaded, *result.notes):
        console.print(str(line), markup=False)
    if run.config.method.private:
        _show_guarantee(console, run.guarantee())
    console.print(_how_to_audit(run), markup=False)


def _how_to_audit(run: Any) -> str:
    """Say on what it was trained, and how it can be audited."""
    result, data = run.result, run.config.data
    if data.part != "all":
        trained, how = f"{result.records} of the training images ({data.part.replace('_', ' ')})", ""
    else:
        trained = f"{'' if data.validation else 'all '}{result.records} training images"
        recipe = "audits the recipe: trains models like it on halves of these images"
        how = f" ({recipe if data.canaries is None else 'attacks its canaries'})"
    return (
        f"Trained on {trained}; {result.test_records} others were held out for the test. "
        f"Next: resperturb audit {run.path}{how}"
    )


def _show_guarantee(console: Any, guarantee: "Guarantee") -> None:
    if guarantee.not_met:
        console.print(f"{guarantee.setting} No guarantee: {guarantee.not_met[0].statement}")
        return
    console.print(
        f"{guarantee.setting} Epsilon {guarantee.epsilon:.3g} at delta {guarantee.delta:g}. "
        f"{guarantee.meaning.capitalize()} The largest possible attack AUC is {guarantee.max_auc:.3f}. It protects "
        f"{guarantee.protects}"
    )
    for assumption in guarantee.assumptions:
        if assumption.status == "assumed":
            console.print(f"  It holds only if: {assumption.statement}")
