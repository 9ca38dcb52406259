"""Statistics over several targets: intervals, tests and bounds where each of K models is attacked once.

In the leave-one-out design models 2j and 2j + 1 are trained on opposite coins. Each model is a target once, and every
model outside its pair is evidence about it. The K values of an attack are therefore not independent: on scores
without signal their mean has about twice the variance of K independent values. The rules here account for it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from resperturb.bounds.attack_metrics import AttackMetrics, TruePositiveRate, deciding_interval
from resperturb.bounds.intervals import Estimate, Interval
from resperturb.bounds.result import LowerBound
from resperturb.bounds.scores import check_probability
from resperturb.errors import UsageError


@dataclass(frozen=True)
class TargetMetrics:
    """What one attack finds on one of several targets. ``tpr`` is by false positive rate: ``{"0.01": 0.2}``."""

    auc: float
    tpr: dict[str, float]
    members: int
    nonmembers: int

    @classmethod
    def of(cls, found: AttackMetrics) -> "TargetMetrics":
        """Keep the numbers of one target.

        >>> from resperturb.bounds import attack_metrics
        >>> TargetMetrics.of(attack_metrics([2, 3], [1, 0])).tpr["0.1"]
        1.0
        """
        rates = {f"{point.fpr:g}": point.tpr for point in found.tpr_at_fpr}
        return cls(found.auc, rates, found.members, found.nonmembers)


def mean_estimate(values: ArrayLike) -> Estimate:
    """Return the mean over targets with its standard error sqrt(2) s/sqrt(K) and K/2 - 1 degrees of freedom.

    The degrees of freedom count pairs of models, and the factor sqrt(2) the dependence between targets. It is about
    this pool of records under other coins and seeds. For fewer than four targets nothing is known of the error.

    >>> [round(end, 3) for end in mean_estimate([0.6, 0.62, 0.58, 0.6, 0.61, 0.59]).interval(0.95)]
    [0.565, 0.635]
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not array.size or not np.isfinite(array).all():
        raise UsageError("values must be one finite number per target.")
    freedom = array.size // 2 - 1
    error = float(np.sqrt(2 / array.size) * array.std(ddof=1)) if freedom >= 1 else 0.0
    return Estimate(float(array.mean()), error, freedom, "plain")


def over_targets(metrics: Sequence[AttackMetrics], confidence: float) -> AttackMetrics:
    """Combine what one attack finds on each of several targets, for one kind of candidate.

    Returns:
        Means over targets, with intervals and tests that count targets. ``members``, ``nonmembers`` and ``groups``
        are the smallest numbers of any target. Where all targets agree exactly, the interval is that of one of them.

    >>> from resperturb.bounds import attack_metrics
    >>> rng = np.random.default_rng(0)
    >>> found = over_targets([attack_metrics(rng.normal(1, 1, 50), rng.normal(0, 1, 50)) for _ in range(8)], 0.95)
    >>> found.targets, found.members, found.auc_interval.low < found.auc < found.auc_interval.high
    (8, 50, True)
    """
    if len(metrics) == 1:
        return metrics[0]
    area = _mean_of([found.estimate for found in metrics])
    p_value = area.p_value(0.5) if area.scale == "plain" else max(found.p_value for found in metrics)
    groups = [found.groups for found in metrics if found.groups is not None]
    return AttackMetrics(
        auc=area.value,
        auc_interval=deciding_interval(area, p_value, confidence),
        p_value=p_value,
        balanced_accuracy=float(np.mean([found.balanced_accuracy for found in metrics])),
        tpr_at_fpr=tuple(
            _rate_over_targets(points, [found.nonmembers for found in metrics], confidence)
            for points in zip(*(found.tpr_at_fpr for found in metrics), strict=True)
        ),
        members=min(found.members for found in metrics),
        nonmembers=min(found.nonmembers for found in metrics),
        estimate=area,
        groups=min(groups) if groups else None,
        targets=len(metrics),
        confidence=confidence,
    )


def _mean_of(each: Sequence[Estimate]) -> Estimate:
    """The mean over targets; where all agree exactly, the least precise of them."""
    values = [one.value for one in each]
    return mean_estimate(values) if len(set(values)) > 1 else min(each, key=lambda one: one.freedom)


