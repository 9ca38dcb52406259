"""``resperturb train``: train a network, private or not, and keep it as a run."""

import inspect
import math
import os
import re
import sys
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from resperturb.cli.data_in import DataInOption
from resperturb.cli.output import JsonOption, emit, escaped
from resperturb.errors import ResperturbError, UsageError

if TYPE_CHECKING:
    from resperturb.privacy.guarantee import Guarantee

EXAMPLE = """
Train a network on your images and keep it as a run.

`--data` is an image folder (`train/<class>/*.png`), a parquet file or a folder of them, an `.npz`, a Hugging Face
name such as `cifar10`, or `fashion-sample`, which is built in. All training images are used; images for the test are
held out where there are none.

Example: `resperturb train --data ./patches --gamma 0.5 --out runs/private`

Any network: `resperturb train --data ./patches --model timm:resnet26d --image-size 224 --out runs/timm`

With a formal guarantee: `resperturb train --data ./patches --method dpsgd --target-epsilon 3 --out runs/dp`

From a file: `resperturb train --config run.yaml`, whose keys are those of a run's `config.json`; options override it.

A run that was stopped or killed is resumed by the same command.

On several GPUs of one machine: `--devices 4`. On several machines: `torchrun ... -m resperturb train ...`
"""

DATA, NETWORK, NOISE, METHOD, TRAINING, RUN = (
    "Data",
    "Network",
    "Residual perturbation",
    "Method: DP-SGD",
    "Training",
    "Run",
)


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("train", help=EXAMPLE)(_one_voice()(train))


def arguments(texts: Sequence[str]) -> dict[str, Any]:
    """Read ``key=value`` pairs; values are numbers, true, false, text, or lists of these.

    >>> arguments(["width=64,act_layer=gelu", "pool=true", "depths=[1,2]"])
    {'width': 64, 'act_layer': 'gelu', 'pool': True, 'depths': [1, 2]}
    """
    from resperturb.files import parse_yaml

    found: dict[str, Any] = {}
    for part in re.split(r",(?![^\[]*\])", ",".join(texts)):  # not at the commas of a list
        key, equals, value = part.partition("=")
        if not key.strip() or not equals:
            raise UsageError(f"--model-args takes pairs such as width=64,pool=true; not {part!r}.")
        found[key.strip()] = parse_yaml(value, f"--model-args {part}")
    return found


def class_weights(text: str) -> str | tuple[float, ...]:
    """Read ``balanced``, or one weight per class.

    >>> class_weights("balanced"), class_weights("1,2.5")
    ('balanced', (1.0, 2.5))
    """
    if text == "balanced":
        return text
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--class-weights is balanced, or a weight per class such as 1,2.5; not {text!r}.") from None


def canary_counts(text: str) -> dict[str, int]:
    """Read the number of canaries of each kind.

    >>> canary_counts("mislabelled=60, blank=20")
    {'mislabelled': 60, 'blank': 20}
    """
    from resperturb.data.canaries import KINDS

    counts = {}
    for part in text.split(","):
        kind, _, number = part.partition("=")
        if not number.strip().isdigit() or kind.strip() not in KINDS:
            raise UsageError(
                f"--canaries takes kinds and numbers such as mislabelled=60,blank=20; not {text!r}. The kinds are "
                f"{', '.join(KINDS)}."
            )
        counts[kind.strip()] = int(number)
    return counts


@dataclass(frozen=True)
class Setting:
    """An option that sets one entry of the configuration: ``--limit`` sets ``data.limit``; left out, it sets none."""

    panel: str
    key: str
    kind: Any
    help: str
    flag: str = ""
    read: Callable[[Any], Any] = lambda value: value

    @property
    def parameter(self) -> inspect.Parameter:
        """The option as Typer reads it from the signature of a function."""
        flag = self.flag or f"--{self.key.rpartition('.')[2].replace('_', '-')}"
        option = typer.Option(flag, help=self.help, rich_help_panel=self.panel)
        name, annotation = self.key.replace(".", "__"), Annotated[self.kind | None, option]
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


