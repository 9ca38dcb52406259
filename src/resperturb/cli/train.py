"""``resperturb train``: train a network, private or not, and keep it as a run."""

import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from resperturb.cli.data_in import DataInOption
from resperturb.cli.output import JsonOption, emit
from resperturb.errors import ResperturbError, UsageError

if TYPE_CHECKING:
    from resperturb.privacy.guarantee import Guarantee

EXAMPLE = """
Train a network on your images and keep it as a run.

`--data` is an image folder (`train/<class>/*.png`), a parquet file or a folder of them, an `.npz`, a Hugging Face
name such as `cifar10`, or `fashion-sample`, which is built in.

Example: `resperturb train --data ./patches --gamma 0.5 --out runs/private`

With a formal guarantee: `resperturb train --data ./patches --method dpsgd --target-epsilon 3 --out runs/dp`

A run that was stopped or killed goes on when the same command is given again.

On several GPUs of one machine: `--devices 4`. On several machines: `torchrun ... -m resperturb train ...`
"""


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("train", help=EXAMPLE)(_one_voice()(train))


def perturbation(
    strategy: str | None,
    gamma: float | None,
    input_std: float | None,
    clip_radius: float | None,
    floor: float | None,
    output_std: float | None,
) -> dict[str, Any]:
    """Put the flags of a perturbation together, refusing those that do not belong to the strategy."""
    name = strategy or ("none" if gamma is None else "additive")
    given = {
        "gamma": gamma,
        "input_std": input_std,
        "clip_radius": clip_radius,
        "floor": floor,
        "output_std": output_std,
    }
    values = {key: value for key, value in given.items() if value is not None}
    allowed = {
        "none": set[str](),
        "additive": {"gamma", "input_std", "clip_radius"},
        "multiplicative": {"gamma", "floor", "output_std"},
    }[name]
    if wrong := values.keys() - allowed:
        flags = ", ".join(f"--{key.replace('_', '-')}" for key in sorted(wrong))
        raise UsageError(f"{flags} does not go with the strategy {name!r}.")
    if name != "none" and gamma is None:
        raise UsageError(f"the strategy {name!r} needs --gamma, the level of the noise.")
    return {"name": name, **values}


