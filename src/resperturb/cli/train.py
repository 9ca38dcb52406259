"""``resperturb train``: train a network, private or not, and keep it as a run."""

import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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

From a file: `resperturb train --config run.yaml`, whose keys are those of a run's `config.json`; options win over it.

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


def given(**options: Any) -> dict[str, Any]:
    """Keep the options that the user gave.

    >>> given(gamma=0.5, floor=None)
    {'gamma': 0.5}
    """
    return {name: value for name, value in options.items() if value is not None}


def perturbation(strategy: str | None, values: Mapping[str, Any]) -> dict[str, Any] | None:
    """Put the flags of a perturbation together, refusing those that do not belong to the strategy."""
    from dataclasses import MISSING, fields

    from resperturb.perturbation.strategy import STRATEGIES

    if strategy is None and not values:
        return None
    name = strategy or ("additive" if "gamma" in values else "none")
    known = [] if name == "none" else fields(STRATEGIES[name])
    if wrong := values.keys() - {field.name for field in known}:
        flags = ", ".join(f"--{key.replace('_', '-')}" for key in sorted(wrong))
        raise UsageError(f"{flags} does not go with the strategy {name!r}.")
    missing = [
        f.name for f in known if f.default is MISSING and f.default_factory is MISSING and f.name not in values
    ]
    if missing == ["gamma"]:
        raise UsageError(f"the strategy {name!r} needs --gamma, the level of the noise.")
    return {"name": name, **values}


def training_method(name: str | None, values: Mapping[str, Any]) -> dict[str, Any] | None:
    """Put the flags of a training method together, refusing those of another."""
    from resperturb.training.method import methods

    if name is None and not values:
        return None
    name = name or "sgd"
    if foreign := [key for key in values if key not in methods[name].model_fields]:
        flags = ", ".join(f"--{key.replace('_', '-')}" for key in foreign)
        raise UsageError(f"{flags} does not go with the training method {name!r}; add --method dpsgd.")
    return {"name": name, **{key: None if value == math.inf else value for key, value in values.items()}}


def arguments(texts: list[str] | None, option: str) -> dict[str, Any] | None:
    """Read ``key=value`` pairs; values are numbers, true, false, or text.

    >>> arguments(["width=64,act_layer=gelu", "pool=true"], "--model-args")
    {'width': 64, 'act_layer': 'gelu', 'pool': True}
    """
    import yaml

    if not texts:
        return None
    found: dict[str, Any] = {}
    for part in ",".join(texts).split(","):
        key, equals, value = part.partition("=")
        if not key.strip() or not equals:
            raise UsageError(f"{option} takes pairs such as width=64,pool=true; not {part!r}.")
        found[key.strip()] = yaml.safe_load(value)
    return found


def class_weights(text: str | None) -> str | tuple[float, ...] | None:
    """Read ``balanced``, or one weight per class.

    >>> class_weights("balanced"), class_weights("1,2.5")
    ('balanced', (1.0, 2.5))
    """
    if text is None or text == "balanced":
        return text
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--class-weights is balanced, or a weight per class such as 1,2.5; not {text!r}.") from None


def read_config(path: Path | None) -> dict[str, Any]:
    """Read a YAML file of settings.

    Raises:
        UsageError: If it cannot be read, or is not a mapping.
    """
    import yaml

    if path is None:
        return {}
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(content, dict):
        raise UsageError(f"{path} must hold settings by name, such as `epochs: 20`.")
    content.pop("schema", None), content.pop("resperturb", None)  # of the config.json of a run
    if isinstance(content.get("data"), str):
        content["data"] = {"spec": content["data"]}
    return content


def canary_counts(text: str | None) -> dict[str, int] | None:
    """Read the number of canaries of each kind.

    >>> canary_counts("mislabelled=60, blank=20")
    {'mislabelled': 60, 'blank': 20}
    """
    from resperturb.data.canaries import KINDS

    if text is None:
        return None
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


