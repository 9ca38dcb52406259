"""Means and covariances over shadow models, one model at a time: memory does not grow with the number of models."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resperturb.attacks.signals import Floats


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


@dataclass(frozen=True, eq=False)
class Extremes:
    """The lowest and the highest value of a statistic over models, for each row and dimension by itself."""

    low: Floats
    high: Floats

    @classmethod
    def empty(cls, rows: int, dimensions: int) -> "Extremes":
        """Start without any model."""
        return cls(np.full((rows, dimensions), np.inf), np.full((rows, dimensions), -np.inf))

    def add(self, values: Floats, where: NDArray[Any]) -> None:
        """Take in one model's statistic for the rows in ``where``."""
        rows = np.flatnonzero(where)
        self.low[rows] = np.minimum(self.low[rows], values[rows])
        self.high[rows] = np.maximum(self.high[rows], values[rows])

    def first(self, rows: int) -> "Extremes":
        """The extremes of the first so many rows."""
        return Extremes(self.low[:rows], self.high[:rows])


# With fewer models there is nothing left to average.
FEWEST_TO_TRIM = 4


def trimmed(moments: Moments, extremes: Extremes) -> Moments:
    """Leave out the lowest and the highest model of every row and dimension.

    One shadow that failed to train then moves no mean. Off the diagonal the scatter is set to 0: which model is the
    lowest differs from one dimension to the other. Rows with fewer than four models are left as they are.

    >>> moments, extremes = Moments.empty(1, 1), Extremes.empty(1, 1)
    >>> for value in (1.0, 2.0, 3.0, -1000.0, 9.0):
    ...     for each in (moments, extremes):
    ...         each.add(np.array([[value]]), np.array([True]))
    >>> kept = trimmed(moments, extremes)
    >>> kept.count.tolist(), kept.mean.round(6).tolist(), kept.scatter.round(6).tolist()
    ([3], [[2.0]], [[[2.0]]])
    """
    enough = moments.count >= FEWEST_TO_TRIM
    count = np.where(enough, moments.count - 2, moments.count)
    before = moments.count[:, None].astype(np.float64)
    with np.errstate(invalid="ignore"):
        rest = np.maximum(before - 2, 1)
        mean = (before * moments.mean - extremes.low - extremes.high) / rest
        # Sums of squares about the old mean, less those of the two, moved to the new mean.
        squares = np.einsum("rdd->rd", moments.scatter)
        squares = squares - (extremes.low - moments.mean) ** 2 - (extremes.high - moments.mean) ** 2
        squares = np.maximum(squares - rest * (mean - moments.mean) ** 2, 0.0)
    scatter = np.zeros_like(moments.scatter)
    diagonal = np.arange(mean.shape[1])
    scatter[:, diagonal, diagonal] = squares
    return Moments(
        count,
        np.where(enough[:, None], mean, moments.mean),
        np.where(enough[:, None, None], scatter, moments.scatter),
    )
