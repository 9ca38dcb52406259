"""Compose the guarantees of several releases of the same records."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from resperturb.checks import between_0_and_1
from resperturb.errors import UsageError
from resperturb.privacy.accounting import Ledger, account
from resperturb.privacy.guarantee import COMPARED, SAME_LABEL, Assumption, Guarantee, counted


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
        guarantees: Guarantees of the releases. Those for different neighbouring relations are counted for the swap of
            one record, to which the others convert; the result says so.
        delta: Delta of the whole.

    Returns:
        The guarantee of all of them together.

    Raises:
        UsageError: There are none, or one was read from a file and cannot be composed.

    >>> from resperturb.privacy.additive import additive_guarantee
    >>> from resperturb.privacy.length import training_length
    >>> once = additive_guarantee(input_std=400, radius=30, length=training_length(epochs=100), delta=1e-5)
    >>> round(once.epsilon, 2), round(compose([once, once], delta=1e-5).epsilon, 2)
    (7.05, 10.75)
    """
    between_0_and_1("delta", delta)
    if not guarantees:
        raise UsageError("there is nothing to compose: give at least one guarantee.")
    ledger = reduce(Ledger.plus, map(_ledger, guarantees))
    left, unmet = counted(ledger, delta)
    found = account(ledger, left)
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
        assumptions=(*notes, *_distinct(guarantees), *unmet),
        ledger=ledger,
        neighbours=ledger.neighbours,
        compares=_compared(ledger, guarantees),
        records=_most_records(guarantees),
        method=min(found.epsilons, key=lambda name: found.epsilons[name]),
        parts=tuple(guarantees),
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
