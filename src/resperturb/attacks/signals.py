"""What a model says about records, boiled down to what attacks use, for every draw of its noise.

The signal of a draw is the *logit-scaled confidence* in the record's label, ``log p/(1 - p)``, which Carlini et al.
(2022) found to be nearly normal over models; the log-probability and the probability follow from it. Draws are
combined later, by :class:`View`, so that a model is asked once and attacked in many ways.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from resperturb.errors import ResperturbError, UsageError

Floats = NDArray[np.float64]
Access = Literal["noise on", "noise off", "networks apart", "augmented"]
Combination = Literal["mean logit", "mean log-probability", "spread", "votes", "each"]

# Smaller probabilities are no different to an attacker, and their logarithms would be infinite.
_LEAST_PROBABILITY = 1e-30


@dataclass(frozen=True)
class Query:
    """How a model is asked: as it is served, with its noise; or by someone who holds the weights, without.

    ``networks apart`` asks each network of an ensemble by itself, without noise; its draws are the networks.
    ``augmented`` asks about several augmentations of each record, without noise; its draws are the augmentations.
    ``averages`` are the numbers of draws that logits are averaged over.
    """

    access: Access
    averages: tuple[int, ...] = (1,)

    @property
    def draws(self) -> int:
        """How often each record is asked about."""
        return max(self.averages)


def queries_for(noisy: bool, draws: Sequence[int], networks: int = 1, augmented: int = 0) -> tuple[Query, ...]:
    """Say how a model is asked: with its noise and without, its networks apart, and about augmented images.

    >>> [query.access for query in queries_for(True, (1, 16), networks=5)]
    ['noise on', 'noise off', 'networks apart']
    """
    found = [Query("noise on", tuple(sorted(set(draws))))] if noisy else []
    found.append(Query("noise off"))
    if networks > 1:
        found.append(Query("networks apart", (networks,)))
    if augmented:
        found.append(Query("augmented", (augmented,)))
    return tuple(found)


@dataclass(frozen=True)
class View:
    """Which draws an attack looks at, and how it combines them into one statistic per record.

    - ``mean logit``: the logits are averaged, then the label's confidence is taken;
    - ``mean log-probability``: the label's log-probabilities are averaged;
    - ``spread``: two numbers, the mean of the confidences and the logarithm of their variance;
    - ``votes``: only the predicted labels are seen; the (smoothed) log-odds of the votes for the right one;
    - ``each``: as many numbers as draws, the confidence of each.

    >>> str(View("noise on", 16, "spread"))
    'noise on, 16 draws, spread'
    """

    access: Access
    draws: int
    combination: Combination = "mean logit"

    @property
    def dimensions(self) -> int:
        """How many numbers the statistic has."""
        return {"spread": 2, "each": self.draws}.get(self.combination, 1)

    def __str__(self) -> str:
        draws = f", {self.draws} draw{'s' if self.draws > 1 else ''}" if self.access == "noise on" else ""
        combination = f", {self.combination}" if self.draws > 1 or self.combination == "votes" else ""
        return f"{self.access}{draws}{combination}"


@dataclass(frozen=True, eq=False)
class Signals:
    """The signals of one model: ``confidence`` and ``correct`` are [rows, draws], the averaged ones [rows, averages].

    ``averages`` says over how many of the first draws the logits were averaged for ``mean_confidence`` (of the
    label), ``highest`` (log-probability of the most probable class), ``entropy`` and ``modified_entropy``. ``labels``
    are the labels that the model was asked about.
    """

    averages: tuple[int, ...]
    labels: NDArray[np.int64]
    confidence: NDArray[np.float32]
    correct: NDArray[np.bool_]
    mean_confidence: NDArray[np.float32]
    highest: NDArray[np.float32]
    entropy: NDArray[np.float32]
    modified_entropy: NDArray[np.float32]

    def select(self, rows: NDArray[np.int64]) -> "Signals":
        """Return the signals of ``rows``, in that order."""
        arrays = {name: getattr(self, name)[rows] for name in self.__annotations__ if name != "averages"}
        return Signals(averages=self.averages, **arrays)

    def average(self, name: str, draws: int) -> Floats:
        """One of the averaged signals, over so many draws."""
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
            raise UsageError(f"the model was asked {draws.shape[1]} times, not {view.draws}.")
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


def signals_from(arrays: Mapping[str, NDArray[Any]], rows: int) -> Signals:
    """Put signals together again from arrays that were kept of them.

    Args:
        arrays: Those of :class:`Signals`, by name.
        rows: How many rows they must be about.

    Raises:
        ResperturbError: They are not the signals of so many rows.

    >>> kept = vars(signals_of([torch.zeros(3, 2)], torch.tensor([0, 1, 1])))
    >>> signals_from({**kept, "averages": np.array([1])}, rows=3).averages
    (1,)
    """
    if arrays.keys() != Signals.__annotations__.keys():
        raise ResperturbError(f"it holds {', '.join(arrays) or 'nothing'}")
    averages, confidence = arrays["averages"], arrays["confidence"]
    if averages.ndim != 1 or averages.dtype.kind not in "iu" or not averages.size or averages.min() < 1:
        raise ResperturbError("its averages are no numbers of draws")
    draws = confidence.shape[1] if confidence.ndim == 2 else 0
    shapes = {"averages": averages.shape, "labels": (rows,), "confidence": (rows, draws), "correct": (rows, draws)}
    kinds = {"averages": "iu", "labels": "iu", "correct": "b"}
    for name, array in arrays.items():
        if array.shape != shapes.get(name, (rows, averages.size)) or draws < averages.max():
            raise ResperturbError(f"its {name} are not about {rows} rows and {averages.max()} draws")
        if array.dtype.kind not in kinds.get(name, "f") or np.isnan(array).any():
            raise ResperturbError(f"its {name} are not what a model answers")
    others = {name: array for name, array in arrays.items() if name != "averages"}
    return Signals(averages=tuple(int(number) for number in averages), **others)


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
    return values - np.log(np.maximum(-np.expm1(values), _LEAST_PROBABILITY))


def signals_of(draws: Iterable[Tensor], labels: Tensor, averages: Sequence[int] = (1,)) -> Signals:
    """Boil down the logits ``[rows, classes]`` of every draw; log-probabilities will do as well.

    >>> one = signals_of([torch.tensor([[0.0, 0.0], [0.0, 9.0]])], torch.tensor([0, 1]))
    >>> one.confidence[:, 0].tolist()
    [0.0, 9.0]
    """
    wanted = tuple(sorted(set(averages)))
    confidence, correct = [], []
    averaged: dict[str, list[Any]] = {"mean_confidence": [], "highest": [], "entropy": [], "modified_entropy": []}
    total = torch.zeros(0)
    for number, logits in enumerate(draws, start=1):
        if not bool(torch.isfinite(logits).all()):
            raise ResperturbError("the model's answers are not finite, so there is nothing to attack.")
        logits = logits.double()
        confidence.append(label_confidence(logits, labels).float().numpy())
        correct.append((logits.argmax(dim=1) == labels).numpy())
        total = logits if number == 1 else total + logits
        if number in wanted:
            for name, values in _averaged(total / number, labels).items():
                averaged[name].append(values.float().numpy())
    if len(averaged["entropy"]) != len(wanted):
        raise UsageError(f"averages over {wanted} draws were asked for, and there were {len(confidence)} draws.")
    return Signals(
        wanted,
        labels.numpy().astype(np.int64),
        np.stack(confidence, axis=1),
        np.stack(correct, axis=1),
        **{name: np.stack(columns, axis=1) for name, columns in averaged.items()},
    )


def label_confidence(logits: Tensor, labels: Tensor) -> Tensor:
    """Give ``log p/(1 - p)`` of the label, without the rounding that ``1 - p`` would bring.

    >>> label_confidence(torch.tensor([[1.0, 1.0, 1.0]]), torch.tensor([2])).exp().tolist()
    [0.5]
    """
    own = logits.gather(1, labels[:, None])
    others = logits.scatter(1, labels[:, None], float("-inf"))
    return own.squeeze(1) - others.logsumexp(dim=1)


def _averaged(logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
    log_p = logits.log_softmax(dim=1)
    p = log_p.exp()
    log_rest = torch.log((1 - p).clamp_min(_LEAST_PROBABILITY))
    own = labels[:, None]
    # Song and Mittal's modified entropy: small for a confident right answer, large for a confident wrong one.
    others = (p * log_rest).scatter(1, own, 0.0).sum(dim=1)
    modified = -(1 - p).gather(1, own).squeeze(1) * log_p.gather(1, own).squeeze(1) - others
    return {
        "mean_confidence": label_confidence(logits, labels),
        "highest": log_p.max(dim=1).values,
        "entropy": -(p * log_p).sum(dim=1),
        "modified_entropy": modified,
    }
