"""Readings of the published rows, as trainings that are watched from the first epoch to the last."""

from dataclasses import dataclass, replace

from pydantic import JsonValue, TypeAdapter

from resperturb.errors import BusyError
from resperturb.files import plain
from resperturb.training import Run
from resperturb_reproduction.reproduce.declarations import DATA_TITLES, READINGS, Experiment, Printed
from resperturb_reproduction.reproduce.library import Library
from resperturb_reproduction.reproduce.measures import (
    NoiseAccuracies,
    describe_data,
    kept_audit,
    measure_answers,
    measure_audit,
)
from resperturb_reproduction.reproduce.plan import target_config
from resperturb_reproduction.reproduce.presets import Preset
from resperturb_reproduction.reproduce.results import AuditSummary, Computed, DataUsed, Measured, made_now
from resperturb_reproduction.reproduce.trajectories import EVERY, IMAGES, Look, read_trajectory, watch
from resperturb_reproduction.reproduce.verdicts import NAMES, Spreads, Verdict, compare, leak

ID = "readings"


@dataclass(frozen=True)
class End:
    """What was measured of a finished training, on all of its images.

    Attributes:
        train_accuracy: On the training images, one draw.
        test_accuracy: On the test images, one draw.
        answers: Both, averaged over draws and with the noise switched off.
        audit: The strongest attack that was made; those without shadow models unless the run was audited before.
    """

    train_accuracy: float
    test_accuracy: float
    answers: NoiseAccuracies
    audit: AuditSummary


@dataclass(frozen=True)
class Watched:
    """One reading: the published row, and what was measured on the way.

    Attributes:
        data: The data set.
        name: The row in words.
        noisy: Whether it was trained with noise.
        seed: The seed of the training and of its quarters.
        epochs: The number of epochs of the whole training.
        paper: The published row.
        looks: What was measured, by epoch.
        end: What was measured of the finished training.
    """

    data: str
    name: str
    noisy: bool
    seed: int
    epochs: int
    paper: Printed
    looks: tuple[Look, ...]
    end: End | None = None

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


def readings(experiment: Experiment, preset: Preset, library: Library) -> Measured:
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
    return Measured(Computed(ID, "computed", (made,), verdict, numbers))


def _end(run: Run, preset: Preset) -> End:
    audit = kept_audit(run) or measure_audit(run, replace(preset, shadows=0))
    return End(run.result.train_accuracy, run.result.test_accuracy, measure_answers(run), audit)


def watched(result: Computed) -> tuple[Watched, ...]:
    """Read the trajectories of a result."""
    return TypeAdapter(tuple[Watched, ...]).validate_python(result.numbers["watched"])


def judge(one: Watched, spreads: Spreads, data: DataUsed) -> Verdict:
    """Compare the last look at a reading with its published row, by the rule of the tables."""
    looked = replace(data, a_quarter=min(data.a_quarter, IMAGES), test_images=min(data.test_images, IMAGES))
    kind = "additive" if one.noisy else "none"
    word, detail = compare(
        one.paper,
        {name: (getattr(one.looks[-1], name), 1) for name in NAMES},
        lambda metric, mean, seeds: spreads.tolerance(metric, mean, looked, kind, seeds),
    )
    return Verdict(word, 1, bool(data.reduced), detail)
