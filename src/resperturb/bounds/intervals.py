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
class Threshold:
    """What is known of the threshold of a true positive rate, which is estimated from non-members too.

    ``others`` non-members were scored. ``places`` are ranks among them, from the highest; ``at`` and ``above`` count
    the members whose score is at least, or above, the score of that rank.
    """

    fpr: float
    others: int
    places: tuple[int, ...]
    at: tuple[int, ...]
    above: tuple[int, ...]

    def interval(self, members: int, confidence: float) -> Interval:
        """Bound the rate at the threshold that a share ``fpr`` of all non-members exceeds.

        The number of scored non-members that exceed it is binomial, so it lies between the scores of two ranks. Each
        end spends half of its error on the rank and half on the members counted there.
        """
        error, places = (1 - confidence) / 4, np.asarray(self.places, dtype=np.float64)
        reached = betainc(places, self.others - places + 1, self.fpr)  # that at least as many exceed it
        low = int(np.count_nonzero(1 - reached <= error))  # ranks that lie above it
        high = int(np.count_nonzero(reached > error))  # the first rank below it
        least = 1 - float(upper_limit(members - self.above[low - 1], members, error)) if low else 0.0
        return Interval(least, float(upper_limit(self.at[high], members, error)) if high < len(places) else 1.0)

    def tied(self, members: int, confidence: float) -> Interval:
        """Bound the rate where the highest score is shared by more than the false positive rate permits.

        Of those who share it, someone may accept as many at random as the false positive rate permits.

        >>> Threshold(0.01, 100, (1, 2, 4, 8), (50, 50, 50, 90), (0, 0, 0, 50)).tied(100, 0.95).high > 0.125
        True
        """
        shared = max((place for place, above in zip(self.places, self.above, strict=True) if above == 0), default=0)
        hits = binomial_interval(self.at[0], members, (1 + confidence) / 2)
        alarms = binomial_interval(shared, self.others, (1 + confidence) / 2)
        return Interval(self.fpr * hits.low / alarms.high, self.fpr * hits.high / max(alarms.low, self.fpr))


@dataclass(frozen=True)
class Estimate:
    """A measured share with what its interval needs at any confidence.

    ``error`` is its standard error, on the logit scale where ``scale`` is ``logit``, and ``freedom`` are Student's
    degrees of freedom; below 1 nothing is known. An ``exact`` one is a binomial rate of ``freedom`` trials, at a
    threshold that is fixed or, with ``threshold``, estimated.
    """

    value: float
    error: float
    freedom: float
    scale: Literal["logit", "plain", "exact"]
    threshold: Threshold | None = None

    def interval(self, confidence: float) -> Interval:
        """Return the two-sided interval at a confidence.

        >>> [round(end, 3) for end in Estimate(0.6, 0.01, 8, "plain").interval(0.95)]
        [0.577, 0.623]
        """
        if self.freedom < 1:
            return Interval(0.0, 1.0)
        if self.scale == "exact":
            trials = round(self.freedom)
            if self.threshold is not None:
                low, high = self.threshold.interval(trials, confidence)
                return Interval(min(low, self.value), max(high, self.value))
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
