"""Ways to choose the threshold of an attack before its error rates are bounded.

A bound that picks its threshold on the scores it is computed from is too large. Here the threshold was given before,
or lies at fixed ranks of the scores.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from resperturb.errors import UsageError


@dataclass(frozen=True)
class Given:
    """A threshold fixed before these scores were seen."""

    threshold: float

    def __post_init__(self) -> None:
        if np.isnan(self.threshold):
            raise UsageError("the threshold is NaN; it must be a number.")

    words = "threshold given in advance"


@dataclass(frozen=True)
class Ranks:
    """Fixed ranks of the scores of one side, with one exact test of both error rates at each.

    The threshold is the k-th highest score of the non-members, or the k-th lowest of the members, for a grid of k
    that depends on the number of scores alone. See :mod:`resperturb.bounds.ranks`.
    """

    words = "thresholds at fixed ranks of the scores, both error rates in one exact test, Bonferroni-corrected"


Thresholds = Given | Ranks


class Confusion(NamedTuple):
    """Counts of one threshold, among the scores that a bound was computed from."""

    tp: int
    fp: int
    members: int
    nonmembers: int
