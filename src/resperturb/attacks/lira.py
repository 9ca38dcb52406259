"""LiRA: is the target's answer likelier under models trained with the record, or without it?

Carlini, Chien, Nasr, Song, Terzis and Tramer, "Membership Inference Attacks From First Principles" (2022,
arXiv:2112.03570). Shadow models are trained on random halves; over those with a record, and those without, the
logit-scaled confidence in it is taken to be normal. The online attack scores by the ratio of both densities. The
offline one knows only models without the record: by the *tail*, how improbable so much confidence would be, or by the
*density*, how unusual the answer is in either direction.
"""

from typing import Literal

import numpy as np
from scipy.special import log_ndtr

from resperturb.attacks.evidence import Evidence
from resperturb.attacks.moments import Moments
from resperturb.attacks.registry import Score, register_attack
from resperturb.attacks.signals import Combination, View
from resperturb.bounds.arrays import Floats
from resperturb.errors import UsageError

CARLINI = "Carlini et al. 2022 (arXiv:2112.03570)"

Variance = Literal["record", "global"]
Form = Literal["tail", "density"]

# Keeps a statistic that never changes from having no density.
_LEAST_VARIANCE = 1e-6


def lira_online(target: Floats, inside: Moments, outside: Moments, variance: Variance = "record") -> Floats:
    """Return the log-likelihood ratio of each row's statistic ``[rows, dimensions]``.

    ``variance`` is estimated for each record by itself, or once for all of them, which is better with few models.
    With several dimensions the global form uses their whole covariance, the other their variances.

    >>> means = np.zeros((3, 1)), np.ones((3, 1))
    >>> outs, ins = (Moments(np.full(3, 2), mean, np.ones((3, 1, 1))) for mean in means)
    >>> lira_online(np.array([[0.0], [0.5], [1.0]]), ins, outs).tolist()
    [-0.5, 0.0, 0.5]
    """
    _check_counts(inside, "with", variance)
    _check_counts(outside, "without", variance)
    return _log_density(target, inside, variance) - _log_density(target, outside, variance)


def lira_offline(target: Floats, outside: Moments, variance: Variance = "record", form: Form = "tail") -> Floats:
    """Score each row by models that were trained without it.

    >>> outs = Moments(np.full(1, 2), np.zeros((1, 1)), np.ones((1, 1, 1)))
    >>> lira_offline(np.zeros((1, 1)), outs).round(4).tolist()
    [0.6931]
    """
    _check_counts(outside, "without", variance)
    if form == "density":
        return -_log_density(target, outside, variance)
    if target.shape[1] != 1:
        raise UsageError("the tail form of offline LiRA takes one number per record; use the density form for more.")
    spread = outside.pooled()[0] if variance == "global" else outside.variances()
    z = (target - outside.mean) / np.sqrt(np.maximum(spread, _LEAST_VARIANCE))
    # The logarithm of the other tail keeps apart those whose own tail rounds to one.
    scores: Floats = -log_ndtr(-z[:, 0])
    return scores


def separation(inside: Moments, outside: Moments) -> Floats:
    """Return how exposed each record is: how far being in raises its mean, in standard deviations of all records.

    The deviation of a single record is not used: with few models it may be tiny by chance. A mean that is lower with
    the record than without it is such a chance too.

    >>> means = np.full((1, 1), 3.0), np.zeros((1, 1))
    >>> separation(*(Moments(np.full(1, 2), mean, np.ones((1, 1, 1))) for mean in means)).tolist()
    [3.0]
    """
    variance = np.diag(inside.pooled() + outside.pooled()) / 2
    raised: Floats = ((inside.mean - outside.mean) / np.sqrt(np.maximum(variance, _LEAST_VARIANCE))).max(axis=1)
    return raised


def _log_density(values: Floats, moments: Moments, variance: Variance) -> Floats:
    """The logarithm of the normal density, up to a constant that is the same for members and non-members."""
    away = values - moments.mean
    if variance == "record":
        spread = np.maximum(moments.variances(), _LEAST_VARIANCE)
        densities: Floats = -0.5 * (away**2 / spread + np.log(spread)).sum(axis=1)
        return densities
    covariance = moments.pooled() + _LEAST_VARIANCE * np.eye(away.shape[1])
    _, log_determinant = np.linalg.slogdet(covariance)
    distance = np.einsum("rd,de,re->r", away, np.linalg.inv(covariance), away)
    pooled: Floats = -0.5 * (distance + log_determinant)
    return pooled


def _check_counts(moments: Moments, side: str, variance: Variance) -> None:
    needed = 2 if variance == "record" else 1
    if int(moments.count.min(initial=needed)) < needed:
        raise UsageError(
            f"some record has fewer than {needed} shadow models that were trained {side} it; train more shadows."
        )


def _online(variance: Variance) -> Score:
    return lambda evidence, view: lira_online(evidence.target(view), *evidence.moments(view), variance)


def _offline(variance: Variance, form: Form) -> Score:
    return lambda evidence, view: lira_offline(evidence.target(view), evidence.moments(view)[1], variance, form)


def _robust(evidence: Evidence, view: View) -> Floats:
    """The lowest and the highest shadow of every record are left out: one that failed to train moves no mean."""
    return lira_online(evidence.target(view), *evidence.trimmed_moments(view), "global")


_ALL: tuple[Combination, ...] = ("mean logit", "mean log-probability", "spread", "votes", "each")

register_attack("lira-online", CARLINI, needs=["shadows"], combinations=_ALL)(_online("record"))
register_attack("lira-online-global", CARLINI, needs=["shadows"], combinations=_ALL)(_online("global"))
register_attack("lira-online-robust", CARLINI, needs=["shadows"])(_robust)
register_attack("lira-offline", CARLINI, needs=["shadows"])(_offline("record", "tail"))
register_attack("lira-offline-global", CARLINI, needs=["shadows"])(_offline("global", "tail"))
register_attack("lira-offline-density", CARLINI, needs=["shadows"])(_offline("record", "density"))
