"""Exact tests of a privacy curve at thresholds that are fixed ranks of the scores.

Let the threshold be the k-th highest score of the non-members, k fixed in advance. Its false positive rate U is then
distributed as Beta(k, n - k + 1) over n non-members, whatever the scores are (Renyi). If the mechanism's curve allows
a true positive rate of at most h(U), the number of members above the threshold is at most Binomial(m, h(U)), so that
at least t of m members lie above with probability at most

    E[ P[Binomial(m, h(U)) >= t] ].

One test of one curve takes the place of two confidence limits, one per error rate, of which each gets half of the
allowed error and both must be right. The same holds from below: non-members under the k-th lowest score of a member.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betainccinv

from resperturb.bounds.scores import Scores

Rates = NDArray[np.float64]
# The highest true positive rate at each false positive rate.
Curve = Callable[[Rates], Rates]

# The tail of U is cut where it is far below any allowed error.
_LEAST_TAIL = 1e-12
_CELLS = 300
_TOLERANCE = 1e-6


class RankTest(NamedTuple):
    """So many of ``trials`` scores of one side lie beyond the ``rank``-th score of the other side's ``size``."""

    direction: str
    rank: int
    size: int
    beyond: int
    trials: int


def rank_grid(size: int) -> list[int]:
    """Return the ranks that are tested, from the number of scores alone: half of them down to 1, evenly in logarithm.

    There are about as many as the cube root of ``size``: a finer grid loses less between two ranks, and more by the
    correction for their number, which many scores can afford.

    >>> rank_grid(200)
    [100, 40, 16, 6, 3, 1]
    >>> len(rank_grid(5_000)), len(rank_grid(50_000))
    (17, 35)
    """
    steps = max(2, round(size ** (1 / 3)))
    return sorted({round(rank) for rank in np.geomspace(max(1.0, size / 2), 1.0, steps)}, reverse=True)


def rank_tests(members: Scores, nonmembers: Scores) -> list[RankTest]:
    """Count the scores beyond each rank of the grid, in both directions; a tie is not beyond.

    Any order of equal scores that membership has nothing to do with counts at least as many, so the tests hold.

    >>> rank_tests(np.array([3.0, 4.0]), np.array([1.0, 2.0]))[0]
    RankTest(direction='accept', rank=1, size=2, beyond=2, trials=2)
    """
    ins, outs = np.sort(members), np.sort(nonmembers)
    tests = [
        RankTest("accept", k, outs.size, ins.size - int(np.searchsorted(ins, outs[-k], side="right")), ins.size)
        for k in rank_grid(outs.size)
    ]
    tests += [
        RankTest("reject", k, ins.size, int(np.searchsorted(outs, ins[k - 1])), outs.size)
        for k in rank_grid(ins.size)
    ]
    return tests


def rank_p_value(test: RankTest, curve: Curve) -> float:
    """Return a bound on the probability that the curve allows this number beyond the rank, or more.

    The integral is taken from above: what it adds is a small share of the value, never negative.

    >>> one = RankTest("accept", rank=1, size=1, beyond=1, trials=1)
    >>> 0.5 <= rank_p_value(one, lambda fpr: fpr) <= 0.53
    True
    """
    rates, mass = _cells(test.rank, test.size)
    if test.beyond == 0:
        return 1.0
    tails = betainc(test.beyond, test.trials - test.beyond + 1.0, np.clip(curve(rates), 0.0, 1.0))
    return min(1.0, float(np.dot(mass, tails)))


def refuted_by_ranks(tests: list[RankTest], curves: Callable[[float], Curve], alpha: float) -> tuple[float, RankTest]:
    """Return the largest parameter whose curve is refuted by one of the tests, each at its share of ``alpha``.

    Args:
        tests: What was counted.
        curves: The curve of a parameter; a larger parameter must allow all that a smaller one does.
        alpha: The allowed error, dealt out evenly (Bonferroni).

    Returns:
        The parameter, 0 if none is refuted, and the test that refuted it (the first if none did).
    """
    each = alpha / len(tests)

    def refuting(parameter: float, among: list[RankTest]) -> list[RankTest]:
        return [test for test in among if rank_p_value(test, curves(parameter)) <= each]

    # A test that does not refute a parameter refutes no larger one either: only those that do go on.
    low, high, left = 0.0, 1.0, refuting(0.0, tests)
    if not left:
        return 0.0, tests[0]
    while further := refuting(high, left):
        low, high, left = high, 2 * high, further
    while high - low > _TOLERANCE:
        middle = (low + high) / 2
        if further := refuting(middle, left):
            low, left = middle, further
        else:
            high = middle
    return low, left[0]


@lru_cache(maxsize=512)
def _cells(rank: int, size: int) -> tuple[Rates, Rates]:
    """The upper ends of cells of U, and the probability of each; evenly in the logarithm of the upper tail."""
    tail = np.geomspace(1.0, _LEAST_TAIL, _CELLS)
    rates = np.concatenate([betainccinv(float(rank), size - rank + 1.0, tail[1:]), [1.0]])
    mass = np.concatenate([tail[:-1] - tail[1:], tail[-1:]])
    for array in (rates, mass):
        array.setflags(write=False)
    return rates, mass
