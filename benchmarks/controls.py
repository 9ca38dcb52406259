"""Controls: ordinary regularisation, as strong as it must be for the same test accuracy.

Noise in a network also regularises it, and anything that regularises leaks less. Whether residual perturbation is
worth its name shows only beside a network that is as accurate and was held back by ordinary means.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from resperturb.errors import UsageError
from resperturb.models import parse_name
from resperturb.training import Run, TrainConfig, method_of


@dataclass(frozen=True)
class Control:
    """A way to hold a network back: strengths from weak to strong, and what each changes in a configuration."""

    name: str
    strengths: tuple[float, ...]
    change: Callable[[TrainConfig, float], dict[str, Any]]

    def configs(self, target: TrainConfig) -> list[TrainConfig]:
        """The noiseless network that ``target`` would be, held back by every strength."""
        plain = {"perturbation": None, "method": method_of("sgd")}
        return [target.model_copy(update={**plain, **self.change(target, strength)}) for strength in self.strengths]


def _stop_early(target: TrainConfig, share: float) -> dict[str, Any]:
    """Train for fewer epochs, and lower the learning rate in time.

    Cut off before it is lowered, a network is good in one epoch and bad in the next, and so are its shadows.
    """
    return {"epochs": max(1, round(share * target.epochs))}


def _ensemble(target: TrainConfig, networks: float) -> dict[str, Any]:
    return {"model": str(parse_name(target.model).ensemble_of(int(networks)))}


CONTROLS: tuple[Control, ...] = (
    Control("early stopping", (0.8, 0.6, 0.4, 0.2), _stop_early),
    Control("weight decay", (1e-3, 5e-3, 2e-2), lambda target, value: {"weight_decay": value}),
    Control("dropout", (0.2, 0.5, 0.8), lambda target, value: {"dropout": value}),
    Control("label smoothing", (0.1, 0.3, 0.6), lambda target, value: {"label_smoothing": value}),
    Control("noiseless ensemble", (2, 3), _ensemble),
)


def at_equal_accuracy(runs: Sequence[Run], accuracy: float) -> Run:
    """Choose the run whose test accuracy comes nearest; of equals, the first."""
    if not runs:
        raise UsageError("there is no run to choose from.")
    return min(runs, key=lambda run: abs(run.result.test_accuracy - accuracy))
