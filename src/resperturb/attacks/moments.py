"""Means and covariances over shadow models, one model at a time: memory does not grow with the number of models."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resperturb.bounds.arrays import Floats


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

    def remove(self, values: Floats, where: NDArray[Any]) -> None:
        """Remove one model's statistic, which was added before, for the rows in ``where``.

        >>> moments = Moments.empty(rows=1, dimensions=1)
        >>> for value in (1.0, 2.0, 6.0, 100.0):
        ...     moments.add(np.array([[value]]), np.array([True]))
        >>> moments.remove(np.array([[100.0]]), np.array([True]))
        >>> moments.mean.round(9).tolist(), moments.scatter.round(6).tolist()
        ([[3.0]], [[[14.0]]])
        """
        rows = np.flatnonzero(where)
        self.count[rows] -= 1
        after = values[rows] - self.mean[rows]
        self.mean[rows] -= after / np.maximum(self.count[rows, None], 1)
        before = values[rows] - self.mean[rows]
        scatter = self.scatter[rows] - before[:, :, None] * after[:, None, :]
        # Rounding may leave a little below zero where all models agree.
        diagonal = np.arange(scatter.shape[1])
        scatter[:, diagonal, diagonal] = np.maximum(scatter[:, diagonal, diagonal], 0.0)
        alone = self.count[rows] <= 1
        scatter[alone] = 0.0
        self.scatter[rows] = scatter

    def first(self, rows: int) -> "Moments":
        """Return the moments of the first ``rows`` rows."""
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
    """The two lowest and the two highest values of a statistic over models, for each row and dimension by itself.

    Two are kept so that one model can be removed; ``low`` and ``high`` are ``[2, rows, dimensions]``, the most
    extreme first.

    >>> extremes = Extremes.empty(rows=1, dimensions=1)
    >>> for value in (1.0, 2.0, 6.0):
    ...     extremes.add(np.array([[value]]), np.array([True]))
    >>> extremes.remove(np.array([[6.0]]), np.array([True]))
    >>> extremes.low[0].tolist(), extremes.high[0].tolist()
    ([[1.0]], [[2.0]])
    """

    low: Floats
    high: Floats

    @classmethod
    def empty(cls, rows: int, dimensions: int) -> "Extremes":
        """Start without any model."""
        return cls(np.full((2, rows, dimensions), np.inf), np.full((2, rows, dimensions), -np.inf))

    def add(self, values: Floats, where: NDArray[Any]) -> None:
        """Take in one model's statistic for the rows in ``where``."""
        rows = np.flatnonzero(where)
        new = values[rows]
        self.low[1, rows] = np.minimum(self.low[1, rows], np.maximum(self.low[0, rows], new))
        self.low[0, rows] = np.minimum(self.low[0, rows], new)
        self.high[1, rows] = np.maximum(self.high[1, rows], np.minimum(self.high[0, rows], new))
        self.high[0, rows] = np.maximum(self.high[0, rows], new)

    def remove(self, values: Floats, where: NDArray[Any]) -> None:
        """Remove one model's statistic for the rows in ``where``; the second extremes are not known afterwards."""
        rows = np.flatnonzero(where)
        gone = values[rows]
        self.low[0, rows] = np.where(gone <= self.low[0, rows], self.low[1, rows], self.low[0, rows])
        self.high[0, rows] = np.where(gone >= self.high[0, rows], self.high[1, rows], self.high[0, rows])

    def first(self, rows: int) -> "Extremes":
        """Return the extremes of the first ``rows`` rows."""
        return Extremes(self.low[:, :rows], self.high[:, :rows])


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
        low, high = extremes.low[0], extremes.high[0]
        mean = (before * moments.mean - low - high) / rest
        # Sums of squares about the old mean, less those of the two, moved to the new mean.
        squares = np.einsum("rdd->rd", moments.scatter)
        squares = squares - (low - moments.mean) ** 2 - (high - moments.mean) ** 2
        squares = np.maximum(squares - rest * (mean - moments.mean) ** 2, 0.0)
    scatter = np.zeros_like(moments.scatter)
    diagonal = np.arange(mean.shape[1])
    scatter[:, diagonal, diagonal] = squares
    return Moments(
        count,
        np.where(enough[:, None], mean, moments.mean),
        np.where(enough[:, None, None], scatter, moments.scatter),
    )
