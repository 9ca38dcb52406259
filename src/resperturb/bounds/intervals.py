"""Confidence intervals: exact ones of rates (Clopper and Pearson, 1934), and Student's of areas and means."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betainccinv, expit, logit, stdtr, stdtrit


class Interval(NamedTuple):
    """Two ends of a confidence interval."""

    low: float
    high: float

    @property
    def words(self) -> str:
        """Both ends as they are printed.

        >>> Interval(0.5, 0.62).words
        '0.500 to 0.620'
        """
        return f"{self.low:.3f} to {self.high:.3f}"


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
    """Return the two-sided Clopper-Pearson interval of a rate, which covers the true one with ``confidence`` or more.

    >>> [round(end, 4) for end in binomial_interval(0, 10, 0.95)]
    [0.0, 0.3085]
    """
    alpha = (1 - confidence) / 2
    low = 1 - float(upper_limit(trials - successes, trials, alpha))
    return Interval(low, float(upper_limit(successes, trials, alpha)))


@dataclass(frozen=True)
class Estimate:
    """A measured share with what its interval needs at any confidence.

    ``error`` is its standard error, on the logit scale where ``scale`` is ``logit``, and ``freedom`` are Student's
    degrees of freedom; below 1 nothing is known. An ``exact`` one is a binomial rate of ``freedom`` trials.
    """

    value: float
    error: float
    freedom: float
    scale: Literal["logit", "plain", "exact"]

    def interval(self, confidence: float) -> Interval:
        """Return the two-sided interval at a confidence.

        >>> [round(end, 3) for end in Estimate(0.6, 0.01, 8, "plain").interval(0.95)]
        [0.577, 0.623]
        """
        if self.freedom < 1:
            return Interval(0.0, 1.0)
        if self.scale == "exact":
            trials = round(self.freedom)
            return binomial_interval(round(self.value * trials), trials, confidence)
        reach = -float(stdtrit(self.freedom, (1 - confidence) / 2)) * self.error
        if self.scale == "logit":
            centre = logit(self.value)
            return Interval(float(expit(centre - reach)), float(expit(centre + reach)))
        return Interval(min(1.0, max(0.0, self.value - reach)), max(0.0, min(1.0, self.value + reach)))

    def p_value(self, null: float) -> float:
        """Return the one-sided p-value of a true share of at most ``null``, by the statistic of the interval.

        >>> round(Estimate(0.6, 0.01, 8, "plain").p_value(0.5), 6)
        4e-06
        """
        if self.freedom < 1 or self.value <= null:
            return 1.0
        if self.scale == "exact":
            trials = round(self.freedom)
            hits = round(self.value * trials)
            return float(betainc(hits, trials - hits + 1, null)) if hits else 1.0
        distance = logit(self.value) - logit(null) if self.scale == "logit" else self.value - null
        return float(stdtr(self.freedom, -distance / self.error)) if self.error > 0 else 0.0
