"""The rows of a private training set, in the form in which a head may use them.

Every row is a function of that record alone: normalised by its own norm, extended by a constant, cut to a grid. On
the grid all products and sums of a head are exact in float64, so that no rounding carries one record into the sum of
the others, in whatever order a matrix product adds them up.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from resperturb.bounds.arrays import Array, Floats, Ints

# The constant coordinate that every row ends in; it stands for the intercept.
CONSTANT = 0.1
# Coordinates are multiples of 2^-GRID_BITS.
GRID_BITS = 14
MANTISSA_BITS = 53


@dataclass(frozen=True, eq=False)
class HeadRows:
    """Records, each with its class and with the unit (record or patient) that is protected with it.

    Attributes:
        x: One row per record, of norm at most 1, on the grid.
        labels: The class of each record, as an index.
        classes: The number of classes.
        unit: The unit of each record, an index below ``units``.
        units: The number of units, which is public.
    """

    x: Floats
    labels: Ints
    classes: int
    unit: Ints
    units: int

    @cached_property
    def targets(self) -> Floats:
        """One-hot labels."""
        return np.eye(self.classes)[self.labels]

    @cached_property
    def sizes(self) -> Ints:
        """The number of records of each unit."""
        return np.bincount(self.unit, minlength=self.units)

    @cached_property
    def gram(self) -> sparse.csr_array:
        """Inner products of the records of one unit; zero between units."""
        order = np.argsort(self.unit, kind="stable")
        starts = np.cumsum(self.sizes) - self.sizes
        sizes = self.sizes[self.unit[order]]  # of the unit of each record
        one = np.repeat(np.arange(len(order)), sizes)
        within = np.arange(len(one)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        other = starts[self.unit[order]][one] + within
        one, other = order[one], order[other]
        values = np.concatenate(
            [
                np.einsum("ij,ij->i", self.x[one[at : at + 4096]], self.x[other[at : at + 4096]])
                for at in range(0, len(one), 4096)
            ]
        )
        return sparse.csr_array((values, (one, other)), shape=(len(order), len(order)))


def rows_of(
    features: Array, labels: Ints, classes: int, unit: Ints | None = None, units: int | None = None
) -> HeadRows:
    """Prepare features, each row by itself.

    Args:
        features: One row of finite numbers per record.
        labels: The class of each record, as an index.
        classes: The number of classes.
        unit: The unit of each record; None if every record is protected on its own.
        units: The number of units; None for the number of distinct ones.

    Returns:
        The rows.

    >>> rows = rows_of(np.array([[3.0, 4.0], [0.0, 0.0]]), np.array([0, 1]), classes=2)
    >>> np.round(rows.x, 3)
    array([[0.597, 0.796, 0.099],
           [0.   , 0.   , 0.099]])
    """
    unit = np.arange(len(features)) if unit is None else unit
    units = int(unit.max()) + 1 if units is None else units
    return HeadRows(unit_rows(features), labels, classes, unit, units)


def unit_rows(features: Array) -> Floats:
    """Scale each row to norm 1, append the constant, scale to norm 1 again, and cut to the grid."""
    x = np.asarray(features, dtype=np.float64)
    largest = np.abs(x).max(axis=1, keepdims=True, initial=0)
    x = x / np.where(largest > 0, largest, 1)  # so that no square overflows or vanishes
    norms = np.sqrt(np.einsum("ij,ij->i", x, x))[:, None]
    x = x / np.where(norms > 0, norms, 1)
    x = np.concatenate([x, np.full((len(x), 1), CONSTANT)], axis=1) / math.sqrt(1 + CONSTANT**2)
    return cut(x, GRID_BITS)


def cut(values: Floats, bits: int) -> Floats:
    """Cut towards zero to multiples of ``2**-bits``, which makes no norm larger.

    >>> cut(np.array([0.3, -0.3]), bits=2)
    array([ 0.25, -0.25])
    """
    return np.trunc(values * 2.0**bits) * 2.0**-bits
