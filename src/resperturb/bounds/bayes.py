"""A Bayesian lower bound: the posterior of epsilon, given what one threshold did."""

from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import betainc, betaincinv

from resperturb.bounds.ranks import Rates
from resperturb.bounds.rates import dp_epsilon, lower_bound
from resperturb.bounds.result import INDEPENDENT, SAME_POPULATION, LowerBound
from resperturb.bounds.scores import check_probability, check_scores
from resperturb.bounds.thresholds import Confusion, Given, MultiSplit, Split, search
from resperturb.errors import UsageError

UNIFORM = 1.0


def bayesian(
    members: ArrayLike,
    nonmembers: ArrayLike,
    *,
    delta: float = 1e-5,
    confidence: float = 0.95,
    thresholds: Given | Split | MultiSplit = Split(),  # noqa: B008 - it is frozen
    prior: float = UNIFORM,
) -> LowerBound:
    """Bound epsilon by the joint posterior of the two error rates (Zanella-Beguelin et al., 2023).

    The false positive and the false negative rate get independent Beta(prior, prior) priors; the bound is the epsilon
    that the posterior exceeds with probability ``confidence``. That is a degree of belief, not a rate of error over
    repeated audits.

    Two choices differ from the paper, to keep the rate of error near the stated one as well. The prior is uniform:
    Jeffreys' claims too much at small rates. And the direction, accepting or rejecting, is chosen along with the
    threshold on other scores: the larger of both is above the truth too often for a mechanism that is tight in both,
    such as randomised response. Where the threshold is given, each direction gets half of the error.

    Args:
        members: Scores of the members, higher where the attack says *member*.
        nonmembers: Scores of the non-members.
        delta: The delta at which epsilon is bounded.
        confidence: With which probability the bound holds.
        thresholds: How the threshold is chosen; not by the scores that the bound is computed from.
        prior: The Beta distribution that each error rate is believed to follow before.

    Returns:
        The bound, with what it assumes.

    Raises:
        UsageError: The scores, delta, confidence or prior cannot be used.

    >>> scores = np.linspace(-1, 1, 500)
    >>> bound = bayesian(scores + 1, scores, thresholds=Given(1.01))
    >>> round(bound.epsilon, 3)
    4.21
    """
    check_probability("delta", delta, zero=True)
    alpha = 1 - check_probability("confidence", confidence)
    if not isinstance(thresholds, Given | Split | MultiSplit):
        raise UsageError("the Bayesian bound needs a threshold chosen on other scores: Given, Split or MultiSplit.")
    if not 0 < prior < np.inf:
        raise UsageError(f"prior must be a number above 0, not {prior:g}.")

    def rank(fpr: Rates, fnr: Rates) -> tuple[Rates, Rates]:
        return dp_epsilon(1 - fnr, fpr, delta), dp_epsilon(1 - fpr, fnr, delta)

    def at_threshold(counts: Confusion, error: float, directions: tuple[str, ...]) -> tuple[float, str | None]:
        values = [_quantile(error / len(directions), _posterior(counts, delta, prior, way)) for way in directions]
        best = int(np.argmax(values))
        return values[best], directions[best]

    found = search(*check_scores(members, nonmembers), thresholds, alpha, rank, at_threshold)
    stated = f"Before the audit, each error rate was believed to follow Beta({prior:g}, {prior:g}), independently."
    return lower_bound("bayesian", found, thresholds, delta, confidence, (SAME_POPULATION, INDEPENDENT, stated))


def _posterior(counts: Confusion, delta: float, prior: float, *directions: str) -> Callable[[float], float]:
    """The posterior probability that epsilon is at most some value, by the inequalities of these directions.

    Given the false positive rate, each inequality caps the true positive rate; the posterior of the first is
    integrated over its quantiles, on which everything is smooth.
    """
    nodes, weights = _quadrature()
    fpr = betaincinv(counts.fp + prior, counts.nonmembers - counts.fp + prior, (nodes + 1) / 2)

    def below(epsilon: float) -> float:
        cap = np.ones_like(fpr)
        if "accept" in directions:
            cap = np.minimum(cap, np.exp(epsilon) * fpr + delta)
        if "reject" in directions:
            cap = np.minimum(cap, 1 - np.maximum(1 - fpr - delta, 0) * np.exp(-epsilon))
        cdf = betainc(counts.tp + prior, counts.members - counts.tp + prior, cap)
        return float(np.dot(weights, cdf)) / 2

    return below


@cache
def _quadrature() -> tuple[Rates, Rates]:
    nodes, weights = np.polynomial.legendre.leggauss(400)
    return nodes, weights


def _quantile(level: float, below: Callable[[float], float]) -> float:
    if below(0.0) >= level:
        return 0.0
    high = 1.0
    while below(high) < level:
        high *= 2
    return float(brentq(lambda epsilon: below(epsilon) - level, 0.0, high, xtol=1e-10))
