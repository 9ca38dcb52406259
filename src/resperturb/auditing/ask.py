"""Querying a fitted model about all rows, and checking that it answers what was asked."""

from collections.abc import Iterator

import numpy as np

from resperturb.attacks.evidence import Answers
from resperturb.attacks.signals import Access, Query, Signals, signals_of
from resperturb.auditing.answers import SHUFFLED
from resperturb.auditing.trainee import Fitted
from resperturb.bounds.arrays import Floats, Ints
from resperturb.errors import UsageError

# Rows that are queried a second time, backwards.
REPEATED = 16
# What another order of the same rows may change in a probability.
ORDER_TOLERANCE = 0.01


def ask(fitted: Fitted, rows: Ints, labels: Ints, draws: tuple[int, ...]) -> Answers:
    """Query a model about rows in every way that attacks use.

    Args:
        fitted: The model.
        rows: Row numbers.
        labels: Label of each of them.
        draws: The numbers of draws that logits are averaged over.

    Returns:
        The signals of every query.

    Raises:
        UsageError: The model does not answer in the order of the rows.
    """
    places = np.unique(np.linspace(0, len(rows) - 1, min(REPEATED, len(rows))).astype(np.int64))
    found: dict[Access, Signals] = {}
    queries = fitted.queries(rows[places].copy(), draws)
    # Where a model can be queried without noise, its order is plain to see.
    checked = max(queries, key=lambda query: (query.access == "weights", query.access == "served")).access
    for query in queries:
        kept: list[Floats] = []

        def noted(query: Query, kept: list[Floats] = kept) -> Iterator[Floats]:
            for one in fitted.outputs(rows.copy(), query):
                kept.append(np.exp(one[places]))
                yield one

        found[query.access] = signals_of(noted(query), labels, query.averages)
        if query.access == checked:
            _check_order(fitted, rows[places], query, np.array(kept))
    return found


def _check_order(fitted: Fitted, rows: Ints, query: Query, before: Floats) -> None:
    """Query some rows again, backwards, and refuse answers that belong to other rows.

    A loader that shuffles gives every row the answer of another, and the worst leak would look like none.
    """
    again = np.exp(np.array(list(fitted.outputs(rows[::-1].copy(), query))))[:, ::-1]
    first, second = before.mean(axis=0), again.mean(axis=0)
    distances = np.abs(first[:, None] - second[None]).max(axis=2)
    own, others = np.diagonal(distances).mean(), distances.sum() - np.trace(distances)
    others /= max(1, len(rows) * (len(rows) - 1))
    # What draws of the noise do to a mean of so many of them.
    spread = float(before.std(axis=0).max(axis=1).mean()) / np.sqrt(len(before)) if len(before) > 1 else 0.0
    if own > ORDER_TOLERANCE and own > 0.6 * others and others > 3 * spread + ORDER_TOLERANCE:
        raise UsageError(SHUFFLED)