def train(
    data: Annotated[
        str | None, typer.Option(help="Folder, file or name of the images.", rich_help_panel=DATA)
    ] = None,
    part: Annotated[
        Literal["all", "target_train", "shadow_train", "audit"] | None,
        typer.Option(
            help="What to train on: all training images (default); target_train, a quarter, as in the paper, which "
            "can be attacked later; audit: each image of the target half by its own coin.",
            rich_help_panel=DATA,
        ),
    ] = None,
    canaries: Annotated[
        str | None,
        typer.Option(
            help="Records made to be audited, such as mislabelled=60,blank=20; the kinds: clean, mislabelled, "
            "out_of_distribution, blank, near_duplicate. Each is put in by its own coin, in memory only.",
            rich_help_panel=DATA,
        ),
    ] = None,
    split_seed: Annotated[
        int | None, typer.Option(help="Random seed of the split into quarters.", rich_help_panel=DATA)
    ] = None,
    subset_seed: Annotated[
        int | None, typer.Option(help="Random seed of the coins of audit and of canaries.", rich_help_panel=DATA)
    ] = None,
    group_column: Annotated[
        str | None, typer.Option(help="Column whose values stay together, e.g. patient.", rich_help_panel=DATA)
    ] = None,
    image_column: Annotated[
        str | None, typer.Option(help="Column of the images; guessed.", rich_help_panel=DATA)
    ] = None,
    label_column: Annotated[
        str | None, typer.Option(help="Column of the labels; guessed.", rich_help_panel=DATA)
    ] = None,
    image_size: Annotated[
        int | None,
        typer.Option(help="Resize the short side to this many pixels and take the centre.", rich_help_panel=DATA),
    ] = None,
    bits: Annotated[
        int | None,
        typer.Option(
            help="Bits that the values of 16-bit images have, if the files do not say; 16.", rich_help_panel=DATA
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="Use only the first so many images.", rich_help_panel=DATA)
    ] = None,
    normalization: Annotated[
        Literal["half", "imagenet", "inception", "cifar10", "mnist"] | None,
        typer.Option(
            help="Constants that pixels are normalised by: half (mean 0.5, std 0.25) for resnet8 and its sisters, "
            "imagenet for others.",
            rich_help_panel=DATA,
        ),
    ] = None,
    augment: Annotated[
        Literal["none", "crop", "resized-crop"] | None,
        typer.Option(
            help="Random flips, and crops after padding by 4 pixels (small images) or resized crops (large ones).",
            rich_help_panel=DATA,
        ),
    ] = None,
    data_in: DataInOption = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="resnet8 (default), 14, 20, 32, 44, 56, 110; timm:NAME, torchvision:NAME, transformers:TYPE or "
            "FOLDER, my_package.nets:make; or an ensemble of any: en5-resnet8.",
            rich_help_panel=NETWORK,
        ),
    ] = None,
    model_args: Annotated[
        list[str] | None,
        typer.Option(help="Arguments of the network's constructor: key=value,...", rich_help_panel=NETWORK),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            help="Start from these weights: a safetensors file, or pretrained. A last layer for other classes is "
            "made anew.",
            rich_help_panel=NETWORK,
        ),
    ] = None,
    norm: Annotated[
        Literal["batch", "group"] | None,
        typer.Option(
            help="batch: the network's own normalisation; group: GroupNorm for BatchNorm, as DP-SGD needs.",
            rich_help_panel=NETWORK,
        ),
    ] = None,
    skip: Annotated[
        bool | None,
        typer.Option("--skip/--no-skip", help="Keep the skip connections (resnet8...).", rich_help_panel=NETWORK),
    ] = None,
    dropout: Annotated[
        float | None,
        typer.Option(help="Dropout between the convolutions of a block (resnet8...).", rich_help_panel=NETWORK),
    ] = None,
    gamma: Annotated[
        float | None, typer.Option(help="Level of the noise; without it there is none.", rich_help_panel=NOISE)
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option(help="none, additive (default with --gamma), or multiplicative.", rich_help_panel=NOISE),
    ] = None,
    input_std: Annotated[
        float | None, typer.Option(help="Noise on the input (additive); gamma / 2.", rich_help_panel=NOISE)
    ] = None,
    clip_radius: Annotated[
        float | None,
        typer.Option(
            help="Shorten inputs to this norm, so that a budget need not assume it (additive).", rich_help_panel=NOISE
        ),
    ] = None,
    floor: Annotated[
        float | None, typer.Option(help="Least scale of the noise (multiplicative).", rich_help_panel=NOISE)
    ] = None,
    output_std: Annotated[
        float | None, typer.Option(help="Noise of the last layer (multiplicative).", rich_help_panel=NOISE)
    ] = None,
    seeded_noise: Annotated[
        bool | None,
        typer.Option(
            "--seeded-noise",
            help="Draw the training noise from --seed, for experiments that must repeat; nothing is proven then.",
            rich_help_panel=NOISE,
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="How to train: sgd (default), or dpsgd: clipped, noised gradients, with a formal guarantee.",
            rich_help_panel=METHOD,
        ),
    ] = None,
    noise_multiplier: Annotated[
        float | None,
        typer.Option(help="Noise on the gradients, in multiples of --clip; 1.1.", rich_help_panel=METHOD),
    ] = None,
    target_epsilon: Annotated[
        float | None, typer.Option(help="Instead of the noise: the epsilon it is to give.", rich_help_panel=METHOD)
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="The delta beside epsilon; 1e-5.", rich_help_panel=METHOD)
    ] = None,
    clip: Annotated[
        float | None, typer.Option(help="Largest norm of one image's gradient; 1.0, or inf.", rich_help_panel=METHOD)
    ] = None,
    max_physical_batch: Annotated[
        int | None,
        typer.Option(help="Most images in memory at once, whatever the batch; 64.", rich_help_panel=METHOD),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(help="Passes over the training images; 100, or 20 from --weights.", rich_help_panel=TRAINING),
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Images per step; 128.", rich_help_panel=TRAINING)] = None,
    optimizer: Annotated[
        Literal["sgd", "adamw"] | None,
        typer.Option(help="sgd for resnet8 and its sisters, adamw for others.", rich_help_panel=TRAINING),
    ] = None,
    lr: Annotated[
        float | None,
        typer.Option(help="First learning rate; 0.1 for resnet8..., 1e-3 for others.", rich_help_panel=TRAINING),
    ] = None,
    momentum: Annotated[float | None, typer.Option(help="Momentum of SGD; 0.9.", rich_help_panel=TRAINING)] = None,
    weight_decay: Annotated[
        float | None,
        typer.Option(help="Weight decay; 1e-4 for resnet8..., 0.05 for others.", rich_help_panel=TRAINING),
    ] = None,
    schedule: Annotated[
        Literal["he", "quarter", "constant", "cosine"] | None,
        typer.Option(
            help="he: /10 at 50, 75% of the epochs; quarter, for DP-SGD: /4 at 20, 40, 60, 80%; cosine, for other "
            "networks.",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    warmup_epochs: Annotated[
        int | None, typer.Option(help="Epochs in which the learning rate rises first.", rich_help_panel=TRAINING)
    ] = None,
    label_smoothing: Annotated[float | None, typer.Option(help="Label smoothing.", rich_help_panel=TRAINING)] = None,
    class_weight: Annotated[
        str | None,
        typer.Option(
            "--class-weights",
            help="Weights of the classes in the loss: balanced, or one per class, such as 1,2.5.",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    precision: Annotated[
        Literal["32-true", "bf16-mixed", "16-mixed"] | None,
        typer.Option(help="Floating-point precision of the forward pass.", rich_help_panel=TRAINING),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Random seed of the first weights and of the order of batches.", rich_help_panel=TRAINING),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="YAML file of settings; options win over it.", rich_help_panel=RUN)
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
    as_json: JsonOption = False,
) -> None:
    """Parse, train, print."""
    from resperturb.cli.progress import training_progress
    from resperturb.training.config import make_config
    from resperturb.training.distributed import launch, launched
    from resperturb.training.inputs import load_inputs
    from resperturb.training.loop import train as train_run

    settings = read_config(config)
    about_data = given(
        spec=data,
        image_column=image_column,
        label_column=label_column,
        group_column=group_column,
        image_size=image_size,
        bits=bits,
        limit=limit,
        split_seed=split_seed,
        part=part,
        subset_seed=subset_seed,
        canaries=canary_counts(canaries),
    )
    settings["data"] = {**settings.get("data", {}), **about_data}
    if "spec" not in settings["data"]:
        raise UsageError("say which images to train on: --data FOLDER, or `data:` in the file of --config.")
    settings.update(
        given(
            model=model,
            model_args=arguments(model_args, "--model-args"),
            weights=weights,
            norm=norm,
            skip=skip,
            dropout=dropout,
            perturbation=perturbation(
                strategy,
                given(
                    gamma=gamma,
                    input_std=input_std,
                    clip_radius=clip_radius,
                    floor=floor,
                    output_std=output_std,
                ),
            ),
            seeded_noise=seeded_noise,
            method=training_method(
                method,
                given(
                    noise_multiplier=noise_multiplier,
                    target_epsilon=target_epsilon,
                    delta=delta,
                    clip=clip,
                    max_physical_batch=max_physical_batch,
                ),
            ),
            epochs=epochs,
            batch_size=batch_size,
            optimizer=optimizer,
            lr=lr,
            momentum=momentum,
            weight_decay=weight_decay,
            schedule=schedule,
            warmup_epochs=warmup_epochs,
            label_smoothing=label_smoothing,
            class_weights=class_weights(class_weight),
            normalization=normalization,
            augment=augment,
            precision=precision,
            seed=seed,
        )
    )
    wanted = make_config(**settings)
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
    if run.guarantee is not None:
        facts = run.guarantee.to_dict()
        payload["guarantee"] = {**facts.pop("details"), **facts}
    emit(payload, as_json, lambda console: _show(console, run, loaded))


def _show(console: Any, run: Any, loaded: Any) -> None:
    from rich.table import Table

    result = run.result
    table = Table(title=escaped(run.path), title_justify="left")
    for heading in ("perturbation", "train acc.", "test acc.", "gap", "time"):
        table.add_column(heading)
    noise = {key: value for key, value in run.config.perturbation.items() if value is not None}
    table.add_row(
        " ".join(f"{key}={value}" if key != "name" else str(value) for key, value in noise.items()),
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
    if run.guarantee is not None:
        _show_guarantee(console, run.guarantee)
    console.print(_how_to_audit(run), markup=False)


def _how_to_audit(run: Any) -> str:
    """Say on what it was trained, and how it can be audited."""
    result, data = run.result, run.config.data
    tested = f"{result.test_records} others were held out for the test"
    if data.part != "all":
        part = data.part.replace("_", " ")
        return (
            f"Trained on {result.records} of the training images ({part}); {tested}. "
            f"Next: resperturb attack {run.path}"
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
        f"{guarantee.verdict.capitalize()}"
    )
    for assumption in guarantee.assumptions:
        if assumption.status == "assumed":
            console.print(f"  It holds only if: {assumption.statement}")
