"""Softmax regression by noisy gradient descent on all rows: the default head.

The gradient of the cross-entropy of a record is ``x e^T`` with ``e`` the softmax minus the one-hot label. Each unit
(record or patient) adds the sum over its records, scaled by ``1 / max(norm, clip)``, so at most norm 1 whatever the
weights are. With noise of standard deviation ``sigma`` a step is 1/sigma-GDP for replacing a unit's contribution by
zero, and ``steps`` of them together are sqrt(steps)/sigma-GDP, with every release published. There is no sampling, so
no batch has to be secret. Everything after a release is post-processing.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import softmax

from resperturb.bounds.arrays import Floats
from resperturb.checks import count, positive
from resperturb.errors import UsageError
from resperturb.heads.release import Noise, OnRelease, Release, noisy
from resperturb.heads.rows import GRID_BITS, MANTISSA_BITS, HeadRows, cut

# Maps weights [d, C] to the sum of all units' contributions.
Contributions = Callable[[Floats], Floats]


@dataclass(frozen=True)
class Descent:
    """The constants of the descent. None of them may be chosen by looking at the private data.

    The defaults were fixed on Fashion-MNIST. The learning rate follows from public quantities: below the largest one,
    the noise in the weights at the end is the same for every number of units.

    >>> Descent().sigma(mu=0.7191), Descent().learning_rate(units=2924, mu=0.7191)
    (13.906..., 3.15...)
    """

    words: ClassVar = "noisy gradient descent on all records"

    steps: int = 100
    clip: float = 0.1
    momentum: float = 0.9
    largest_rate: float = 80.0
    rate_factor: float = 0.15

    def __post_init__(self) -> None:
        count("steps", self.steps)
        positive("clip", self.clip)
        positive("the largest learning rate", self.largest_rate)
        positive("the learning rate's factor", self.rate_factor)
        if not 0 <= self.momentum < 1:
            raise UsageError(f"momentum must be at least 0 and below 1, not {self.momentum:g}.")

    def sigma(self, mu: float) -> float:
        """Return the noise that makes all steps together ``mu``-GDP."""
        return math.sqrt(self.steps) / mu

    def learning_rate(self, units: int, mu: float) -> float:
        """Return the learning rate for a number of units."""
        return min(self.largest_rate, self.rate_factor * mu * units / self.steps)

    def numbers(self, width: int, classes: int) -> int:
        """Return the number of normals drawn for rows of ``width`` coordinates."""
        return self.steps * width * classes

    def fit(self, rows: HeadRows, mu: float, noise: Noise, on_release: OnRelease | None = None) -> Floats:
        """Train a head and return its last weights, one column per class.

        All releases together are ``mu``-GDP; an infinite mu is no noise.
        """
        contributions = clipped_sums(rows, self.clip)
        sigma, rate = self.sigma(mu), self.learning_rate(rows.units, mu)
        weights = velocity = np.zeros((rows.x.shape[1], rows.classes))
        for step in range(self.steps):
            release = Release(step, "gradient", noisy(contributions(weights), sigma, noise(weights.shape)))
            if on_release is not None:
                on_release(release)
            velocity = self.momentum * velocity + release.value / rows.units
            weights = weights - rate * velocity
        return weights

    def crafted(self, releases: Sequence[Release], classes: int, coordinate: int, label: int, mu: float) -> float:
        """Return the statistic of the worst case: standard normal without the crafted record, shifted by mu with it.

        The record has features in ``coordinate`` alone, in which no other record has any, and stays clipped.
        """
        shift = np.where(np.arange(classes) == label, -1.0, 1.0 / (classes - 1))
        total = sum(release.value[coordinate] @ shift for release in releases) / np.linalg.norm(shift)
        return float(total) / (self.sigma(mu) * math.sqrt(self.steps))


def clipped_sums(rows: HeadRows, clip: float) -> Contributions:
    """Return the map from weights to the sum of the units' clipped gradients.

    All terms lie on a grid on which float64 adds up exactly. Cutting to it changes a unit's sum by at most its number
    of records times the norm of a cell, and the norm itself is known up to rounding: the scale is lowered by both,
    which depend on the unit alone, so that the norm is at most 1 and not nearly. A unit's sum is scaled to norm 1
    from the norm ``clip`` on; below, it is divided by ``clip``.
    """
    # Terms of a sum are at most 1.5/clip, and the number of rows is public.
    bits = MANTISSA_BITS - GRID_BITS - math.ceil(math.log2(1.5 * len(rows.x) / min(clip, 1.0)))
    cells = rows.sizes * math.sqrt(rows.classes) * 2.0**-bits
    rounding = (rows.sizes + rows.x.shape[1] * rows.classes + 8.0) * rows.sizes**2 * 2.0**-52 / min(clip, 1.0) ** 2
    largest = np.maximum(1 - cells - rounding, 0)

    def contributions(weights: Floats) -> Floats:
        errors = softmax(rows.x @ weights, axis=1) - rows.targets
        scales = largest / np.maximum(np.sqrt(rows.squares(errors)), clip)
        total: Floats = rows.x.T @ cut(errors * scales[rows.unit][:, None], bits)
        return total

    return contributions
