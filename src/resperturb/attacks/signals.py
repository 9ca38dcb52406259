"""The signals of a model's outputs that attacks use, for every draw of its noise.

The signal of a draw is the *logit-scaled confidence* in the record's label, ``log p/(1 - p)``, which Carlini et al.
(2022) found to be nearly normal over models; the log-probability and the probability follow from it. A
:class:`View` combines draws later, so that a model is queried once and attacked in many ways.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_softmax, logsumexp

from resperturb.bounds.arrays import Array, Bools, Floats, Ints, Singles
from resperturb.errors import ResperturbError, UsageError

Access = Literal["served", "weights", "networks", "augmented"]
Combination = Literal["mean logit", "mean log-probability", "spread", "votes", "each"]

_AVERAGED = ("mean_confidence", "top", "entropy", "modified_entropy")
# Smaller probabilities are no different to an attacker, and their logarithms would be infinite.
LEAST_PROBABILITY = 1e-30
_BLOCK = 4096


@dataclass(frozen=True)
class Query:
    """One way to query a model, ``max(averages)`` times.

    - ``served``: as the model answers its users, with its noise and any other defence at prediction time;
    - ``weights``: as someone with the weights can, without either; left out where it equals ``served``;
    - ``networks``: each network of an ensemble by itself, without noise; its draws are the networks;
    - ``augmented``: several augmentations of each record, without noise; its draws are the augmentations.

    ``averages`` are the numbers of draws that logits are averaged over.
    """

    access: Access
    averages: tuple[int, ...] = (1,)

    @property
    def draws(self) -> int:
        """The number of times that each record is queried."""
        return max(self.averages)


def queries_for(noisy: bool, draws: Sequence[int], networks: int = 1, augmented: int = 0) -> tuple[Query, ...]:
    """List the queries of a model, ``served`` first; where it is ``noisy``, those with the weights answer otherwise.

    >>> [query.access for query in queries_for(True, (1, 16), networks=5)]
    ['served', 'weights', 'networks']
    """
    found = [Query("served", tuple(sorted(set(draws)))), Query("weights")] if noisy else [Query("served")]
    if networks > 1:
        found.append(Query("networks", (networks,)))
    if augmented:
        found.append(Query("augmented", (augmented,)))
    return tuple(found)


@dataclass(frozen=True)
class View:
    """The draws that an attack uses, and how it combines them into one statistic per record.

    - ``mean logit``: the logits are averaged, then the label's confidence is taken;
    - ``mean log-probability``: the label's log-probabilities are averaged;
    - ``spread``: two numbers, the mean of the confidences and the logarithm of their variance;
    - ``votes``: only the predicted labels are seen; the (smoothed) log-odds of the votes for the right one;
    - ``each``: as many numbers as draws, the confidence of each.

    >>> str(View("served", 16, "spread")), str(View("served", 1))
    ('served, 16 draws, spread', 'served')
    """

    access: Access
    draws: int
    combination: Combination = "mean logit"

    @property
    def dimensions(self) -> int:
        """How many numbers the statistic has."""
        return {"spread": 2, "each": self.draws}.get(self.combination, 1)

    def __str__(self) -> str:
        draws = f", {self.draws} draws" if self.access == "served" and self.draws > 1 else ""
        combination = f", {self.combination}" if self.draws > 1 or self.combination == "votes" else ""
        return f"{self.access}{draws}{combination}"


@dataclass(frozen=True, eq=False)
class Signals:
    """The signals of one model about ``R`` rows, of ``D`` draws and ``A`` averages.

    Attributes:
        averages: The numbers of first draws whose logits are averaged, ``[A]``.
        labels: The labels that confidence is about, ``[R]``.
        confidence: The logit-scaled confidence in the label, ``[R, D]``.
        correct: Whether the label is predicted, ``[R, D]``.
        mean_confidence: The confidence of the averaged logits, ``[R, A]``.
        top: The three largest log-probabilities of the averaged logits, sorted, ``[R, A, 3]``; with two classes the
            third is minus infinity.
        entropy: The entropy of the averaged logits, ``[R, A]``.
        modified_entropy: The modified entropy of Song and Mittal (2021), ``[R, A]``.
    """

    averages: tuple[int, ...]
    labels: Ints
    confidence: Singles
    correct: Bools
    mean_confidence: Singles
    top: Singles
    entropy: Singles
    modified_entropy: Singles

    def average(self, name: str, draws: int) -> Floats:
        """Return one of the averaged signals over ``draws`` draws."""
        if draws not in self.averages:
            raise UsageError(f"the logits were averaged over {self.averages} draws, not over {draws}.")
        column: Floats = getattr(self, name)[:, self.averages.index(draws)].astype(np.float64)
        return column

    def statistic(self, view: View) -> Floats:
        """Combine draws into ``[rows, dimensions]``."""
        if view.combination == "mean logit":
            return self.average("mean_confidence", view.draws)[:, None]
        draws = self.confidence[:, : view.draws].astype(np.float64)
        if draws.shape[1] < view.draws:
            raise UsageError(f"the model was queried {draws.shape[1]} times, not {view.draws}.")
        if view.combination == "each":
            return draws
        if view.combination == "mean log-probability":
            mean: Floats = log_sigmoid(draws).mean(axis=1)
            return logit_of_log(mean)[:, None]
        if view.combination == "votes":
            votes = self.correct[:, : view.draws].sum(axis=1)
            odds: Floats = np.log((votes + 0.5) / (view.draws - votes + 0.5))
            return odds[:, None]
        if view.draws < 2:
            raise UsageError("the spread of draws needs at least two of them.")
        # A spread of nothing at all (a model without noise) is as good as a tiny one.
        return np.stack([draws.mean(axis=1), np.log(draws.var(axis=1, ddof=1) + 1e-12)], axis=1)


def signals_from(arrays: Mapping[str, Array], rows: int) -> Signals:
    """Check kept arrays of signals, and return the signals.

    Raises:
        ResperturbError: They are not the signals of ``rows`` rows.

    >>> kept = vars(signals_of([np.zeros((3, 2))], np.array([0, 1, 1])))
    >>> signals_from({**kept, "averages": np.array([1])}, rows=3).averages
    (1,)
    """
    if arrays.keys() != Signals.__annotations__.keys() or not arrays["averages"].size:
        raise ResperturbError(f"it holds {', '.join(arrays) or 'nothing'}")
    averages, draws = arrays["averages"], arrays["confidence"].shape[1:]
    each, mean = (rows, *draws), (rows, averages.size)
    shapes = {"averages": mean[1:], "labels": (rows,), "confidence": each, "correct": each, "top": (*mean, 3)}
    kinds = {"averages": "i", "labels": "i", "correct": "b"}
    for name, array in arrays.items():
        if array.shape != shapes.get(name, mean) or array.dtype.kind != kinds.get(name, "f") or np.isnan(array).any():
            raise ResperturbError(f"its {name} are not a model's answers about {rows} rows")
    if len(draws) != 1 or averages.min() < 1 or averages.max() > draws[0]:
        raise ResperturbError(f"its averages are not over some of {draws} draws")
    others = {name: array for name, array in arrays.items() if name != "averages"}
    return Signals(averages=tuple(averages.tolist()), **others)


def log_sigmoid(values: Floats) -> Floats:
    """Turn logit-scaled confidences into log-probabilities.

    >>> log_sigmoid(np.array([0.0, -800.0])).round(4).tolist()
    [-0.6931, -800.0]
    """
    result: Floats = -np.logaddexp(0.0, -values)
    return result


def logit_of_log(values: Floats) -> Floats:
    """Turn log-probabilities into logits.

    >>> logit_of_log(np.log([0.5])).tolist()
    [0.0]
    """
    return values - np.log(np.maximum(-np.expm1(values), LEAST_PROBABILITY))


def signals_of(draws: Iterable[ArrayLike], labels: Ints, averages: Sequence[int] = (1,)) -> Signals:
    """Compute the signals of a model from its logits ``[rows, classes]`` of every draw; log-probabilities do as well.

    There is one array per draw; logits are averaged over the numbers of draws in ``averages``.

    Raises:
        ResperturbError: The outputs are not finite.
        UsageError: There are fewer draws than the largest average needs.

    >>> one = signals_of([[[0.0, 0.0], [0.0, 9.0]]], np.array([0, 1]))
    >>> one.confidence[:, 0].tolist()
    [0.0, 9.0]
    """
    wanted = tuple(sorted(set(averages)))
    confidence, correct = [], []
    averaged: dict[str, list[Singles]] = {name: [] for name in _AVERAGED}
    total: Floats = np.zeros(0)
    for number, outputs in enumerate(draws, start=1):
        logits = np.asarray(outputs, dtype=np.float64)
        if not np.isfinite(logits).all():
            raise ResperturbError("the model's outputs are not finite, so there is nothing to attack.")
        confidence.append(label_confidence(logits, labels).astype(np.float32))
        correct.append(logits.argmax(axis=1) == labels)
        total = logits if number == 1 else total + logits
        if number in wanted:
            for name, values in _averaged(total / number, labels).items():
                averaged[name].append(values)
    if len(averaged["entropy"]) != len(wanted):
        raise UsageError(f"averages over {wanted} draws were requested, and there were {len(confidence)} draws.")
    return Signals(
        wanted,
        labels.astype(np.int64),
        np.stack(confidence, axis=1),
        np.stack(correct, axis=1),
        **{name: np.stack(columns, axis=1) for name, columns in averaged.items()},
    )


def label_confidence(logits: Floats, labels: Ints) -> Floats:
    """Compute ``log p/(1 - p)`` of the label without the rounding of ``1 - p``.

    >>> np.exp(label_confidence(np.ones((1, 3)), np.array([2]))).round(6).tolist()
    [0.5]
    """
    found = np.empty(len(logits))
    for rows in _blocks(len(logits)):
        own = labels[rows, None]
        others = logits[rows].copy()
        np.put_along_axis(others, own, -np.inf, axis=1)
        found[rows] = np.take_along_axis(logits[rows], own, axis=1)[:, 0] - logsumexp(others, axis=1)
    return found


def _averaged(logits: Floats, labels: Ints) -> dict[str, Singles]:
    """Compute the averaged signals of one number of draws."""
    count = len(logits)
    found = {name: np.empty((count, 3) if name == "top" else count, dtype=np.float32) for name in _AVERAGED}
    found["mean_confidence"][:] = label_confidence(logits, labels)
    for rows in _blocks(count):
        log_p = log_softmax(logits[rows], axis=1)
        p = np.exp(log_p)
        log_rest = np.log(np.maximum(1 - p, LEAST_PROBABILITY))
        own = labels[rows, None]
        # Song and Mittal's modified entropy: small for a confident right answer, large for a confident wrong one.
        others = p * log_rest
        np.put_along_axis(others, own, 0.0, axis=1)
        kept = np.take_along_axis((1 - p) * log_p, own, axis=1)[:, 0]
        found["modified_entropy"][rows] = -kept - others.sum(axis=1)
        found["entropy"][rows] = -(p * log_p).sum(axis=1)
        best = -np.sort(-log_p, axis=1)[:, :3]
        found["top"][rows, : best.shape[1]] = best
        found["top"][rows, best.shape[1] :] = -np.inf
    return found


def _blocks(rows: int) -> Iterator[slice]:
    """Cut the rows into blocks, so that what is computed on the way stays small."""
    return (slice(first, first + _BLOCK) for first in range(0, rows, _BLOCK))
