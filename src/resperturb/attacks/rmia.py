"""RMIA: does the model favour this record more than it favours outsiders?

Zarifzadeh, Liu and Shokri, "Low-Cost High-Power Membership Inference Attacks" (2024, arXiv:2312.03262). The target's
probability of a record is divided by what reference models give it on average; the score is the share of outsiders z
for which that ratio is smaller by a factor ``gamma``.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from resperturb.errors import UsageError

Floats = NDArray[np.float64]

# What the paper's experiments use on CIFAR10 for models of which some were trained on the record's likes.
OFFLINE_A = 0.3
_LEAST = 1e-30


def rmia(
    target: Floats,
    typical: Floats,
    target_outsiders: Floats,
    typical_outsiders: Floats,
    gamma: float = 1.0,
) -> Floats:
    """Return for each record the share of outsiders that it beats, ties broken by its own ratio.

    ``target`` holds the target's probabilities of the records' labels, ``typical`` the average ones.

    >>> rmia(np.array([0.9]), np.array([0.3]), np.array([0.5, 0.5]), np.array([0.5, 0.1])).round(2).tolist()
    [0.58]
    """
    if not gamma >= 1:
        raise UsageError(f"RMIA's gamma must be at least 1, not {gamma:g}.")
    if target_outsiders.size == 0:
        raise UsageError("RMIA compares with outsiders, and there are none.")
    ratios = target / np.maximum(typical, _LEAST)
    others = np.sort(target_outsiders / np.maximum(typical_outsiders, _LEAST))
    beaten = np.searchsorted(others, ratios / gamma, side="right")
    # The share alone puts all that beat everybody on one level; the ratio orders them as more outsiders would.
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
