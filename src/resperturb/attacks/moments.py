"""Means and covariances over shadow models, one model at a time: memory does not grow with the number of models."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Moments:
    """Count, mean and scatter of a statistic over models, for each row by itself (Welford's recurrence).

    ``mean`` is [rows, dimensions], ``scatter`` the sum of outer products of deviations.

    >>> moments = Moments.empty(rows=1, dimensions=1)
    >>> for value in (1.0, 2.0, 6.0):
    ...     moments.add(np.array([[value]]), np.array([True]))
    >>> moments.mean.tolist(), moments.scatter.tolist()
    ([[3.0]], [[[14.0]]])
    """

    count: NDArray[np.int64]
    mean: Floats
    scatter: Floats

    @classmethod
    def empty(cls, rows: int, dimensions: int) -> "Moments":
        """Start without any model."""
        return cls(
            np.zeros(rows, dtype=np.int64), np.zeros((rows, dimensions)), np.zeros((rows, dimensions, dimensions))
        )

    def add(self, values: Floats, where: NDArray[Any]) -> None:
        """Take in one model's statistic for the rows in ``where``."""
        rows = np.flatnonzero(where)
        self.count[rows] += 1
        before = values[rows] - self.mean[rows]
        self.mean[rows] += before / self.count[rows, None]
        after = values[rows] - self.mean[rows]
        self.scatter[rows] += before[:, :, None] * after[:, None, :]

    def first(self, rows: int) -> "Moments":
        """The moments of the first so many rows."""
        return Moments(self.count[:rows], self.mean[:rows], self.scatter[:rows])

    def pooled(self) -> Floats:
        """The covariance within rows, all rows taken together: [dimensions, dimensions]."""
        freedom = int(np.maximum(self.count - 1, 0).sum())
        covariance: Floats = self.scatter.sum(axis=0) / max(freedom, 1)
        return covariance

    def variances(self) -> Floats:
        """The variance of each row and dimension: [rows, dimensions]."""
        diagonal = np.einsum("rdd->rd", self.scatter)
        variances: Floats = diagonal / np.maximum(self.count - 1, 1)[:, None]
        return variances