def training_method(
    name: str,
    noise_multiplier: float | None,
    clip: float | None,
    target_epsilon: float | None,
    delta: float | None,
    max_physical_batch: int | None,
) -> dict[str, Any]:
    """Put the flags of a training method together, refusing those of another."""
    given: dict[str, Any] = {
        "noise_multiplier": noise_multiplier,
        "clip": clip,
        "target_epsilon": target_epsilon,
        "delta": delta,
        "max_physical_batch": max_physical_batch,
    }
    values = {key: value for key, value in given.items() if value is not None}
    from resperturb.training.method import methods

    if foreign := values.keys() - methods[name].model_fields.keys():
        flags = ", ".join(f"--{key.replace('_', '-')}" for key in given if key in foreign)
        raise UsageError(f"{flags} does not go with the training method {name!r}; add --method dpsgd.")
    if values.get("clip") == math.inf:
        values["clip"] = None
    return {"name": name, **values}


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
    data: Annotated[str, typer.Option(help="Folder, file or name of the images.")],
    gamma: Annotated[
        float | None, typer.Option(help="Level of the noise; without it the run is not private.")
    ] = None,
    strategy: Annotated[
        Literal["none", "additive", "multiplicative"] | None,
        typer.Option(help="Kind of noise; additive if --gamma is given."),
    ] = None,
    input_std: Annotated[float | None, typer.Option(help="Noise on the input (additive); gamma / 2.")] = None,
    clip_radius: Annotated[
        float | None,
        typer.Option(help="Shorten inputs to this norm, so that a budget need not assume it (additive)."),
    ] = None,
    floor: Annotated[float | None, typer.Option(help="Least scale of the noise (multiplicative).")] = None,
    output_std: Annotated[float | None, typer.Option(help="Noise of the last layer (multiplicative).")] = None,
    model: Annotated[str, typer.Option(help="resnet8, 14, 20, 32, 44, 56, 110, or an ensemble: en5-resnet8.")] = (
        "resnet8"
    ),
    norm: Annotated[
        Literal["batch", "group"] | None, typer.Option(help="Normalisation layers; batch, and group for DP-SGD.")
    ] = None,
    skip: Annotated[bool, typer.Option("--skip/--no-skip", help="Keep the skip connections.")] = True,
    epochs: Annotated[int, typer.Option(help="Passes over the training images.")] = 100,
    batch_size: Annotated[int, typer.Option(help="Images a step.")] = 128,
    lr: Annotated[float, typer.Option(help="First learning rate.")] = 0.1,
    momentum: Annotated[float, typer.Option(help="Momentum of SGD.")] = 0.9,
    weight_decay: Annotated[float, typer.Option(help="Weight decay.")] = 1e-4,
    schedule: Annotated[
        Literal["he", "quarter", "constant"] | None,
        typer.Option(help="he: /10 at 50, 75% of the epochs; quarter, for DP-SGD: /4 at 20, 40, 60, 80%."),
    ] = None,
    label_smoothing: Annotated[float, typer.Option(help="Label smoothing.")] = 0.0,
    dropout: Annotated[float, typer.Option(help="Dropout between the convolutions of a block.")] = 0.0,
    augment: Annotated[bool, typer.Option("--augment", help="Random crops and flips.")] = False,
    seed: Annotated[int, typer.Option(help="Random seed of the first weights and of the order of batches.")] = 0,
    method: Annotated[
        str, typer.Option(help="How to train: sgd, or dpsgd: clipped, noised gradients, with a formal guarantee.")
    ] = "sgd",
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Noise on the gradients, in multiples of --clip (DP-SGD); 1.1.")
    ] = None,
    target_epsilon: Annotated[
        float | None, typer.Option(help="Instead of the noise: the epsilon it is to give (DP-SGD).")
    ] = None,
    delta: Annotated[float | None, typer.Option(help="The delta beside epsilon (DP-SGD); 1e-5.")] = None,
    clip: Annotated[
        float | None, typer.Option(help="Largest norm of one image's gradient (DP-SGD); 1.0, or inf.")
    ] = None,
    max_physical_batch: Annotated[
        int | None, typer.Option(help="Most images in memory at once, whatever the batch (DP-SGD); 64.")
    ] = None,
    seeded_noise: Annotated[
        bool,
        typer.Option(
            "--seeded-noise",
            help="Draw the training noise from --seed, for experiments that must repeat; nothing is proven then.",
        ),
    ] = False,
    part: Annotated[
        Literal["target_train", "shadow_train", "audit", "all"],
        typer.Option(
            help="What to train on: a quarter of the images, which can be attacked later; audit: each image of the "
            "target half by its own coin; or all, which only canaries can audit."
        ),
    ] = "target_train",
    split_seed: Annotated[int, typer.Option(help="Of the split into quarters.")] = 0,
    subset_seed: Annotated[int, typer.Option(help="Of the coins: of the part audit, and of canaries.")] = 0,
    canaries: Annotated[
        str | None,
        typer.Option(
            help="Records made to be audited, such as mislabelled=60,blank=20; the kinds: clean, mislabelled, "
            "out_of_distribution, blank, near_duplicate. Each is put in by its own coin, in memory only."
        ),
    ] = None,
    group_column: Annotated[str | None, typer.Option(help="Column whose values stay together, e.g. patient.")] = None,
    image_column: Annotated[str | None, typer.Option(help="Column of the images; guessed.")] = None,
    label_column: Annotated[str | None, typer.Option(help="Column of the labels; guessed.")] = None,
    image_size: Annotated[
        int | None, typer.Option(help="Resize the short side to this many pixels and take the centre.")
    ] = None,
    bits: Annotated[
        int | None, typer.Option(help="Bits that the values of 16-bit images have, if the files do not say; 16.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Use only the first so many images.")] = None,
    draws: Annotated[int, typer.Option(min=1, help="Noise draws averaged for the final accuracies.")] = 1,
    out: Annotated[Path | None, typer.Option(help="Folder of the run; named by its hash if left out.")] = None,
    runs: Annotated[Path, typer.Option(help="Folder of all runs.")] = Path("runs"),
    devices: Annotated[
        int,
        typer.Option(min=1, help="Processes of this machine that train together, each with a GPU if there are any."),
    ] = 1,
    data_in: DataInOption = None,
    as_json: JsonOption = False,
) -> None:
    """Parse, train, print."""
    noise = perturbation(strategy, gamma, input_std, clip_radius, floor, output_std)
    how = training_method(method, noise_multiplier, clip, target_epsilon, delta, max_physical_batch)
    chosen = {key: value for key, value in {"norm": norm, "schedule": schedule}.items() if value is not None}
    from resperturb.cli.progress import training_progress
    from resperturb.training.config import make_config
    from resperturb.training.distributed import launch, launched
    from resperturb.training.inputs import load_inputs
    from resperturb.training.loop import train as train_run

    config = make_config(
        data={
            "spec": data,
            "image_column": image_column,
            "label_column": label_column,
            "group_column": group_column,
            "image_size": image_size,
            "bits": bits,
            "limit": limit,
            "split_seed": split_seed,
            "part": part,
            "subset_seed": subset_seed,
            "canaries": canary_counts(canaries),
        },
        model=model,
        skip=skip,
        perturbation=noise,
        epochs=epochs,
        batch_size=batch_size,
        lr=lr,
        momentum=momentum,
        weight_decay=weight_decay,
        label_smoothing=label_smoothing,
        dropout=dropout,
        augment=augment,
        seed=seed,
        seeded_noise=seeded_noise,
        method=how,
        **chosen,
    )
    processes = int(os.environ.get("WORLD_SIZE", "1")) if launched() else 1
    if devices > 1 and processes == 1:
        raise typer.Exit(launch(devices, sys.argv[1:]))
    if devices not in (1, int(os.environ.get("LOCAL_WORLD_SIZE", "1"))):
        raise UsageError("under torchrun, --nproc-per-node says how many processes there are; leave --devices out.")
    leads = os.environ.get("RANK", "0") == "0" or processes == 1
    with training_progress("training", shown=leads) as on_update:
        run = train_run(config, out=out, runs=runs, draws=draws, on_update=on_update)
    if not leads:
        return
    _note_processes(run, processes)

    loaded = load_inputs(run.config.data).train.summary

    def show(console: Any) -> None:
        from rich.table import Table

        table = Table(title=str(run.path), title_justify="left")
        for heading in ("perturbation", "train acc.", "test acc.", "gap", "time"):
            table.add_column(heading)
        table.add_row(
            " ".join(f"{key}={value}" if key != "name" else str(value) for key, value in _short(noise).items()),
            f"{run.result.train_accuracy:.3f}",
            f"{run.result.test_accuracy:.3f}",
            f"{run.result.gap:.3f}",
            f"{run.result.seconds:.0f} s",
        )
        console.print(table)
        console.print(str(loaded), markup=False)
        if guarantee := run.guarantee:
            _show_guarantee(console, guarantee)
        if part != "all":
            console.print(f"Next: resperturb attack {run.path}")

    payload = {
        "run": str(run.path),
        "hash": run.config.digest,
        **run.result.to_dict(),
        "data": loaded,
    }
    if run.guarantee is not None:
        facts = run.guarantee.to_dict()
        payload["guarantee"] = {**facts.pop("details"), **facts}
    emit(payload, as_json, show)


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
    details = guarantee.details
    console.print(
        f"DP-SGD, noise {details['noise_multiplier']:g}, {details['steps']} steps: epsilon {guarantee.epsilon:.3g} "
        f"at delta {guarantee.delta:g}. {guarantee.verdict.capitalize()}"
    )
    for assumption in guarantee.assumptions:
        if assumption.status == "assumed":
            console.print(f"  It holds only if: {assumption.statement}")


def _short(noise: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in noise.items() if value is not None}
