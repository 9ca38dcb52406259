"""Ridge regression from two noisy sums, released once: for one pass over the data, or for sums from several places.

A unit adds the mean over its records of ``x x^T`` and ``x (y - 1/C)^T``. With rows of norm at most 1 the pair has
norm at most ``sqrt(1 + 1 - 1/C)``, for a mean as for a single record, since norms are convex. Gradient descent was
more accurate on all data that we tried.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from resperturb.bounds.arrays import Floats
from resperturb.checks import positive
from resperturb.heads.release import Noise, OnRelease, Release, noisy
from resperturb.heads.rows import MANTISSA_BITS, HeadRows, cut


@dataclass(frozen=True)
class OneShot:
    """The constants of the head.

    Attributes:
        ridge: The regulariser, in multiples of the noise's largest eigenvalue, about ``sigma sqrt(2 d)``.

    >>> round(OneShot().sigma(mu=0.7191, classes=10), 3)
    1.917
    """

    words: ClassVar = "ridge regression from sums released once"

    ridge: float = 0.5

    def __post_init__(self) -> None:
        positive("ridge", self.ridge)

    def sensitivity(self, classes: int) -> float:
        """Return the largest norm of a unit's pair of contributions."""
        return math.sqrt(2 - 1 / classes)

    def sigma(self, mu: float, classes: int) -> float:
        """Return the noise that makes both releases together ``mu``-GDP."""
        return self.sensitivity(classes) / mu

    def numbers(self, width: int, classes: int) -> int:
        """Return the number of normals drawn for rows of ``width`` coordinates."""
        return width * (width + classes)

    def fit(self, rows: HeadRows, mu: float, noise: Noise, on_release: OnRelease | None = None) -> Floats:
        """Train a head whose two releases together are ``mu``-GDP, and return its weights, one column per class."""
        sigma = self.sigma(mu, rows.classes)
        for_features, for_labels = sums(rows)
        d = len(for_features)
        # Variance 1 on the diagonal and 1/2 off it: isotropic among symmetric matrices.
        square = noise((d, d))
        symmetric = (square + square.T) / 2
        released = (
            Release(0, "features", noisy(for_features, sigma, symmetric)),
            Release(0, "labels", noisy(for_labels, sigma, noise(for_labels.shape))),
        )
        for release in released:
            if on_release is not None:
                on_release(release)
        values, vectors = np.linalg.eigh(released[0].value)
        ridge = self.ridge * sigma * math.sqrt(2 * d) + 1e-6 * rows.units
        solved = vectors @ ((vectors.T @ released[1].value) / (np.maximum(values, 0) + ridge)[:, None])
        weights: Floats = rows.classes * solved  # softmax(C z) is 1/C + z to first order: regression's probabilities
        return weights

    def crafted(self, releases: Sequence[Release], classes: int, coordinate: int, label: int, mu: float) -> float:
        """Return the statistic of the worst case, as :meth:`Descent.crafted` does."""
        for_features, for_labels = (release.value[coordinate] for release in releases)
        shift = (np.arange(classes) == label) - 1 / classes
        total = for_features[coordinate] + for_labels @ shift
        return float(total) / (self.sigma(mu, classes) * math.sqrt(1 + shift @ shift))


def sums(rows: HeadRows) -> tuple[Floats, Floats]:
    """Add up the units' means of ``x x^T`` and ``x (y - 1/C)^T``, exactly: on a grid, cut towards zero."""
    bits = min(16, (MANTISSA_BITS - rows.units.bit_length()) // 2)  # each unit adds at most 1
    share = 1 / np.sqrt(rows.sizes[rows.unit])[:, None]
    x = cut(rows.x * share, bits)
    labels = cut((rows.targets - 1 / rows.classes) * share, bits)
    return x.T @ x, x.T @ labels
