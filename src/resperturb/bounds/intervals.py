"""Exact binomial confidence limits (Clopper and Pearson, 1934)."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainccinv


class Interval(NamedTuple):
    """Two ends of a confidence interval."""

    low: float
    high: float


def upper_limit(successes: ArrayLike, trials: int, alpha: float | NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the rate that is exceeded by the true one with probability at most ``alpha``.

    >>> round(float(upper_limit(0, 100, 0.05)), 4)
    0.0295
    >>> float(upper_limit(7, 7, 0.05))
    1.0
    """
    k = np.asarray(successes, dtype=np.float64)
    return np.where(k < trials, betainccinv(k + 1.0, np.maximum(trials - k, 1.0), alpha), 1.0)


def binomial_interval(successes: int, trials: int, confidence: float) -> Interval:
    """Return the two-sided Clopper-Pearson interval of a rate.

    Args:
        successes: How often it happened.
        trials: How often it could have.
        confidence: With which probability the interval covers the true rate, at least.

    Returns:
        Both ends.

    >>> [round(end, 4) for end in binomial_interval(0, 10, 0.95)]
    [0.0, 0.3085]
    """
    alpha = (1 - confidence) / 2
    low = 1 - float(upper_limit(trials - successes, trials, alpha))
    return Interval(low, float(upper_limit(successes, trials, alpha)))
