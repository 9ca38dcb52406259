"""Several guarantees on the same records: trainings one after another, and the best of a search."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from resperturb.checks import between_0_and_1, not_negative
from resperturb.errors import UsageError
from resperturb.privacy.accounting import Ledger, Selected, account
from resperturb.privacy.guarantee import COMPARED, SAME_LABEL, Assumption, Guarantee


@dataclass(frozen=True, kw_only=True)
class ComposedGuarantee(Guarantee):
    """The guarantee of several releases together. ``method`` is the accounting that gave ``epsilon``."""

    method: str
    parts: tuple[Guarantee, ...]

    def _details(self) -> dict[str, Any]:
        """Return the method and the parts."""
        return {"method": self.method, "parts": [part.to_dict() for part in self.parts]}

    def _notes(self) -> list[tuple[str, str]]:
        """Name the parts."""
        return [("counts", part.setting) for part in self.parts]


def compose(guarantees: Sequence[Guarantee], *, delta: float) -> ComposedGuarantee:
    """Return one guarantee for everything that was released about the same records.

    Args:
        guarantees: Of each release. Those for different neighbouring relations are counted for the swap of one
            record, to which the others convert; the result says so.
        delta: At which the whole is stated.

    Returns:
        The guarantee of all of them together.

    Raises:
        UsageError: There are none, or one was read from a file and cannot be composed.

    >>> from resperturb.privacy.additive import additive_guarantee
    >>> from resperturb.privacy.length import training_length
    >>> once = additive_guarantee(gamma=800, radius=30, length=training_length(epochs=100), delta=1e-5)
    >>> round(once.epsilon, 2), round(compose([once, once], delta=1e-5).epsilon, 2)
    (7.05, 10.75)
    """
    between_0_and_1("delta", delta)
    if not guarantees:
        raise UsageError("there is nothing to compose: give at least one guarantee.")
    ledger = reduce(Ledger.plus, map(_ledger, guarantees))
    found = account(ledger, delta)
    notes: tuple[Assumption, ...] = ()
    converted = sorted({guarantee.mechanism for guarantee in guarantees if guarantee.neighbours == "add_remove"})
    if ledger.neighbours == "swap" and converted:
        notes = (
            Assumption(
                "enforced",
                f"Counted for the swap of one record, which costs about twice its addition: {', '.join(converted)} "
                f"was converted to it.",
            ),
        )
    return ComposedGuarantee(
        mechanism="composition",
        setting=f"{len(guarantees)} releases of the same records together.",
        epsilon=found.epsilon,
        delta=delta,
        max_tpr=found.max_tpr,
        protects=_common_protection(guarantees),
        assumptions=notes + _distinct(guarantees),
        ledger=ledger,
        neighbours=ledger.neighbours,
        compares=_compared(ledger, guarantees),
        records=_most_records(guarantees),
        method=min(found.epsilons, key=lambda name: found.epsilons[name]),
        parts=tuple(guarantees),
    )


def select_best(guarantee: Guarantee, *, mean_runs: float, delta: float, shape: float = 1.0) -> ComposedGuarantee:
    """Return the guarantee of publishing only the best of a random number of runs: a hyper-parameter search.

    The number of runs must be drawn from a truncated negative binomial distribution, as in Papernot and Steinke
    (2022). The best of a *fixed* number of runs costs what ``compose`` says of all of them.

    Args:
        guarantee: Of one run.
        mean_runs: The mean of that distribution.
        delta: At which the whole is stated.
        shape: Of that distribution; 1: geometric, 0: logarithmic, infinite: Poisson.

    Returns:
        The guarantee of the run that is published.

    Raises:
        UsageError: A number is out of range, or the guarantee was read from a file.

    >>> from resperturb.privacy.additive import additive_guarantee
    >>> from resperturb.privacy.length import training_length
    >>> once = additive_guarantee(gamma=1600, radius=30, length=training_length(epochs=100), delta=1e-5)
    >>> best = select_best(once, mean_runs=10, delta=1e-5)
    >>> round(once.epsilon, 1), round(best.epsilon, 1)
    (3.1, 6.4)
    """
    between_0_and_1("delta", delta)
    if not mean_runs >= 1 or math.isinf(mean_runs):
        raise UsageError(f"the mean number of runs must be at least 1, not {mean_runs:g}.")
    if not math.isinf(shape):
        not_negative("shape", shape)
    ledger = Ledger(guarantee.neighbours, selected=(Selected(_ledger(guarantee), mean_runs, shape),))
    found = account(ledger, delta)
    return ComposedGuarantee(
        mechanism="selection",
        setting=f"The best of a random number of runs, {mean_runs:g} on average.",
        epsilon=found.epsilon,
        delta=delta,
        max_tpr=found.max_tpr,
        protects=guarantee.protects,
        assumptions=(
            Assumption(
                "assumed",
                "The number of runs was drawn at random from the stated distribution, and nothing about the other "
                "runs, not even how many there were, is published.",
            ),
            Assumption("assumed", "The score that chose the best run was computed on data that are not private."),
            *guarantee.assumptions,
        ),
        ledger=ledger,
        neighbours=ledger.neighbours,
        compares=guarantee.compares,
        records=guarantee.records,
        method="rdp",
        parts=(guarantee,),
    )


def _common_protection(guarantees: Sequence[Guarantee]) -> str:
    distinct = list(dict.fromkeys(guarantee.protects for guarantee in guarantees))
    if len(distinct) == 1:
        return distinct[0]
    return "only what every one of them protects: " + " / ".join(distinct)


def _distinct(guarantees: Sequence[Guarantee]) -> tuple[Assumption, ...]:
    return tuple(dict.fromkeys(assumption for guarantee in guarantees for assumption in guarantee.assumptions))


def _most_records(guarantees: Sequence[Guarantee]) -> int | None:
    return max((guarantee.records for guarantee in guarantees if guarantee.records is not None), default=None)


def _compared(ledger: Ledger, guarantees: Sequence[Guarantee]) -> str:
    """Which data sets all parts tell apart: those of the part that promises least."""
    return SAME_LABEL if any(part.compares == SAME_LABEL for part in guarantees) else COMPARED[ledger.neighbours]


def _ledger(guarantee: Guarantee) -> Ledger:
    if guarantee.ledger is None:
        raise UsageError("a guarantee that was read from a file cannot be composed; compute it again.")
    return guarantee.ledger
