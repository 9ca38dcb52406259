"""Query a fitted model about all rows, and check that its answers belong to them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from resperturb.attacks.evidence import Answers
from resperturb.attacks.signals import LEAST_PROBABILITY, Access, Query, Signals, signals_of
from resperturb.auditing.trainee import Fitted
from resperturb.bounds.arrays import Floats, Ints
from resperturb.errors import UsageError

# Rows that are queried a second time, backwards, and what that may change in a probability.
REPEATED, ORDER_TOLERANCE = 16, 0.01
# What single precision and a thousand classes may leave of a sum of 1.
SUM_TOLERANCE = 1e-3
# What to do with a model of two classes that gives one number per row.
SIGMOID = "return a probability for each class: of a sigmoid p that is numpy.stack([1 - p, p], axis=1)."

SHUFFLED = (
    "the answers are not in the order of the rows that were queried. Does a loader shuffle? It must give the inputs "
    "in the order of the row numbers (shuffle=False)."
)


def ask(fitted: Fitted, rows: Ints, labels: Ints, draws: tuple[int, ...]) -> Answers:
    """Query a model about rows in every way that attacks use; logits are averaged over ``draws`` draws.

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
    # The standard error of a mean over draws of the noise.
    spread = float(before.std(axis=0).max(axis=1).mean()) / np.sqrt(len(before)) if len(before) > 1 else 0.0
    if own > ORDER_TOLERANCE and own > 0.6 * others and others > 3 * spread + ORDER_TOLERANCE:
        raise UsageError(SHUFFLED)


@dataclass(frozen=True, eq=False)
class FittedFunction:
    """A function of row numbers to probabilities ``[rows, classes]``."""

    predict: Callable[[Ints], Any]
    classes: int
    stage: str = ""
    digest: str = ""

    def queries(self, some: Ints, draws: tuple[int, ...]) -> tuple[Query, ...]:
        """Query once, or many times if the answers differ from one time to the next."""
        return (Query("served", (1,) if repeats(lambda: self._probabilities(some)) else draws),)

    def outputs(self, rows: Ints, query: Query) -> Iterator[Floats]:
        """Yield log-probabilities of every draw."""
        for _ in range(query.draws):
            yield np.log(np.maximum(self._probabilities(rows), LEAST_PROBABILITY))

    def _probabilities(self, rows: Ints) -> Floats:
        answer = self.predict(rows.copy())
        if hasattr(answer, "detach"):  # a tensor
            answer = answer.detach().cpu().numpy()
        if isinstance(answer, np.ma.MaskedArray) and np.ma.getmaskarray(answer).any():
            raise UsageError("predict returned a masked array with masked values; every row needs an answer.")
        try:
            found = np.array(answer, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"predict must return an array of probabilities, not {type(answer).__name__}."
            ) from error
        return check_probabilities(found, len(rows), self.classes)


def repeats(answer: Callable[[], Any]) -> bool:
    """Whether the same query has the same answer each time.

    Raises:
        UsageError: The second answer is the first in another order.
    """
    first, second = answer(), answer()
    if np.array_equal(first, second):
        return True

    def close(one: Any, other: Any) -> bool:  # another batch changes the rounding
        return bool(np.allclose(one, other, rtol=1e-4, atol=1e-5))

    if not close(first, second) and close(np.sort(first, axis=0), np.sort(second, axis=0)):
        raise UsageError(SHUFFLED)
    return False


def check_probabilities(found: Floats, rows: int, classes: int) -> Floats:
    """Return ``found`` if it is one row of class probabilities per record, or say what it is instead.

    >>> check_probabilities(np.array([[2.5, -1.0]]), rows=1, classes=2)
    Traceback (most recent call last):
    ...
    resperturb.errors.UsageError: predict returned numbers outside of 0 to 1, which look like logits: apply a...
    """
    check_answers("predict", found, rows, classes, SIGMOID)
    if (found < -SUM_TOLERANCE).any() or (found > 1 + SUM_TOLERANCE).any():
        raise UsageError(
            "predict returned numbers outside of 0 to 1, which look like logits: apply a softmax before returning "
            "them, or return the module itself with a loader."
        )
    sums = found.sum(axis=1)
    if (np.abs(sums - 1) > SUM_TOLERANCE).any():
        worst = float(sums[np.argmax(np.abs(sums - 1))])
        raise UsageError(f"predict must return rows that sum to 1; one sums to {worst:.4g}. Are they normalised?")
    return np.clip(found, 0.0, 1.0)


def check_answers(who: str, found: Floats, rows: int, classes: int, sigmoid: str) -> None:
    """Refuse answers that are not one row of numbers per record with a column per class."""
    shape = found.shape
    if len(shape) == 1 or shape == (rows, 1):
        raise UsageError(f"{who} returned one number per row; {sigmoid}")
    if len(shape) != 2 or shape[0] != rows:
        raise UsageError(f"{who} must return one row for each of the {rows} rows queried, not {shape}.")
    if shape[1] < classes:
        raise UsageError(
            f"{who} answers for {shape[1]} classes, and a label is {classes - 1}: there must be a column for each "
            f"class from 0 to {classes - 1}, also for one that is missing among the rows of a training."
        )
    if np.isnan(found).any():
        raise UsageError(f"{who} returned NaN for {int(np.isnan(found).any(axis=1).sum())} of {rows} rows.")
