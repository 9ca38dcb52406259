"""Readings of the published rows, as trainings that are measured every few epochs.

A network on its way to memorising its images passes through many pairs of training and test accuracy. That a reading
meets a published row says something only if the training ends there.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from pydantic import JsonValue, TypeAdapter
from safetensors import safe_open
from torch import Tensor, nn

from resperturb.data import ImageSet
from resperturb.errors import BusyError
from resperturb.files import plain, write_bytes
from resperturb.training import (
    Inputs,
    Run,
    TrainConfig,
    build_model,
    load_inputs,
    open_run,
    train,
)
from resperturb_reproduction.reproduce.declarations import DATA_TITLES, READINGS, Experiment, Printed
from resperturb_reproduction.reproduce.library import Library
from resperturb_reproduction.reproduce.measures import (
    NoiseAccuracies,
    describe_data,
    kept_audit,
    measure_answers,
    measure_audit,
    outputs,
    right,
)
from resperturb_reproduction.reproduce.plan import target_config
from resperturb_reproduction.reproduce.presets import Preset
from resperturb_reproduction.reproduce.results import AuditSummary, Computed, DataUsed, made_now
from resperturb_reproduction.reproduce.verdicts import NAMES, Spreads, Verdict, compare, leak

ID = "readings"
EVERY = 5
# Of each part, at most: a look at 12,500 images with 16 draws would take longer than the epochs between two looks.
IMAGES = 5_000
AVERAGED_IMAGES = 1_000
DRAWS = 16


@dataclass(frozen=True)
class Look:
    """Measurements of a network after an epoch of its training, on at most ``IMAGES`` images of each part.

    Attributes:
        auc: The AUC of a threshold on the largest probability, training images against those of the held-out quarter.
        averaged_test_accuracy: Of the mean of ``DRAWS`` draws, on the first ``AVERAGED_IMAGES`` test images.
        one_draw_there: The accuracy of one draw on these images.
    """

    epoch: int
    train_accuracy: float
    test_accuracy: float
    auc: float
    averaged_test_accuracy: float | None = None
    one_draw_there: float | None = None
    noiseless_test_accuracy: float | None = None


def trajectory_path(folder: Path) -> Path:
    """Name the file of a run's trajectory."""
    return folder / "reproduce" / "trajectory.jsonl"


def read_trajectory(folder: Path) -> tuple[Look, ...]:
    """Read what was measured of a run while it was trained; nothing if it was not watched."""
    path = trajectory_path(folder)
    if not path.exists():
        return ()
    return tuple(TypeAdapter(Look).validate_json(line) for line in path.read_text().splitlines())


def watch(config: TrainConfig, folder: Path, on_look: Callable[[Look], None] = lambda look: None) -> Run:
    """Train like :func:`resperturb.training.train`, and measure the network every ``EVERY`` epochs.

    The measurements change nothing in the training. Stopped or killed, it resumes from its last checkpoint and
    measures what it had not measured yet.
    """
    inputs = load_inputs(config.data)

    def look() -> None:
        path = folder / "checkpoint.safetensors"
        if not path.exists():
            return
        epoch, weights = _after_an_epoch(path)
        seen = read_trajectory(folder)
        if epoch % EVERY or any(one.epoch == epoch for one in seen):
            return
        run = open_run(folder)
        with torch.random.fork_rng(devices=[]):  # the next step of the training draws from it
            model = build_model(run.config, inputs.members())
            model.load_state_dict(weights)
            found = _measured(model, run.config, inputs, epoch)
        lines = (json.dumps(plain(one)) + "\n" for one in (*seen, found))
        trajectory_path(folder).parent.mkdir(exist_ok=True)
        write_bytes(trajectory_path(folder), "".join(lines).encode())
        on_look(found)

    look()  # a training that was killed while it was measured
    return train(config, out=folder, on_update=lambda update: look() if update.metrics else None)


def _after_an_epoch(checkpoint: Path) -> tuple[int, dict[str, Tensor]]:
    """Read the epoch and the weights of a checkpoint; epoch -1 in the midst of one."""
    with safe_open(checkpoint, framework="pt") as file:
        progress = json.loads(file.metadata()["progress"])
        names = [name for name in file.keys() if name.startswith("model.")]  # noqa: SIM118 - a method of its own
        weights = {name.removeprefix("model."): file.get_tensor(name) for name in names}
    return -1 if progress["step"] else progress["epoch"], weights


def _measured(model: nn.Module, config: TrainConfig, inputs: Inputs, epoch: int) -> Look:
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    members, out = inputs.members(), inputs.train.select(inputs.quarters.target_out)

    def answers(images: ImageSet, count: int = IMAGES, draws: int = 1, silent: bool = False) -> Tensor:
        return outputs(model, config, images, count, draws, silent)

    of_members, of_test = answers(members), answers(inputs.test)
    averaged = one_draw = noiseless = None
    if config.is_noisy:
        mean = answers(inputs.test, AVERAGED_IMAGES, DRAWS)
        averaged, one_draw = right(mean, inputs.test), right(of_test[: len(mean)], inputs.test)
        noiseless = right(answers(inputs.test, silent=True), inputs.test)
    return Look(
        epoch=epoch,
        train_accuracy=right(of_members, members),
        test_accuracy=right(of_test, inputs.test),
        auc=confidence_auc(of_members, answers(out)),
        averaged_test_accuracy=averaged,
        one_draw_there=one_draw,
        noiseless_test_accuracy=noiseless,
    )


