"""Honest ways to choose the threshold of an attack before bounding its error rates.

A bound that picks its threshold on the scores it is computed from is too large. Each strategy here pays for the
choice: the threshold was given, or every threshold is bounded at once, or other scores chose it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from resperturb.bounds.intervals import upper_limit
from resperturb.bounds.ranks import Rates
from resperturb.bounds.scores import Scores, check_probability
from resperturb.errors import UsageError

# From upper limits of the false positive and false negative rates: a bound by accepting, a bound by rejecting.
Bound = Callable[[Rates, Rates], tuple[Rates, Rates]]

DIRECTIONS = ("accept", "reject")


@dataclass(frozen=True)
class Given:
    """A threshold fixed before these scores were seen."""

    threshold: float

    def __post_init__(self) -> None:
        _check_thresholds((self.threshold,))


@dataclass(frozen=True)
class Bonferroni:
    """Every threshold at once, corrected for the number of limits that takes; all scores serve the bound.

    With ``thresholds`` the search is over that grid, which must have been fixed without these scores. Without, it is
    over every threshold: confidence limits at a grid of error *counts* hold together, and bound the rates at all
    thresholds.
    """

    thresholds: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.thresholds is not None:
            _check_thresholds(self.thresholds)


@dataclass(frozen=True)
class Ranks:
    """Fixed ranks of the scores of one side, and one exact test of both error rates at each; the strongest for most.

    The threshold is the k-th highest score of the non-members, or the k-th lowest of the members, for a grid of k
    that depends on the number of scores alone. See :mod:`resperturb.bounds.ranks`.
    """


@dataclass(frozen=True)
class Split:
    """A random part of the scores chooses the threshold, the rest gives the bound."""

    fraction: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        check_probability("fraction", self.fraction)


@dataclass(frozen=True)
class MultiSplit:
    """The median of many splits, each at half the allowed error: less luck in the split.

    Half of the bounds or more exceed the truth with at most twice the probability that one does, however they depend
    on each other (Markov's inequality; Meinshausen, Meier and Buehlmann, 2009).
    """

    splits: int = 25
    fraction: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        check_probability("fraction", self.fraction)
        if self.splits < 1:
            raise UsageError(f"splits must be at least 1, not {self.splits}.")


# What chooses a threshold, to put confidence limits on the error rates there.
Limited = Given | Bonferroni | Split | MultiSplit
Thresholds = Limited | Ranks


class Confusion(NamedTuple):
    """What one threshold did to the scores a bound was computed from."""

    tp: int
    fp: int
    members: int
    nonmembers: int


class Found(NamedTuple):
    """The bound, and the threshold, counts and direction it came from. No threshold: the scores did not suffice."""

    value: float
    threshold: float | None
    counts: Confusion
    direction: str | None


# The bound at one threshold: counts, allowed error, and which of the two directions may be used.
AtThreshold = Callable[[Confusion, float, tuple[str, ...]], tuple[float, str | None]]


def selection_words(strategy: Thresholds) -> str:
    """Say in words how the threshold was chosen.

    >>> selection_words(Split(fraction=0.5, seed=3))
    'threshold chosen on a random 50% of the scores (seed 3), bound computed on the rest'
    """
    match strategy:
        case Given():
            return "threshold given in advance"
        case Bonferroni(None):
            return "all thresholds, Bonferroni-corrected over a fixed grid of error counts"
        case Bonferroni(thresholds):
            return f"best of {len(thresholds or ())} thresholds given in advance, Bonferroni-corrected"
        case Ranks():
            return "thresholds at fixed ranks of the scores, both error rates in one exact test, Bonferroni-corrected"
        case Split(fraction, seed):
            part = f"a random {fraction:.0%} of the scores (seed {seed})"
            return f"threshold chosen on {part}, bound computed on the rest"
        case MultiSplit(splits, fraction, seed):
            return f"median of {splits} splits at half the allowed error ({fraction:.0%} choose, seed {seed})"


def search(
    members: Scores, nonmembers: Scores, strategy: Limited, alpha: float, bound: Bound, at: AtThreshold
) -> Found:
    """Return the bound ``strategy`` gives with error ``alpha``; ``bound`` ranks thresholds, ``at`` bounds one."""
    match strategy:
        case Given(threshold):
            return _at(members, nonmembers, threshold, alpha, at, DIRECTIONS)
        case Bonferroni(None):
            return _best(members, nonmembers, bound, alpha, simultaneous=True)[0]
        case Bonferroni(thresholds):
            grid = thresholds or ()
            every = [_at(members, nonmembers, t, alpha / len(grid), at, DIRECTIONS) for t in grid]
            return max(every, key=lambda found: found.value)
        case Split(fraction, seed):
            rng = np.random.default_rng(seed)
            return _split(members, nonmembers, fraction, rng, alpha, bound, at)
        case MultiSplit(splits, fraction, seed):
            rng = np.random.default_rng(seed)
            every = [_split(members, nonmembers, fraction, rng, alpha / 2, bound, at) for _ in range(splits)]
            return sorted(every, key=lambda found: found.value)[splits // 2]


@lru_cache(maxsize=256)
def count_grid(trials: int) -> NDArray[np.int64]:
    """Return the error counts below ``trials`` that get a confidence limit of their own.

    They are a standard deviation apart: rounding up to the next one then costs little beside the limit itself, and
    there are few to correct for.

    >>> count_grid(20).tolist()
    [0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 17, 18, 19]
    >>> len(count_grid(1_000)), len(count_grid(100_000))
    (105, 1004)
    """
    counts, count = [], 0
    while count < trials:
        counts.append(count)
        count += max(1, int(math.sqrt(count * (trials - count) / trials)))
    grid = np.array(counts, dtype=np.int64)
    grid.setflags(write=False)
    return grid


def _shares(size: int) -> Rates:
    """How the allowed error is dealt out over the grid: more to counts near either end, where epsilon is decided."""
    from_end = np.minimum(np.arange(size), np.arange(size)[::-1])
    weights = 1 / (1.0 + from_end)
    return np.asarray(weights / weights.sum(), dtype=np.float64)


@lru_cache(maxsize=32)
def _limits(trials: int, alpha: float, simultaneous: bool) -> Rates:
    """Upper limits for 0 to ``trials`` errors, each count rounded up to the grid.

    Simultaneous limits hold for every threshold together. For a grid count k, the true rate beyond the (k+1)-th
    largest score lies above the Clopper-Pearson limit for k errors with probability at most its share of ``alpha``,
    because that rate is distributed as Beta(k+1, trials-k), or below it where scores tie. A threshold with at most k
    errors lies beyond that score, so its rate is bounded too.
    """
    grid = count_grid(trials)
    each = alpha * _shares(grid.size) if simultaneous else alpha
    above = np.searchsorted(grid, np.arange(trials + 1))
    table = np.concatenate([upper_limit(grid, trials, each), [1.0]])[above]
    table.setflags(write=False)
    return table


def _best(
    members: Scores, nonmembers: Scores, bound: Bound, alpha: float, *, simultaneous: bool
) -> tuple[Found, float, str]:
    """The largest bound, with the threshold and the direction that gave it."""
    thresholds, tp, fp = _candidates(members, nonmembers)
    fpr = _limits(nonmembers.size, alpha / 2, simultaneous)[fp]
    fnr = _limits(members.size, alpha / 2, simultaneous)[members.size - tp]
    values = np.stack(bound(fpr, fnr))
    way, index = np.unravel_index(int(np.argmax(values)), values.shape)
    counts = Confusion(int(tp[index]), int(fp[index]), members.size, nonmembers.size)
    value, threshold, direction = max(0.0, float(values[way, index])), float(thresholds[index]), DIRECTIONS[way]
    return Found(value, threshold, counts, direction if value > 0 else None), threshold, direction


def _candidates(members: Scores, nonmembers: Scores) -> tuple[Scores, NDArray[np.int64], NDArray[np.int64]]:
    """The thresholds that can be best: for each grid count, the most hits at so many errors of either kind."""
    values = np.unique(np.concatenate([members, nonmembers]))
    tp = members.size - np.searchsorted(np.sort(members), values)
    fp = nonmembers.size - np.searchsorted(np.sort(nonmembers), values)
    fn = members.size - tp
    # Values ascend, so fp falls and fn rises.
    lowest = values.size - np.searchsorted(fp[::-1], count_grid(nonmembers.size), side="right")
    highest = np.searchsorted(fn, count_grid(members.size), side="right") - 1
    keep = np.unique(np.concatenate([lowest[lowest < values.size], highest]))
    return values[keep], tp[keep], fp[keep]


def _at(
    members: Scores,
    nonmembers: Scores,
    threshold: float,
    alpha: float,
    at: AtThreshold,
    directions: tuple[str, ...],
) -> Found:
    counts = Confusion(
        int(np.sum(members >= threshold)), int(np.sum(nonmembers >= threshold)), members.size, nonmembers.size
    )
    value, direction = at(counts, alpha, directions)
    return Found(max(0.0, value), threshold, counts, direction if value > 0 else None)


def _split(
    members: Scores,
    nonmembers: Scores,
    fraction: float,
    rng: np.random.Generator,
    alpha: float,
    bound: Bound,
    at: AtThreshold,
) -> Found:
    parts = []
    for scores in (members, nonmembers):
        shuffled = rng.permutation(scores)
        cut = int(scores.size * fraction)
        parts.append((shuffled[:cut], shuffled[cut:]))
    (choose_in, rest_in), (choose_out, rest_out) = parts
    if not (choose_in.size and choose_out.size):
        return Found(0.0, None, Confusion(0, 0, rest_in.size, rest_out.size), None)
    _, threshold, direction = _best(choose_in, choose_out, bound, alpha, simultaneous=False)
    return _at(rest_in, rest_out, threshold, alpha, at, (direction,))


def _check_thresholds(thresholds: tuple[float, ...]) -> None:
    if not thresholds:
        raise UsageError("the grid of thresholds is empty; give at least one, or none at all to search all of them.")
    if any(np.isnan(t) for t in thresholds):
        raise UsageError("a threshold is NaN; every threshold must be a number.")
