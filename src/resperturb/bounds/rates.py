"""Lower bounds on epsilon from the error rates of an attack at a threshold.

If a mechanism is (epsilon, delta)-DP then every attack on one record has

    TPR <= exp(epsilon) FPR + delta    and    1 - FPR <= exp(epsilon) (1 - TPR) + delta,

so error rates known to be small refute a small epsilon (Kairouz, Oh and Viswanath, 2015). The first inequality is
used by *accepting* (few non-members taken for members), the second by *rejecting* (few members missed).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from resperturb.bounds.intervals import upper_limit
from resperturb.bounds.ranks import Curve, rank_tests, refuted_by_ranks
from resperturb.bounds.registry import register_bound
from resperturb.bounds.result import GAUSSIAN_CURVE, INDEPENDENT, SAME_POPULATION, Confusion, LowerBound
from resperturb.bounds.scores import CanaryScores, check_probability
from resperturb.errors import UsageError


@dataclass(frozen=True)
class Given:
    """A threshold fixed before these scores were seen."""

    threshold: float
    words = "threshold given in advance"

    def __post_init__(self) -> None:
        if np.isnan(self.threshold):
            raise UsageError("the threshold is NaN; it must be a number.")


@dataclass(frozen=True)
class Ranks:
    """Fixed ranks of the scores of one side, with one exact test of both error rates at each.

    The threshold is the k-th highest score of the non-members, or the k-th lowest of the members, for a grid of k
    that depends on the number of scores alone. See :mod:`resperturb.bounds.ranks`.
    """

    words = "thresholds at fixed ranks of the scores, both error rates in one exact test, Bonferroni-corrected"


def clopper_pearson(
    members: ArrayLike,
    nonmembers: ArrayLike,
    *,
    delta: float = 1e-5,
    confidence: float = 0.95,
    thresholds: Given | Ranks = Ranks(),  # noqa: B008 - it is frozen
) -> LowerBound:
    """Bound epsilon by the exact binomial distributions of false positives and false negatives.

    At ``Ranks()`` both error rates are tested together. At a given threshold each rate gets a confidence limit of its
    own (Clopper and Pearson, 1934) at half of the allowed error; both directions follow from the same two limits.

    >>> scores = np.linspace(-1, 1, 500)
    >>> round(clopper_pearson(scores + 1, scores).epsilon, 3)
    3.759
    >>> clopper_pearson(scores, scores).epsilon
    0.0
    """
    check_probability("delta", delta, zero=True)

    def at_limits(fpr: float, fnr: float) -> tuple[float, float]:
        return _dp_epsilon(1 - fnr, fpr, delta), _dp_epsilon(1 - fpr, fnr, delta)

    def curve(epsilon: float) -> Curve:
        return dp_curve(epsilon, delta)

    return _bound("clopper_pearson", members, nonmembers, thresholds, delta, confidence, at_limits, curve)


def gdp(
    members: ArrayLike,
    nonmembers: ArrayLike,
    *,
    delta: float = 1e-5,
    confidence: float = 0.95,
    thresholds: Given | Ranks = Ranks(),  # noqa: B008 - it is frozen
) -> LowerBound:
    """Bound epsilon assuming a Gaussian privacy curve (Dong, Roth and Su, 2022; Nasr et al., 2023).

    A mu-GDP mechanism has ``Phi^-1(TPR) - Phi^-1(FPR) <= mu``. The scores refute every mu below some value, and that
    mu has an exact epsilon at ``delta``. Much larger than the other bounds where the curve is Gaussian, and wrong
    where it is not.

    >>> scores = np.linspace(-1, 1, 500)
    >>> bound = gdp(scores + 1, scores)
    >>> round(bound.mu, 3), round(bound.epsilon, 3)
    (2.249, 11.563)
    """
    from resperturb.privacy.gaussian import epsilon_for_delta

    check_gaussian_delta(delta)

    def at_limits(fpr: float, fnr: float) -> tuple[float, float]:
        mu = float(ndtri(1 - fnr) - ndtri(fpr))
        return mu, mu

    found = _bound("gdp", members, nonmembers, thresholds, delta, confidence, at_limits, gaussian_curve)
    mu, assumptions = found.epsilon, (*found.assumptions, GAUSSIAN_CURVE)
    return replace(found, epsilon=epsilon_for_delta(delta, mu), mu=mu, assumptions=assumptions)


@register_bound("clopper_pearson", "Clopper and Pearson 1934; Jagielski et al. 2020", design="independent")
def _clopper_pearson(scores: CanaryScores, delta: float, confidence: float) -> LowerBound:
    return clopper_pearson(scores.members, scores.nonmembers, delta=delta, confidence=confidence)


@register_bound("gdp", "Dong, Roth and Su 2022; Nasr et al. 2023", design="independent")
def _gdp(scores: CanaryScores, delta: float, confidence: float) -> LowerBound:
    return gdp(scores.members, scores.nonmembers, delta=delta, confidence=confidence)


def check_gaussian_delta(delta: float) -> None:
    """Refuse a delta of 0, at which no Gaussian mechanism has an epsilon."""
    if delta == 0:
        raise UsageError(
            "delta must be above 0 for a Gaussian bound: at delta 0 no Gaussian mechanism has an epsilon."
        )
    check_probability("delta", delta)


def _bound(
    method: str,
    members: ArrayLike,
    nonmembers: ArrayLike,
    thresholds: Given | Ranks,
    delta: float,
    confidence: float,
    at_limits: Callable[[float, float], tuple[float, float]],
    curves: Callable[[float], Curve],
) -> LowerBound:
    """Return the largest parameter that is refuted, as an epsilon, with what refuted it."""
    alpha = 1 - check_probability("confidence", confidence)
    scores = CanaryScores(members, nonmembers)
    ins, outs = scores.members, scores.nonmembers
    if isinstance(thresholds, Given):
        threshold = thresholds.threshold
        counts = Confusion(int(np.sum(ins >= threshold)), int(np.sum(outs >= threshold)), ins.size, outs.size)
        fpr = float(upper_limit(counts.fp, outs.size, alpha / 2))
        fnr = float(upper_limit(ins.size - counts.tp, ins.size, alpha / 2))
        # Both directions rest on the same two limits, so the better one costs nothing.
        value, direction = max(zip(at_limits(fpr, fnr), ("accept", "reject"), strict=True), key=lambda way: way[0])
    elif isinstance(thresholds, Ranks):
        value, test = refuted_by_ranks(rank_tests(ins, outs), curves, alpha)
        direction = test.direction
        if direction == "accept":
            threshold = float(np.sort(outs)[-test.rank])
            counts = Confusion(test.beyond, test.rank - 1, ins.size, outs.size)
        else:
            threshold = float(np.sort(ins)[test.rank - 1])
            counts = Confusion(ins.size - test.rank + 1, outs.size - test.beyond, ins.size, outs.size)
    else:
        raise UsageError(f"thresholds must be Given(threshold) or Ranks(), not {thresholds!r}.")
    return LowerBound(
        epsilon=max(0.0, value),
        delta=delta,
        confidence=confidence,
        method=method,
        selection=thresholds.words,
        threshold=threshold,
        direction=direction if value > 0 else None,
        counts=counts,
        assumptions=(SAME_POPULATION, INDEPENDENT),
    )


def dp_curve(epsilon: float, delta: float) -> Curve:
    """Return the highest true positive rate at each false positive rate under (epsilon, delta)-DP.

    >>> float(dp_curve(0.0, 0.25)(np.array(0.5)))
    0.75
    """
    growth = np.exp(epsilon)
    return lambda fpr: np.minimum(growth * fpr + delta, 1 - np.maximum(1 - delta - fpr, 0.0) / growth)


def gaussian_curve(mu: float) -> Curve:
    """Return the highest true positive rate at each false positive rate under mu-GDP.

    >>> round(float(gaussian_curve(1.0)(np.array(0.1587))), 2)
    0.5
    """
    return lambda fpr: np.asarray(ndtr(ndtri(fpr) + mu))


def _dp_epsilon(likely: float, unlikely: float, delta: float) -> float:
    """The epsilon that an event of these probabilities on neighbouring data sets needs."""
    return float(np.log((likely - delta) / unlikely)) if likely - delta > unlikely else 0.0
