"""BaVarIA: LiRA whose means and variances are shrunk to those of all records, as few shadows know them badly.

Brannvall, "Exponential-Family Membership Inference: From LiRA and RMIA to BaVarIA" (2026, arXiv:2603.11799). The
statistic of a record is normal over models, its mean and variance have a conjugate normal-inverse-gamma prior, and
the prior is fitted over all records. What a further model will say then follows a Student t distribution, with and
without the record; the score is the logarithm of their ratio. With many shadows it becomes LiRA with a variance per
record, with very few LiRA with one variance for all.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import digamma, gammaln, polygamma

from resperturb.attacks.evidence import Evidence
from resperturb.attacks.moments import Moments
from resperturb.attacks.registry import register_attack
from resperturb.attacks.signals import View
from resperturb.bounds.arrays import Floats
from resperturb.bounds.scores import Scores
from resperturb.errors import UsageError

BRANNVALL = "Brannvall 2026 (arXiv:2603.11799)"

_LEAST_VARIANCE = 1e-6
# Beyond this number of degrees of freedom all records have the same variance.
_MOST_FREEDOM = 1e4


class Prior(NamedTuple):
    """``mean`` and ``variance`` of a record's statistic, each worth a number of models; one value per dimension."""

    mean: Floats
    mean_worth: Floats
    variance: Floats
    freedom: Floats


@register_attack(
    "bavaria",
    BRANNVALL,
    needs=["shadows"],
    combinations=("mean logit", "mean log-probability", "spread", "votes", "each"),
)
def _on_evidence(evidence: Evidence, view: View) -> Scores:
    return bavaria(evidence.target(view), *evidence.moments(view))


def bavaria(target: Floats, inside: Moments, outside: Moments) -> Scores:
    """Return the log-ratio of the two Student t densities of each row's statistic ``[rows, dimensions]``.

    Several dimensions are turned into ones that are uncorrelated over models, and those taken to be independent.

    >>> means = np.zeros((3, 1)), np.ones((3, 1))
    >>> outs, ins = (Moments(np.full(3, 40), mean, np.full((3, 1, 1), 39.0)) for mean in means)
    >>> bavaria(np.array([[0.0], [0.5], [1.0]]), ins, outs).round(2).tolist()
    [-0.49, 0.0, 0.49]
    """
    _check(inside)
    _check(outside)
    if target.shape[1] > 1:
        # Columns are the directions, each with a variance of 1 over models.
        spread, directions = np.linalg.eigh((inside.pooled() + outside.pooled()) / 2)
        turn = directions / np.sqrt(np.maximum(spread, _LEAST_VARIANCE))
        target, inside, outside = target @ turn, _turned(inside, turn), _turned(outside, turn)
    return _log_predictive(target, inside, fit_prior(inside)) - _log_predictive(target, outside, fit_prior(outside))


def fit_prior(moments: Moments) -> Prior:
    """Fit the prior to all records (empirical Bayes).

    The variances are fitted by the mean and the variance of their logarithms (Smyth, 2004), which single wild ones
    hardly move; the means by how much they differ beyond their own error.
    """
    freedom = np.maximum(moments.count - 1, 0)[:, None].astype(np.float64)
    known = freedom[:, 0] > 0
    half = freedom[known] / 2
    logs = np.log(np.maximum(moments.variances()[known], _LEAST_VARIANCE)) - digamma(half) + np.log(half)
    centre = logs.mean(axis=0)
    excess = logs.var(axis=0, ddof=1 if len(logs) > 1 else 0) - polygamma(1, half).mean(axis=0)
    worth = np.array([2 * _inverse_trigamma(value) if value > 0 else _MOST_FREEDOM for value in excess])
    worth = np.minimum(worth, _MOST_FREEDOM)
    variance = np.exp(centre + digamma(worth / 2) - np.log(worth / 2))
    mean = moments.mean.mean(axis=0)
    error = variance * (1 / np.maximum(moments.count, 1)).mean()
    between = np.maximum(moments.mean.var(axis=0) - error, 1e-3 * variance)
    return Prior(mean, variance / between, variance, worth)


def _turned(moments: Moments, turn: Floats) -> Moments:
    return Moments(moments.count, moments.mean @ turn, turn.T @ moments.scatter @ turn)


def _log_predictive(values: Floats, moments: Moments, prior: Prior) -> Floats:
    """The logarithm of the Student t density that the posterior predicts."""
    count = moments.count[:, None].astype(np.float64)
    worth = prior.mean_worth + count
    mean = (prior.mean_worth * prior.mean + count * moments.mean) / worth
    freedom = prior.freedom + count
    scatter = np.einsum("rdd->rd", moments.scatter)
    shift = prior.mean_worth * count / worth * (moments.mean - prior.mean) ** 2
    scale = (prior.freedom * prior.variance + scatter + shift) / freedom * (worth + 1) / worth
    scale = np.maximum(scale, _LEAST_VARIANCE)
    z = (values - mean) ** 2 / scale
    densities: Floats = (
        gammaln((freedom + 1) / 2)
        - gammaln(freedom / 2)
        - 0.5 * np.log(freedom * np.pi * scale)
        - (freedom + 1) / 2 * np.log1p(z / freedom)
    ).sum(axis=1)
    return densities


def _inverse_trigamma(value: float) -> float:
    """Newton's method of Smyth (2004), which converges from this start for every value above 0."""
    found = 0.5 + 1 / value
    for _ in range(50):
        tri = float(polygamma(1, found))
        step = tri * (1 - tri / value) / float(polygamma(2, found))
        found += step
        if abs(step) < 1e-10 * found:
            break
    return found


def _check(moments: Moments) -> None:
    if not bool((moments.count > 1).any()):
        raise UsageError(
            "no record has two shadow models of either kind, so no variance is known; train more shadows."
        )