SETTINGS = (
    Setting(DATA, "data.spec", str, "Folder, file or name of the images.", "--data"),
    Setting(
        DATA,
        "data.part",
        Literal["all", "target_train", "shadow_train", "audit"],
        "What to train on: all training images (default); target_train, a quarter, as in the paper, which can be "
        "attacked later; audit: each image of the target half by its own coin.",
    ),
    Setting(
        DATA,
        "data.canaries",
        str,
        "Records made to be audited, such as mislabelled=60,blank=20; the kinds: clean, mislabelled, "
        "out_of_distribution, blank, near_duplicate. Each is put in by its own coin, in memory only.",
        read=canary_counts,
    ),
    Setting(DATA, "data.split_seed", int, "Random seed of the split into quarters."),
    Setting(DATA, "data.subset_seed", int, "Random seed of the coins of audit and of canaries."),
    Setting(DATA, "data.group_column", str, "Column whose values stay together, e.g. patient."),
    Setting(DATA, "data.image_column", str, "Column of the images; guessed."),
    Setting(DATA, "data.label_column", str, "Column of the labels; guessed."),
    Setting(DATA, "data.image_size", int, "Resize the short side to this many pixels and take the centre."),
    Setting(DATA, "data.bits", int, "Bits that the values of 16-bit images have, if the files do not say; 16."),
    Setting(DATA, "data.limit", int, "Use only the first N images."),
    Setting(
        DATA,
        "normalization",
        Literal["half", "imagenet", "inception", "cifar10", "mnist"],
        "Constants that pixels are normalised by: half (mean 0.5, std 0.25) for resnet8 and its family, imagenet "
        "for others.",
    ),
    Setting(
        DATA,
        "augment",
        Literal["none", "crop", "resized-crop"],
        "Random flips, and crops after padding by 4 pixels (small images) or resized crops (large ones).",
    ),
    Setting(
        NETWORK,
        "model",
        str,
        "resnet8 (default), 14, 20, 32, 44, 56, 110; timm:NAME, torchvision:NAME, transformers:TYPE or FOLDER, "
        "my_package.nets:make; or an ensemble of any: en5-resnet8.",
    ),
    Setting(
        NETWORK,
        "model_args",
        list[str],
        "Arguments of the network's constructor: key=value,...",
        read=arguments,
    ),
    Setting(
        NETWORK,
        "weights",
        str,
        "Start from these weights: a safetensors file, or pretrained. A last layer for other classes is made anew.",
    ),
    Setting(
        NETWORK,
        "norm",
        Literal["batch", "group"],
        "batch: the network's own normalisation; group: GroupNorm for BatchNorm, as DP-SGD needs.",
    ),
    Setting(NETWORK, "skip", bool, "Keep the skip connections (resnet8...).", "--skip/--no-skip"),
    Setting(NETWORK, "dropout", float, "Dropout between the convolutions of a block (resnet8...)."),
    Setting(NOISE, "perturbation.gamma", float, "Level of the noise; without it there is none."),
    Setting(
        NOISE,
        "perturbation.name",
        str,
        "none, additive (default with --gamma), or multiplicative.",
        "--strategy",
    ),
    Setting(NOISE, "perturbation.input_std", float, "Noise on the input (additive); gamma / 2."),
    Setting(
        NOISE,
        "perturbation.clip_radius",
        float,
        "Shorten inputs to this norm, so that a budget need not assume it (additive).",
    ),
    Setting(NOISE, "perturbation.floor", float, "Least scale of the noise (multiplicative)."),
    Setting(NOISE, "perturbation.output_std", float, "Noise of the last layer (multiplicative)."),
    Setting(
        NOISE,
        "seeded_noise",
        bool,
        "Draw the training noise from --seed, for experiments that must repeat; nothing is proven then.",
    ),
    Setting(
        METHOD,
        "method.name",
        str,
        "How to train: sgd (default), or dpsgd: clipped, noised gradients, with a formal guarantee.",
        "--method",
    ),
    Setting(METHOD, "method.noise_multiplier", float, "Noise on the gradients, in multiples of --clip; 1.1."),
    Setting(METHOD, "method.target_epsilon", float, "Instead of the noise: the epsilon it is to give."),
    Setting(METHOD, "method.delta", float, "The delta beside epsilon; 1e-5."),
    Setting(METHOD, "method.clip", float, "Largest norm of one image's gradient; 1.0, or inf."),
    Setting(METHOD, "method.max_physical_batch", int, "Most images in memory at once, whatever the batch; 64."),
    Setting(TRAINING, "epochs", int, "Passes over the training images; default 100, or 20 with --weights."),
    Setting(TRAINING, "batch_size", int, "Images per step; default 128."),
    Setting(TRAINING, "optimizer", Literal["sgd", "adamw"], "sgd for resnet8 and its family, adamw for others."),
    Setting(TRAINING, "lr", float, "First learning rate; default 0.1 for resnet8..., 1e-3 for others."),
    Setting(TRAINING, "momentum", float, "Momentum of SGD; default 0.9."),
    Setting(TRAINING, "weight_decay", float, "Weight decay; default 1e-4 for resnet8..., 0.05 for others."),
    Setting(
        TRAINING,
        "schedule",
        Literal["he", "quarter", "constant", "cosine"],
        "he: /10 at 50, 75% of the epochs; quarter, for DP-SGD: /4 at 20, 40, 60, 80%; cosine, for other networks.",
    ),
    Setting(TRAINING, "warmup_epochs", int, "Epochs in which the learning rate rises first."),
    Setting(TRAINING, "label_smoothing", float, "Label smoothing."),
    Setting(
        TRAINING,
        "class_weights",
        str,
        "Weights of the classes in the loss: balanced, or one per class, such as 1,2.5.",
        read=class_weights,
    ),
    Setting(
        TRAINING,
        "precision",
        Literal["32-true", "bf16-mixed", "16-mixed"],
        "Floating-point precision of the forward pass.",
    ),
    Setting(TRAINING, "seed", int, "Random seed of the first weights and of the order of batches."),
)


