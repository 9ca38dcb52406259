"""Compose the guarantees of several releases of the same records."""

from collections.abc import Sequence
from functools import reduce

from resperturb.checks import between_0_and_1
from resperturb.errors import UsageError
from resperturb.privacy.accounting import Ledger
from resperturb.privacy.guarantee import COMPARED, SAME_LABEL, Assumption, Guarantee, counted


def compose(guarantees: Sequence[Guarantee], *, delta: float) -> Guarantee:
    """Return one guarantee for everything that was released about the same records.

    Guarantees for different neighbouring relations are counted for the swap of one record, to which the others
    convert; the result says so.

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
    if any(part.ledger is None for part in guarantees):
        raise UsageError("a guarantee that was read from a file cannot be composed; compute it again.")
    ledger = reduce(Ledger.plus, (part.ledger for part in guarantees if part.ledger is not None))
    found, unmet = counted(ledger, delta)
    notes: tuple[Assumption, ...] = ()
    converted = sorted({part.mechanism for part in guarantees if part.neighbours == "add_remove"})
    if ledger.neighbours == "swap" and converted:
        statement = (
            f"Counted for the swap of one record, which costs about twice its addition: {', '.join(converted)} was "
            "converted to it."
        )
        notes = (Assumption("enforced", statement),)
    distinct = dict.fromkeys(assumption for part in guarantees for assumption in part.assumptions)
    protected = list(dict.fromkeys(part.protects for part in guarantees))
    alone = protected[0] if len(protected) == 1 else f"only what every one of them protects: {' / '.join(protected)}"
    narrow = any(part.compares == SAME_LABEL for part in guarantees)
    return Guarantee(
        mechanism="composition",
        setting=f"{len(guarantees)} releases of the same records together.",
        epsilon=found.epsilon,
        delta=delta,
        max_tpr=found.max_tpr,
        protects=alone,
        assumptions=(*notes, *distinct, *unmet),
        ledger=ledger,
        neighbours=ledger.neighbours,
        compares=SAME_LABEL if narrow else COMPARED[ledger.neighbours],
        records=max((part.records for part in guarantees if part.records is not None), default=None),
        details={
            "method": min(found.epsilons, key=lambda name: found.epsilons[name]),
            "parts": [part.to_dict() for part in guarantees],
        },
        notes=tuple(("counts", part.setting) for part in guarantees),
    )
