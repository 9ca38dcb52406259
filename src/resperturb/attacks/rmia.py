"""RMIA: does the model favour this record more than it favours the population?

Zarifzadeh, Liu and Shokri, "Low-Cost High-Power Membership Inference Attacks" (2024, arXiv:2312.03262). The target's
probability of a record is divided by what reference models give it on average; the score is the share of records z
of the population for which that ratio is smaller by a factor ``gamma``. Models with the record are needed for half of
the average. Where there are none, they are taken to give ``a p + (1 - a)`` if those without give ``p``, and ``a`` is
tuned on the shadow models, of which it is known what they were trained on.
"""

import numpy as np
from scipy.special import expit

from resperturb.attacks.evidence import Evidence
from resperturb.attacks.registry import Score, register_attack
from resperturb.attacks.signals import View
from resperturb.bounds.arrays import Floats
from resperturb.errors import UsageError

ZARIFZADEH = "Zarifzadeh et al. 2024 (arXiv:2312.03262)"

# What the paper's experiments use on CIFAR10, where there is nothing to tune it on.
OFFLINE_A = 0.3
_LEAST = 1e-30


def rmia(
    target: Floats,
    typical: Floats,
    target_population: Floats,
    typical_population: Floats,
    gamma: float = 1.0,
) -> Floats:
    """Return for each record the share of the population that it beats, ties broken by its own ratio.

    ``target`` holds the target's probabilities of the records' labels, ``typical`` the average ones.

    >>> rmia(np.array([0.9]), np.array([0.3]), np.array([0.5, 0.5]), np.array([0.5, 0.1])).round(2).tolist()
    [0.58]
    """
    if not gamma >= 1:
        raise UsageError(f"RMIA's gamma must be at least 1, not {gamma:g}.")
    if target_population.size == 0:
        raise UsageError("RMIA compares with a population, and there is none.")
    ratios = target / np.maximum(typical, _LEAST)
    others = np.sort(target_population / np.maximum(typical_population, _LEAST))
    beaten = np.searchsorted(others, ratios / gamma, side="right")
    # The share alone puts all that beat everybody on one level; the ratio orders them as a larger population would.
    with np.errstate(divide="ignore"):
        scores: Floats = (beaten + expit(np.log(ratios))) / (others.size + 1)
    return scores


def online_average(inside: Floats, outside: Floats) -> Floats:
    """Average the probabilities of models with and without the record."""
    return (inside + outside) / 2


def offline_average(outside: Floats, a: float = OFFLINE_A) -> Floats:
    """Guess the average from models without the record: those with it are taken to give ``a p + (1 - a)``.

    >>> offline_average(np.array([0.5]), a=0.3).tolist()
    [0.675]
    """
    if not 0 <= a <= 1:
        raise UsageError(f"RMIA's a must lie between 0 and 1, not {a:g}.")
    return ((1 + a) * outside + (1 - a)) / 2


def tuned_a(inside: Floats, outside: Floats) -> float:
    """Return the ``a`` by which ``a p + (1 - a)`` comes closest to what shadow models with a record give it.

    Args:
        inside: Average probabilities of shadows with each record.
        outside: Average probabilities of shadows without it.

    Returns:
        The least squares solution, between 0 and 1; the paper's where shadows without are certain of everything.

    >>> tuned_a(np.array([0.7, 0.8]), np.array([0.4, 0.6])).__round__(6)
    0.5
    """
    missing_in, missing_out = 1 - inside, 1 - outside
    total = float(np.dot(missing_out, missing_out))
    if total < _LEAST:
        return OFFLINE_A
    return float(np.clip(np.dot(missing_in, missing_out) / total, 0.0, 1.0))


def _on_evidence(know_inside: bool) -> Score:
    def score(evidence: Evidence, view: View) -> Floats:
        count = evidence.count
        target = expit(evidence.answers[view.access].statistic(view)[:, 0])
        with_it, without_it = evidence.known_shadows().probabilities[view]
        both = (with_it.count > 0) & (without_it.count > 0)
        a = tuned_a(with_it.mean[both, 0], without_it.mean[both, 0]) if both.any() else OFFLINE_A
        # No model was trained on the population, so for it the average is a guess in either form.
        typical = offline_average(without_it.mean[:, 0], a)
        own = online_average(with_it.mean[:, 0], without_it.mean[:, 0]) if know_inside else typical
        return rmia(target[:count], own[:count], target[count:], typical[count:])

    return score


register_attack("rmia-online", ZARIFZADEH, needs=["shadows", "population"])(_on_evidence(know_inside=True))
register_attack("rmia-offline", ZARIFZADEH, needs=["shadows", "population"])(_on_evidence(know_inside=False))