def perturbation(values: dict[str, Any]) -> dict[str, Any]:
    """Put the options of a perturbation together, refusing those that do not belong to the strategy."""
    from dataclasses import MISSING, fields

    from resperturb.perturbation.strategy import STRATEGIES

    name = values.get("name", "additive" if "gamma" in values else "none")
    known = {} if name == "none" else {field.name: field for field in fields(STRATEGIES[name])}
    _refuse_foreign(values, known, f"the strategy {name!r}.")
    needed = known.get("gamma")
    if needed is not None and needed.default is MISSING and "gamma" not in values:
        raise UsageError(f"the strategy {name!r} needs --gamma, the level of the noise.")
    return {**values, "name": name}


def training_method(values: dict[str, Any]) -> dict[str, Any]:
    """Put the options of a training method together, refusing those of another."""
    from resperturb.training.method import methods

    name = values.get("name", "sgd")
    _refuse_foreign(values, methods[name].model_fields, f"the training method {name!r}; add --method dpsgd.")
    return {**{key: None if value == math.inf else value for key, value in values.items()}, "name": name}


def _refuse_foreign(values: Mapping[str, Any], known: Container[str], whose: str) -> None:
    if foreign := [key for key in values if key != "name" and key not in known]:
        flags = ", ".join(f"--{key.replace('_', '-')}" for key in sorted(foreign))
        raise UsageError(f"{flags} does not go with {whose}")


def read_config(path: Path | None) -> dict[str, Any]:
    """Read a YAML file of settings.

    Raises:
        UsageError: If it cannot be read, or is not a mapping.
    """
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
    given: dict[str, dict[str, Any]] = {"": {}, "data": {}, "perturbation": {}, "method": {}}
    for setting in SETTINGS:
        value = options[setting.parameter.name]
        if value is not None:
            group, _, name = setting.key.rpartition(".")
            given[group][name] = setting.read(value)
    found = {**file, **given[""], "data": {**file.get("data", {}), **given["data"]}}
    if "spec" not in found["data"]:
        raise UsageError("say which images to train on: --data FOLDER, or `data:` in the file of --config.")
    if given["perturbation"]:
        found["perturbation"] = perturbation(given["perturbation"])
    if given["method"]:
        found["method"] = training_method(given["method"])
    return found


def train(
    *,
    config: Annotated[
        Path | None, typer.Option(help="YAML file of settings; options override it.", rich_help_panel=RUN)
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run; named by its hash if left out.", rich_help_panel=RUN)
    ] = None,
    runs: Annotated[Path, typer.Option(help="Folder of all runs.", rich_help_panel=RUN)] = Path("runs"),
    draws: Annotated[
        int, typer.Option(min=1, help="Noise draws averaged for the final accuracies.", rich_help_panel=RUN)
    ] = 1,
    devices: Annotated[
        int,
        typer.Option(
            min=1,
            help="Processes of this machine that train together, each with a GPU if there are any.",
            rich_help_panel=RUN,
        ),
    ] = 1,
    data_in: DataInOption = None,
    as_json: JsonOption = False,
    **options: Any,
) -> None:
    """Parse, train, print."""
    from resperturb.cli.progress import training_progress
    from resperturb.training.config import make_config
    from resperturb.training.distributed import launch, launched
    from resperturb.training.inputs import load_inputs
    from resperturb.training.loop import train as train_run

    wanted = make_config(**settings(options, read_config(config)))
    processes = int(os.environ.get("WORLD_SIZE", "1")) if launched() else 1
    if devices > 1 and processes == 1:
        raise typer.Exit(launch(devices, sys.argv[1:]))
    if devices not in (1, int(os.environ.get("LOCAL_WORLD_SIZE", "1"))):
        raise UsageError("under torchrun, --nproc-per-node says how many processes there are; leave --devices out.")
    leads = os.environ.get("RANK", "0") == "0" or processes == 1
    with training_progress("training", shown=leads) as on_update:
        run = train_run(wanted, out=out, runs=runs, draws=draws, on_update=on_update)
    if not leads:
        return
    _note_processes(run, processes)
    loaded = load_inputs(run.config.data).train.summary
    payload = {"run": str(run.path), "hash": run.config.digest, **run.result.to_dict(), "data": loaded}
    if run.config.method.private:
        facts = run.guarantee().to_dict()
        payload["guarantee"] = {**facts.pop("details"), **facts}
    emit(payload, as_json, lambda console: _show(console, run, loaded))


