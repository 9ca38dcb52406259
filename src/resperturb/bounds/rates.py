"""Lower bounds on epsilon from the error rates of an attack at a threshold.

If a mechanism is (epsilon, delta)-DP then every attack on one record has

    TPR <= exp(epsilon) FPR + delta    and    1 - FPR <= exp(epsilon) (1 - TPR) + delta,

so error rates known to be small refute a small epsilon (Kairouz, Oh and Viswanath, 2015). The first inequality is
used by *accepting* (few non-members taken for members), the second by *rejecting* (few members missed).
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from resperturb.bounds.intervals import upper_limit
from resperturb.bounds.ranks import Curve, Rates, rank_tests, refuted_by_ranks
from resperturb.bounds.result import GAUSSIAN_CURVE, INDEPENDENT, SAME_POPULATION, LowerBound
from resperturb.bounds.scores import Scores, check_probability, check_scores
from resperturb.bounds.thresholds import (
    DIRECTIONS,
    Bound,
    Confusion,
    Found,
    Ranks,
    Thresholds,
    search,
    selection_words,
)
from resperturb.errors import UsageError


def clopper_pearson(
    members: ArrayLike,
    nonmembers: ArrayLike,
    *,
    delta: float = 1e-5,
    confidence: float = 0.95,
    thresholds: Thresholds = Ranks(),  # noqa: B008 - it is frozen
) -> LowerBound:
    """Bound epsilon by the exact binomial distributions of false positives and false negatives.

    At ``Ranks()`` both error rates are tested together. With every other choice of thresholds each rate gets a
    confidence limit of its own (Clopper and Pearson, 1934) at half of the allowed error; both directions follow from
    the same two limits.

    Args:
        members: Scores of the members, higher where the attack says *member*.
        nonmembers: Scores of the non-members.
        delta: The delta at which epsilon is bounded.
        confidence: With which probability the bound holds.
        thresholds: How the threshold is chosen.

    Returns:
        The bound, with what it assumes.

    Raises:
        UsageError: The scores, delta, confidence or thresholds cannot be used.

    >>> scores = np.linspace(-1, 1, 500)
    >>> round(clopper_pearson(scores + 1, scores).epsilon, 3)
    3.759
    >>> clopper_pearson(scores, scores).epsilon
    0.0
    """
    bound = jagielski(members, nonmembers, copies=1, delta=delta, confidence=confidence, thresholds=thresholds)
    return replace(bound, method="clopper_pearson", assumptions=(SAME_POPULATION, INDEPENDENT))


def jagielski(
    poisoned: ArrayLike,
    clean: ArrayLike,
    *,
    copies: int,
    delta: float = 1e-5,
    confidence: float = 0.95,
    thresholds: Thresholds = Ranks(),  # noqa: B008 - it is frozen
) -> LowerBound:
    """Bound epsilon by a poisoning attack repeated over many trainings (Jagielski, Ullman and Oprea, 2020).

    Args:
        poisoned: One score per model trained with the poison: how strongly it shows it.
        clean: One score per model trained without.
        copies: By how many poisoned records the data sets differ.
        delta: The delta at which epsilon is bounded.
        confidence: With which probability the bound holds.
        thresholds: How the threshold is chosen.

    Returns:
        The bound, with what it assumes.

    Raises:
        UsageError: The scores, delta, confidence or thresholds cannot be used.

    >>> models = np.linspace(-1, 1, 500)
    >>> one = jagielski(models + 1.5, models, copies=1)
    >>> eight = jagielski(models + 1.5, models, copies=8)
    >>> round(one.epsilon, 2), round(eight.epsilon, 2)
    (4.17, 0.52)
    """
    check_probability("delta", delta, zero=True)
    found = _search(poisoned, clean, thresholds, confidence, _dp_bound(delta, copies), _dp_curves(delta, copies))
    assumptions = (
        "Each score comes from a model trained anew, independently of all others.",
        f"The two data sets differ in exactly {copies} poisoned record{'s' if copies > 1 else ''}, fixed in advance.",
    )
    return lower_bound("jagielski", found, thresholds, delta, confidence, assumptions)


def gdp(
    members: ArrayLike,
    nonmembers: ArrayLike,
    *,
    delta: float = 1e-5,
    confidence: float = 0.95,
    thresholds: Thresholds = Ranks(),  # noqa: B008 - it is frozen
) -> LowerBound:
    """Bound epsilon assuming a Gaussian privacy curve (Dong, Roth and Su, 2022; Nasr et al., 2023).

    A mu-GDP mechanism has ``Phi^-1(TPR) - Phi^-1(FPR) <= mu``. The limits of the two rates refute every mu below
    some value, and that mu has an exact epsilon at ``delta``. Much larger than the other bounds where the curve is
    Gaussian, and wrong where it is not.

    Args:
        members: Scores of the members, higher where the attack says *member*.
        nonmembers: Scores of the non-members.
        delta: The delta at which epsilon is bounded.
        confidence: With which probability the bound holds.
        thresholds: How the threshold is chosen.

    Returns:
        The bound, with what it assumes.

    Raises:
        UsageError: The scores, delta, confidence or thresholds cannot be used.

    >>> scores = np.linspace(-1, 1, 500)
    >>> bound = gdp(scores + 1, scores)
    >>> round(bound.mu, 3), round(bound.epsilon, 3)
    (2.249, 11.563)
    """
    from resperturb.privacy.gaussian import epsilon_for_delta

    check_gaussian_delta(delta)
    found = _search(members, nonmembers, thresholds, confidence, _gaussian_bound, _gaussian_curve)
    assumptions = (SAME_POPULATION, INDEPENDENT, GAUSSIAN_CURVE)
    bound = lower_bound("gdp", found, thresholds, delta, confidence, assumptions)
    return replace(bound, epsilon=epsilon_for_delta(delta, found.value), mu=found.value)


def lower_bound(
    method: str,
    found: Found,
    thresholds: Thresholds,
    delta: float,
    confidence: float,
    assumptions: tuple[str, ...],
) -> LowerBound:
    """Put a finding into words."""
    too_few = "" if found.threshold is not None else "; there were too few scores to split, so nothing was bounded"
    return LowerBound(
        epsilon=found.value,
        delta=delta,
        confidence=confidence,
        method=method,
        selection=selection_words(thresholds) + too_few,
        threshold=found.threshold,
        direction=found.direction,
        counts=found.counts,
        assumptions=assumptions,
    )


def check_gaussian_delta(delta: float) -> None:
    """Refuse a delta of 0, at which no Gaussian mechanism has an epsilon."""
    if delta == 0:
        raise UsageError(
            "delta must be above 0 for a Gaussian bound: at delta 0 no Gaussian mechanism has an epsilon."
        )
    check_probability("delta", delta)


def _search(
    members: ArrayLike,
    nonmembers: ArrayLike,
    thresholds: Thresholds,
    confidence: float,
    bound: Bound,
    curves: Callable[[float], Curve],
) -> Found:
    def at_threshold(counts: Confusion, alpha: float, _: tuple[str, ...]) -> tuple[float, str | None]:
        # Both directions rest on the same two limits, so the better one costs nothing.
        fpr = upper_limit(counts.fp, counts.nonmembers, alpha / 2)
        fnr = upper_limit(counts.members - counts.tp, counts.members, alpha / 2)
        values = [float(value) for value in bound(fpr, fnr)]
        best = int(np.argmax(values))
        return values[best], DIRECTIONS[best]

    alpha = 1 - check_probability("confidence", confidence)
    ins, outs = check_scores(members, nonmembers)
    if isinstance(thresholds, Ranks):
        return _at_ranks(ins, outs, alpha, curves)
    return search(ins, outs, thresholds, alpha, bound, at_threshold)


def _at_ranks(ins: Scores, outs: Scores, alpha: float, curves: Callable[[float], Curve]) -> Found:
    if np.all(np.concatenate([ins, outs]) == ins[0]):
        # Equal scores hold no information, however they are ordered.
        return Found(0.0, float(ins[0]), Confusion(ins.size, outs.size, ins.size, outs.size), None)
    value, test = refuted_by_ranks(rank_tests(ins, outs), curves, alpha)
    if test.direction == "accept":
        threshold = np.sort(outs)[-test.rank]
        counts = Confusion(test.beyond, test.rank - 1, ins.size, outs.size)
    else:
        threshold = np.sort(ins)[test.rank - 1]
        counts = Confusion(ins.size - test.rank + 1, outs.size - test.beyond, ins.size, outs.size)
    return Found(value, float(threshold), counts, test.direction if value > 0 else None)


def _dp_bound(delta: float, copies: int) -> Bound:
    if copies < 1:
        raise UsageError(f"copies must be a whole number of at least 1, not {copies}.")

    def bound(fpr: Rates, fnr: Rates) -> tuple[Rates, Rates]:
        return dp_epsilon(1 - fnr, fpr, delta, copies), dp_epsilon(1 - fpr, fnr, delta, copies)

    return bound


def _dp_curves(delta: float, copies: int) -> Callable[[float], Curve]:
    def curve(epsilon: float) -> Curve:
        growth = np.exp(copies * epsilon)
        grown = delta * float(np.exp(epsilon * np.arange(copies)).sum())
        return lambda fpr: np.minimum(growth * fpr + grown, 1 - np.maximum(1 - grown - fpr, 0.0) / growth)

    return curve


def _gaussian_curve(mu: float) -> Curve:
    return lambda fpr: np.asarray(ndtr(ndtri(fpr) + mu))


def _gaussian_bound(fpr: Rates, fnr: Rates) -> tuple[Rates, Rates]:
    mu = ndtri(1 - fnr) - ndtri(fpr)
    return mu, mu


def dp_epsilon(likely: Rates, unlikely: Rates, delta: float, copies: int = 1) -> Rates:
    """Return the epsilon at which an event may have these probabilities on two data sets ``copies`` records apart.

    It solves ``likely = exp(k e) unlikely + delta (exp(k e) - 1)/(exp(e) - 1)``: what (e, delta)-DP becomes after k
    steps from neighbour to neighbour, the delta of each step blown up by those after it. Zero where no epsilon is
    needed; ``unlikely`` must be above 0.

    >>> event = np.array([0.8]), np.array([0.1])
    >>> float(dp_epsilon(*event, delta=0.0)[0]) == float(np.log(8))
    True
    >>> round(float(dp_epsilon(*event, delta=0.1, copies=2)[0]), 4)
    0.7851
    """
    likely, unlikely = np.asarray(likely, dtype=np.float64), np.asarray(unlikely, dtype=np.float64)
    with np.errstate(divide="ignore"):
        high = np.log(np.maximum(likely - delta, 0.0) / unlikely)
    if copies == 1:
        return np.maximum(high, 0.0)
    # With d = 0 the answer is log(likely/unlikely)/k; delta only makes it smaller.
    low, high = np.zeros_like(high), np.maximum(np.log(np.maximum(likely / unlikely, 1.0)) / copies, 0.0)
    steps = np.arange(copies, dtype=np.float64)
    for _ in range(60):
        middle = (low + high) / 2
        growth = np.exp(np.multiply.outer(middle, steps)).sum(axis=-1)
        refuted = likely > np.exp(copies * middle) * unlikely + delta * growth
        low, high = np.where(refuted, middle, low), np.where(refuted, high, middle)
    return low