def _rate_over_targets(
    points: Sequence[TruePositiveRate], nonmembers: Sequence[int], confidence: float
) -> TruePositiveRate:
    rate, fpr = _mean_of([point.estimate for point in points]), points[0].fpr
    # The mean rate of a blind attack above a threshold that these non-members give.
    blind = float(np.mean([(math.floor(fpr * count + 1e-9) + 1) / (count + 1) for count in nonmembers]))
    p_value = rate.p_value(blind) if rate.scale == "plain" else max(point.p_value for point in points)
    tied = any(point.tied for point in points)
    return TruePositiveRate(fpr, rate.value, rate.interval(confidence), rate, p_value, tied)


def target_confidence(confidence: float) -> float:
    """Return the confidence at which :func:`median_bound` needs the bound of each target.

    >>> target_confidence(0.95)
    0.975
    """
    return (1 + check_probability("confidence", confidence)) / 2


MEDIAN_RULE = "the bound that half of the targets reach, each at half of the allowed error (Markov's inequality)"
MEDIAN_ASSUMED = (
    "Each target's coins were fair and independent of all models outside its pair; the statement is about the coins "
    "and the noise of all trainings together."
)


def median_bound(bounds: Sequence[LowerBound], confidence: float, targets: int | None = None) -> LowerBound:
    """Bound epsilon over all targets: the ceil(K/2)-th largest of K bounds, each at half of the allowed error.

    Of a true claim at most a share alpha/2 of the targets is expected to refute it, so half of them do with
    probability at most alpha (Markov's inequality), however the targets depend on each other. Guesses of different
    targets must not be pooled: with two models on independent coins at epsilon 0, guess the coins of each by those of
    the other; both are right equally often, and the pooled count has twice the binomial variance.

    Each bound is the best of its target's attacks, at :func:`target_confidence` or above. Of K ``targets`` those that
    were left out count as bound 0.

    Raises:
        UsageError: There is no bound, or one has less confidence than the rule needs.
    """
    needed = target_confidence(confidence)
    if not bounds or any(bound.confidence < needed - 1e-12 for bound in bounds):
        raise UsageError(f"the median rule needs the bound of each target at confidence {needed:g} or above.")
    count = max(len(bounds), targets or 0)
    ordered = sorted(bounds, key=lambda bound: -bound.epsilon)
    place = (count + 1) // 2
    chosen = ordered[min(place, len(ordered)) - 1]
    left_out = place > len(ordered)
    return replace(
        chosen,
        epsilon=0.0 if left_out else chosen.epsilon,
        attack=None if left_out or chosen.epsilon == 0 else chosen.attack,
        confidence=confidence,
        assumptions=(*chosen.assumptions, MEDIAN_ASSUMED),
        correction=f"{MEDIAN_RULE}, {count} targets; of each {chosen.correction or 'one bound'}",
    )


@dataclass(frozen=True)
class Difference:
    """A paired difference between two settings on the same coins, with its interval."""

    mean: float
    interval: Interval
    margin: float
    targets: int
    confidence: float

    @property
    def decided(self) -> bool:
        """Whether the interval excludes 0."""
        return not self.interval.low <= 0 <= self.interval.high

    @property
    def equivalent(self) -> bool:
        """Whether the interval lies within the margin: so small a difference does not matter."""
        return -self.margin < self.interval.low and self.interval.high < self.margin

    @property
    def words(self) -> str:
        """The difference as a person would say it."""
        low, high = self.interval
        number = f"{self.mean:+.3f} [{low:+.3f}, {high:+.3f}]"
        verdict = [] if self.decided else ["not told apart from 0"]
        verdict += [f"equivalent within {self.margin:g}"] if self.equivalent else []
        return f"{number}: {' and '.join(verdict)}" if verdict else number


def paired_difference(first: ArrayLike, second: ArrayLike, confidence: float, margin: float = 0.02) -> Difference:
    """Compare two settings whose K models share coins and seeds: ``first`` minus ``second``, target by target.

    Raises:
        UsageError: The two do not have one finite value for each of the same targets.

    >>> paired_difference([0.61, 0.63, 0.62, 0.60, 0.6, 0.6], [0.60, 0.62, 0.61, 0.60, 0.6, 0.6], 0.95).words
    '+0.005 [-0.009, +0.019]: not told apart from 0 and equivalent within 0.02'
    """
    own, other = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if own.shape != other.shape:
        raise UsageError(f"settings are compared on the same targets, not on {own.size} and {other.size}.")
    # Half of the difference plus one half is a share between 0 and 1, as an estimate wants it.
    low, high = mean_estimate((own - other) / 2 + 0.5).interval(confidence)
    interval = Interval(2 * low - 1, 2 * high - 1)
    return Difference(float((own - other).mean()), interval, margin, own.size, confidence)