# Typer reads the options of a command from its signature.
_OWN = [p for p in inspect.signature(train).parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
_ALL = [*(setting.parameter for setting in SETTINGS), *_OWN]
train.__signature__ = inspect.Signature(_ALL)  # type: ignore[attr-defined]
train.__annotations__ = {parameter.name: parameter.annotation for parameter in _ALL}


def _show(console: Any, run: Any, loaded: Any) -> None:
    from rich.table import Table

    result = run.result
    table = Table(title=escaped(run.path), title_justify="left")
    for heading in ("perturbation", "train acc.", "test acc.", "gap", "time"):
        table.add_column(heading)
    table.add_row(
        "none" if run.config.perturbation is None else run.config.perturbation.describe(),
        f"{result.train_accuracy:.3f}",
        f"{result.test_accuracy:.3f}",
        f"{result.gap:.3f}",
        f"{result.seconds:.0f} s",
    )
    console.print(table)
    if result.auroc is not None and result.sensitivity is not None and result.specificity is not None:
        console.print(
            f"On the test images: AUROC {result.auroc:.3f}, sensitivity {result.sensitivity:.3f}, specificity "
            f"{result.specificity:.3f}" + (f" (positive: {result.classes[1]})" if len(result.classes) == 2 else ""),
            markup=False,
        )
    console.print(str(loaded), markup=False)
    for note in result.notes:
        console.print(note, markup=False)
    if run.config.method.private:
        _show_guarantee(console, run.guarantee())
    console.print(_how_to_audit(run), markup=False)


def _how_to_audit(run: Any) -> str:
    """Say on what it was trained, and how it can be audited."""
    result, data = run.result, run.config.data
    tested = f"{result.test_records} others were held out for the test"
    if data.part != "all":
        part = data.part.replace("_", " ")
        return (
            f"Trained on {result.records} of the training images ({part}); {tested}. "
            f"Next: resperturb audit {run.path}"
        )
    how = (
        "asks for its canaries"
        if data.canaries is not None
        else "trains models like it on halves of these images, for what this way of training leaks"
    )
    return f"Trained on all {result.records} training images; {tested}. Next: resperturb audit {run.path} ({how})"


@contextmanager
def _one_voice() -> Iterator[None]:
    """Let the first process of each machine alone say what is wrong, which all of them know."""
    try:
        yield
    except ResperturbError as error:
        if os.environ.get("LOCAL_RANK", "0") == "0":
            raise
        raise typer.Exit(error.exit_code) from None


def _note_processes(run: Any, processes: int) -> None:
    """Say so where a finished run, taken as it is, was not trained in as many processes as were asked for."""
    used = run.result.processes
    if used != (processes,):
        typer.echo(
            f"Note: {run.path} was trained in {' and then '.join(map(str, used))} process(es), not in {processes}. "
            "The noise it was trained with is another draw, of the same distribution; for a training of its own, "
            "choose another --out.",
            err=True,
        )


def _show_guarantee(console: Any, guarantee: "Guarantee") -> None:
    if guarantee.not_met:
        console.print(f"{guarantee.setting} No guarantee: {guarantee.not_met[0].statement}")
        return
    console.print(
        f"{guarantee.setting} Epsilon {guarantee.epsilon:.3g} at delta {guarantee.delta:g}. "
        f"{guarantee.meaning.capitalize()}"
    )
    for assumption in guarantee.assumptions:
        if assumption.status == "assumed":
            console.print(f"  It holds only if: {assumption.statement}")
