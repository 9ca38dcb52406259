"""Readings of the printed rows, as trainings that are watched from the first epoch to the last."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from pydantic import JsonValue, TypeAdapter

from resperturb.data import ImageSet
from resperturb.errors import BusyError
from resperturb.files import plain
from resperturb.training import Execution, Method, Run, Steps, TrainConfig, register_method
from resperturb_reproduction.reproduce.declarations import DATA_TITLES, READINGS, Printed
from resperturb_reproduction.reproduce.library import Library
from resperturb_reproduction.reproduce.measures import (
    NoiseAccuracies,
    accuracy_error,
    describe_data,
    kept_audit,
    measure_answers,
    measure_audit,
)
from resperturb_reproduction.reproduce.plan import target_config
from resperturb_reproduction.reproduce.presets import Preset
from resperturb_reproduction.reproduce.results import NOT_COMPARED, AuditSummary, Computed, Measured, Spread, made_now
from resperturb_reproduction.reproduce.trajectories import EVERY, IMAGES, Look, read_trajectory, watch
from resperturb_reproduction.reproduce.verdicts import tolerance

ID = "readings"


@register_method("nesterov")
class Nesterov(Method):
    """Stochastic gradients with Nesterov's momentum, as in the code of EnResNet."""

    title: ClassVar = "SGD with Nesterov's momentum"

    def steps(self, config: TrainConfig, members: ImageSet, execution: Execution) -> Steps:
        """Build the network and its optimizer."""
        steps = Steps(config, members, execution)
        for group in steps.optimizer.param_groups:
            group["nesterov"] = True
        return steps


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
    """One reading: what the paper printed of its row, and what was measured on the way.

    Attributes:
        data: The data set.
        name: The row in words.
        noisy: Whether it was trained with noise.
        seed: The seed of the training and of its quarters.
        epochs: The number of epochs of the whole training.
        paper: The printed row.
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
        """The look at which it is nearest to the printed row."""
        return min(self.looks, key=lambda look: distance(look, self.paper))


def distance(look: Look, paper: Printed) -> float:
    """Give the largest difference from the printed row, of training accuracy, test accuracy and AUC.

    >>> round(distance(Look(5, 0.74, 0.68, 0.51), Printed(0.511, 0.760, 0.695)), 3)
    0.02
    """
    return max(abs(found - printed) for found, printed in _pairs(look, paper))


def meets(look: Look, paper: Printed) -> bool:
    """Say whether a look agrees with the printed row by the rule of the tables for one seed.

    >>> printed = Printed(0.511, 0.760, 0.695)
    >>> meets(Look(5, 0.74, 0.68, 0.51), printed), meets(Look(5, 0.97, 0.71, 0.60), printed)
    (True, False)
    """
    return all(
        abs(found - printed) <= tolerance(Spread(found, accuracy_error(found, IMAGES), (found,)))
        for found, printed in _pairs(look, paper)
    )


def _pairs(look: Look, paper: Printed) -> list[tuple[float, float]]:
    names = ("train_accuracy", "test_accuracy", "auc")
    return [(getattr(look, name), printed) for name in names if (printed := getattr(paper, name)) is not None]


def readings(preset: Preset, library: Library) -> Measured:
    """Train and watch every reading that is not trained yet, one after the other; measure those that are.

    One that another process trains is left to it, so that the same command may run several times side by side.
    """
    found: list[Watched] = []
    seconds = 0.0
    for cell in READINGS:
        config = library.bound(target_config(cell, preset.scale(cell.data, "choice"), seed=0))
        folder = library.place(config) / config.digest
        if library.may_train:
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
    verdict = NOT_COMPARED if preset.name == "quick" else _verdict(found)
    return Measured(Computed(ID, "computed", (made,), verdict, numbers))


def _end(run: Run, preset: Preset) -> End:
    audit = kept_audit(run) or measure_audit(run, replace(preset, shadows=0))
    return End(run.result.train_accuracy, run.result.test_accuracy, measure_answers(run), audit)


def watched(result: Computed) -> tuple[Watched, ...]:
    """Read the trajectories of a result."""
    return TypeAdapter(tuple[Watched, ...]).validate_python(result.numbers["watched"])


def _verdict(found: Sequence[Watched]) -> str:
    """Count the readings of CIFAR10 with noise that end at the printed row, that pass it, and that do neither."""
    noisy = [one for one in found if one.data == "cifar10" and one.noisy]
    ended = [one for one in noisy if one.finished]
    ending = [one for one in ended if meets(one.looks[-1], one.paper)]
    passing = [one for one in ended if one not in ending and any(meets(look, one.paper) for look in one.looks)]
    return (
        f"of {len(ended)} finished readings of CIFAR10 with noise, {len(ending)} end at the printed row and "
        f"{len(passing)} pass it; {len(READINGS) - len([one for one in found if one.finished])} of all "
        f"{len(READINGS)} trainings are not finished"
    )


def table(found: Sequence[Watched]) -> str:
    """Write where each reading ends, and where it comes nearest to its printed row, as a table of Markdown."""
    lines = [
        "| data | reading | meets the row | train / test / AUC | 16 draws | strongest attack | nearest, epoch |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in found:
        last, near = one.looks[-1], one.nearest
        meeting = "yes" if meets(last, one.paper) else "no"
        cells = (
            DATA_TITLES[one.data],
            one.name,
            meeting if one.finished else f"at epoch {last.epoch} of {one.epochs}",
            _numbers(last),
            "–" if one.end is None else f"{one.end.answers.averaged_test_accuracy:.3f}",
            "–" if one.end is None else f"{one.end.audit.auc:.3f} ({one.end.audit.strongest})",
            f"{_numbers(near)}, {near.epoch}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _numbers(look: Look) -> str:
    return f"{look.train_accuracy:.3f} / {look.test_accuracy:.3f} / {look.auc:.3f}"
