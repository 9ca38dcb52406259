"""The rows of a private training set, in the form in which a head may use them.

Every row is a function of that record alone: normalised by its own norm, extended by a constant, cut to a grid. On
the grid all products and sums of a head are exact in float64, so that no rounding carries one record into the sum of
the others, in whatever order a matrix product adds them up.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from resperturb.bounds.arrays import Array, Floats, Ints

if TYPE_CHECKING:
    from scipy import sparse

# The constant coordinate that every row ends in; it stands for the intercept.
CONSTANT = 0.1
# Coordinates are multiples of 2^-GRID_BITS.
GRID_BITS = 14
MANTISSA_BITS = 53
# The norm of a unit's sum follows from inner products of its records, whose number is the square of theirs; that of a
# unit with more records than this, from the sum itself.
FEW = 64


@dataclass(frozen=True, eq=False)
class HeadRows:
    """Records, each with its class and with the unit (record or patient) that is protected with it.

    Attributes:
        x: One row per record, of norm at most 1, on the grid.
        labels: The class of each record, as an index.
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
    def gram(self) -> "sparse.csr_array":
        """Inner products of the records of one unit, of units that have few; zero between units."""
        from scipy import sparse  # it takes long to load

        own = np.flatnonzero(self.sizes[self.unit] <= FEW)
        shape = len(self.x), self.units
        members = sparse.csr_array((np.ones(len(own)), (own, self.unit[own])), shape=shape)
        pairs = (members @ members.T).tocoo()
        for at in range(0, pairs.nnz, 4096):
            part = slice(at, at + 4096)
            pairs.data[part] = np.einsum("ij,ij->i", self.x[pairs.row[part]], self.x[pairs.col[part]])
        return pairs.tocsr()

    @cached_property
    def large(self) -> dict[int, Ints]:
        """The records of each unit that has many."""
        return {int(unit): np.flatnonzero(self.unit == unit) for unit in np.flatnonzero(self.sizes > FEW)}

    def squares(self, errors: Floats) -> Floats:
        """Return the squared norm of the sum of ``x e^T`` over the records of each unit, with a row e per record."""
        found = np.bincount(self.unit, (errors * (self.gram @ errors)).sum(axis=1), minlength=self.units)
        for unit, own in self.large.items():
            found[unit] = np.square(self.x[own].T @ errors[own]).sum()
        return np.maximum(found, 0)


def rows_of(
    features: Array, labels: Ints, classes: int, unit: Ints | None = None, units: int | None = None
) -> HeadRows:
    """Prepare features, each row by itself; without ``unit`` every record is protected on its own.

    ``units`` is the public number of units, if some may have no record; more that have some count too.

    >>> rows = rows_of(np.array([[3.0, 4.0], [0.0, 0.0]]), np.array([0, 1]), classes=2)
    >>> np.round(rows.x, 3)
    array([[0.597, 0.796, 0.099],
           [0.   , 0.   , 0.099]])
    """
    unit = np.arange(len(features)) if unit is None else unit
    return HeadRows(unit_rows(features), labels, classes, unit, max(units or 0, int(unit.max()) + 1))


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