def confidence_auc(members: Tensor, others: Tensor) -> float:
    """Return the AUC of a threshold on the largest probability, from the logits of members and of others.

    >>> sure, unsure = torch.tensor([[9.0, 0.0], [1.0, 0.0]]), torch.tensor([[0.5, 0.0]])
    >>> confidence_auc(sure, unsure), confidence_auc(unsure, unsure)
    (1.0, 0.5)
    """
    from sklearn.metrics import roc_auc_score

    scores = torch.cat([logits.double().softmax(dim=1).amax(dim=1) for logits in (members, others)])
    return float(roc_auc_score([1] * len(members) + [0] * len(others), scores.numpy()))


@dataclass(frozen=True)
class End:
    """Measurements of a finished training, on all of its images; ``audit`` has no shadow models if there was none."""

    train_accuracy: float
    test_accuracy: float
    answers: NoiseAccuracies
    audit: AuditSummary


@dataclass(frozen=True)
class Watched:
    """One reading of the published row ``paper``, measured by epoch and at its end."""

    data: str
    name: str
    noisy: bool
    seed: int
    epochs: int
    paper: Printed
    looks: tuple[Look, ...]
    end: End | None = None

    @property
    def label(self) -> str:
        """What distinguishes it from other readings."""
        return self.name.split("ResNet8, ", 1)[-1]

    @property
    def finished(self) -> bool:
        """Whether the last look is at the end of the training."""
        return self.looks[-1].epoch + EVERY > self.epochs

    @property
    def nearest(self) -> Look:
        """The look at which it is nearest to the published row."""
        return min(self.looks, key=lambda look: distance(look, self.paper))


def distance(look: Look, paper: Printed) -> float:
    """Give the largest difference from the published row, of training accuracy, test accuracy and AUC.

    >>> round(distance(Look(5, 0.74, 0.68, 0.51), Printed(0.511, 0.760, 0.695)), 3)
    0.02
    """
    pairs = [(name, getattr(look, name), getattr(paper, name)) for name in NAMES]
    return max(abs(leak(name, found) - leak(name, value)) for name, found, value in pairs if value is not None)


def readings(experiment: Experiment, preset: Preset, library: Library) -> Computed:
    """Train and watch the rows of ``experiment`` that are not trained; measure all that are there.

    A reading that another process trains is left to it, so that the same command may run several times side by side.
    """
    found: list[Watched] = []
    seconds = 0.0
    for cell in READINGS:
        config = library.bound(target_config(cell, preset.scale(cell.data, "choice"), seed=0))
        folder = library.place(config) / config.digest
        if library.may_train and cell in experiment.cells:
            library.say(f"{ID}: {DATA_TITLES[cell.data]}, {cell.name}")
            try:
                watch(config, folder)
            except BusyError:
                library.say(f"{ID}: another process trains it")
        run, looks = library.get(config), read_trajectory(folder)
        seconds += 0.0 if run is None else run.result.seconds
        if looks and cell.paper is not None:
            noisy = config.perturbation is not None
            end = None if run is None else _end(run, preset)
            found.append(Watched(cell.data, cell.name, noisy, 0, config.epochs, cell.paper, looks, end))
    data = tuple(describe_data(name, "choice", preset) for name in dict.fromkeys(one.data for one in found))
    made = made_now(preset, data, len(found), seconds)
    numbers: dict[str, JsonValue] = {"watched": plain(found)}
    verdict = f"{sum(one.finished for one in found)} of {len(READINGS)} trainings are finished"
    return Computed(ID, "computed", (made,), verdict, numbers)


def _end(run: Run, preset: Preset) -> End:
    audit = kept_audit(run) or measure_audit(run, replace(preset, shadows=0))
    return End(run.result.train_accuracy, run.result.test_accuracy, measure_answers(run), audit)


def watched(result: Computed) -> tuple[Watched, ...]:
    """Read the trajectories of a result."""
    return TypeAdapter(tuple[Watched, ...]).validate_python(result.numbers["watched"])


def judge(one: Watched, spreads: Spreads, data: DataUsed) -> Verdict:
    """Compare the last look at a reading with its published row, by the rule of the tables."""
    looked = replace(data, a_quarter=min(data.a_quarter, IMAGES), test_images=min(data.test_images, IMAGES))
    found = {name: getattr(one.looks[-1], name) for name in NAMES}
    return compare(one.paper, found, looked, "additive" if one.noisy else "none", spreads)
