"""Lower bounds by name: each is one file with its proof and its registration, in this package or in another."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from resperturb.bounds.result import LowerBound
from resperturb.bounds.scores import CanaryScores
from resperturb.registry import Registry

# What makes the scores evidence: a fair coin for each canary of one training, or scores independent of each other.
BoundDesign = Literal["coins", "independent"]
Compute = Callable[[CanaryScores, float, float], LowerBound]


@dataclass(frozen=True)
class Bound:
    """A published lower bound: its authors, the design that it holds for, and its value at a delta and confidence."""

    reference: str
    design: BoundDesign
    compute: Compute

    def __post_init__(self) -> None:
        # The registry tells two bounds of one name apart by where they come from.
        for name in ("__module__", "__qualname__"):
            object.__setattr__(self, name, getattr(self.compute, name))


BOUNDS = Registry[Bound]("lower bound", group="resperturb.bounds", package="resperturb.bounds")


def register_bound(name: str, reference: str, *, design: BoundDesign) -> Callable[[Compute], Compute]:
    """Return a decorator that registers a function ``f(scores, delta, confidence) -> LowerBound``.

    Args:
        name: What it is called in results.
        reference: Who published it.
        design: ``"coins"`` if it holds where one model was trained and each canary was put in by its own fair coin;
            ``"independent"`` if it holds where the scores are independent of each other.

    Raises:
        UsageError: If another bound has this name.

    >>> BOUNDS["one_run"].design, BOUNDS["gdp"].design
    ('coins', 'independent')
    """

    def add(compute: Compute) -> Compute:
        BOUNDS.register(name)(Bound(reference, design, compute))
        return compute

    return add
