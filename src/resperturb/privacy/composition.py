"""Several budgets on the same records: trainings one after another, and the best of a search."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from resperturb.errors import UsageError
from resperturb.privacy._checks import between_0_and_1, not_negative
from resperturb.privacy.accounting import Ledger, Selected, account
from resperturb.privacy.budget import SAME_LABEL, Assumption, Budget


@dataclass(frozen=True, kw_only=True)
class ComposedBudget(Budget):
    """The budget of several releases together. ``method`` is the accounting that gave ``epsilon``."""

    method: str
    parts: tuple[Budget, ...]

    @property
    def compares(self) -> str:
        """Which data sets all parts tell apart: those of the part that promises least."""
        return SAME_LABEL if any(part.compares == SAME_LABEL for part in self.parts) else super().compares

    def numbers(self) -> dict[str, Any]:
        """Return the method and the parts."""
        return {"method": self.method, "parts": [part.to_dict() for part in self.parts]}

    def facts(self) -> list[tuple[str, str]]:
        """Name the parts."""
        return [("counts", part.setting) for part in self.parts]


def compose(budgets: Sequence[Budget], *, delta: float) -> ComposedBudget:
    """Return one budget for everything that was released about the same records.

    Budgets for different neighbouring relations are counted for the swap of one record, to which the others
    convert; the result says so.

    >>> from resperturb.privacy.additive import additive_budget
    >>> from resperturb.privacy.schedule import schedule
    >>> once = additive_budget(gamma=800, radius=30, schedule=schedule(epochs=100), delta=1e-5)
    >>> round(once.epsilon, 2), round(compose([once, once], delta=1e-5).epsilon, 2)
    (7.05, 10.75)
    """
    between_0_and_1("delta", delta)
    if not budgets:
        raise UsageError("there is nothing to compose: give at least one budget.")
    ledger = reduce(Ledger.plus, (budget.ledger for budget in budgets))
    found = account(ledger, delta)
    notes: tuple[Assumption, ...] = ()
    converted = sorted({budget.mechanism for budget in budgets if budget.neighbours == "add_remove"})
    if ledger.neighbours == "swap" and converted:
        notes = (
            Assumption(
                "enforced",
                f"Counted for the swap of one record, which costs about twice its addition: {', '.join(converted)} "
                f"was converted to it.",
            ),
        )
    return ComposedBudget(
        mechanism="composition",
        setting=f"{len(budgets)} releases of the same records together.",
        epsilon=found.epsilon,
        delta=delta,
        max_tpr=found.max_tpr,
        protects=_common_protection(budgets),
        assumptions=notes + _distinct(budgets),
        ledger=ledger,
        records=_most_records(budgets),
        method=min(found.epsilons, key=lambda name: found.epsilons[name]),
        parts=tuple(budgets),
    )


def select_best(budget: Budget, *, mean_runs: float, delta: float, shape: float = 1.0) -> ComposedBudget:
    """Return the budget of publishing only the best of a random number of runs: a hyper-parameter search.

    The number of runs must be drawn from a truncated negative binomial distribution with mean ``mean_runs``
    (``shape`` 1: geometric, 0: logarithmic, infinite: Poisson), as in Papernot and Steinke (2022). The best of a
    *fixed* number of runs costs what ``compose`` says of all of them.

    >>> from resperturb.privacy.additive import additive_budget
    >>> from resperturb.privacy.schedule import schedule
    >>> once = additive_budget(gamma=1600, radius=30, schedule=schedule(epochs=100), delta=1e-5)
    >>> best = select_best(once, mean_runs=10, delta=1e-5)
    >>> round(once.epsilon, 1), round(best.epsilon, 1)
    (3.1, 6.4)
    """
    between_0_and_1("delta", delta)
    if not mean_runs >= 1 or math.isinf(mean_runs):
        raise UsageError(f"the mean number of runs must be at least 1, not {mean_runs:g}.")
    if not math.isinf(shape):
        not_negative("shape", shape)
    ledger = Ledger(budget.neighbours, selected=(Selected(budget.ledger, mean_runs, shape),))
    found = account(ledger, delta)
    return ComposedBudget(
        mechanism="selection",
        setting=f"The best of a random number of runs, {mean_runs:g} on average.",
        epsilon=found.epsilon,
        delta=delta,
        max_tpr=found.max_tpr,
        protects=budget.protects,
        assumptions=(
            Assumption(
                "assumed",
                "The number of runs was drawn at random from the stated distribution, and nothing about the other "
                "runs, not even how many there were, is published.",
            ),
            Assumption("assumed", "The score that chose the best run was computed on data that are not private."),
            *budget.assumptions,
        ),
        ledger=ledger,
        records=budget.records,
        method="rdp",
        parts=(budget,),
    )


def _common_protection(budgets: Sequence[Budget]) -> str:
    distinct = list(dict.fromkeys(budget.protects for budget in budgets))
    if len(distinct) == 1:
        return distinct[0]
    return "only what every one of them protects: " + " / ".join(distinct)


def _distinct(budgets: Sequence[Budget]) -> tuple[Assumption, ...]:
    return tuple(dict.fromkeys(assumption for budget in budgets for assumption in budget.assumptions))


def _most_records(budgets: Sequence[Budget]) -> int | None:
    return max((budget.records for budget in budgets if budget.records is not None), default=None)
