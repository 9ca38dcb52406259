"""The rows of an audit: candidates, whose membership is in question, and a population that no model is trained on."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from resperturb.bounds.arrays import Array, Bools, Ints, Texts
from resperturb.bounds.audit_result import CANARIES, GROUP, RECORD
from resperturb.checks import missing, refuse_masked
from resperturb.errors import UsageError

# Records that no model is trained on, for attacks that compare with them: their largest number and share.
MOST_POPULATION, POPULATION_SHARE = 200, 0.1


@dataclass(frozen=True, eq=False)
class Candidates:
    """The rows that every model is queried about.

    Attributes:
        rows: The trainee's row numbers, ``[R]``: candidates first, then the population.
        labels: Label of every row, ``[R]``.
        kinds: ``record``, or the kind of canary, of every candidate, ``[n]``.
        units: Unit of every candidate, ``[n]``; rows of one unit share a coin.
        unit: What a unit of records is called: ``record``, or the name of the column, such as ``patient``.
        always: Rows that every model is trained on and no query is about.
    """

    rows: Ints
    labels: Ints
    kinds: Texts
    units: Ints
    unit: str = RECORD
    always: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.kinds)

    @property
    def population(self) -> int:
        """The number of rows in the population."""
        return len(self.rows) - len(self)

    @cached_property
    def groups(self) -> Ints | None:
        """The unit of every candidate; None where every unit is a single row."""
        _, codes = np.unique(self.units, return_inverse=True)
        return None if codes.max(initial=-1) + 1 == len(self) else codes

    @property
    def patients(self) -> int | None:
        """The number of units of records; None where every record stands alone."""
        own = self.units[self.kinds == RECORD]
        count = len(np.unique(own))
        return count if count < len(own) else None

    def by_kind(self) -> dict[str, Bools]:
        """Return the candidates of each kind; all canaries together too, where there are several kinds."""
        found = {kind: self.kinds == kind for kind in dict.fromkeys(self.kinds.tolist())}
        if len([kind for kind in found if kind != RECORD]) > 1:
            found[CANARIES] = self.kinds != RECORD
        return found


def candidates_of(
    labels: ArrayLike,
    groups: ArrayLike | None = None,
    kinds: ArrayLike | None = None,
    *,
    population: int | None = None,
    validation: ArrayLike | None = None,
    seed: int = 0,
) -> Candidates:
    """Make candidates of a user's rows, and set a population of whole units of records aside.

    ``validation`` are rows that are neither, such as those of early stopping. Arguments are those of
    :func:`resperturb.audit`.

    Raises:
        UsageError: A column does not fit, or no unit can be left out.

    >>> found = candidates_of([0, 1] * 10, groups=np.arange(20) // 2, population=4)
    >>> len(found), found.population, found.unit
    (16, 4, 'group')
    """
    known = check_labels(labels)
    units, names = check_columns(groups, kinds, len(known))
    free = np.ones(len(known), dtype=bool)
    if validation is not None:
        free[check_rows("validation", validation, len(known))] = False
    wanted = min(MOST_POPULATION, int(POPULATION_SHARE * free.sum())) if population is None else population
    if not 0 <= wanted < free.sum():
        if not free.any():
            raise UsageError("validation holds every row; none is left to audit.")
        raise UsageError(f"population must be at least 0 and below the {free.sum()} rows, not {wanted}.")
    held = _held_out(names, units, free, wanted, seed)
    first = np.flatnonzero(free & ~held)
    if len(np.unique(units[first])) < 2:
        raise UsageError("an audit needs two groups at least, of which one can be left out.")
    rows = np.concatenate([first, np.flatnonzero(held)])
    return Candidates(rows, known[rows], names[first], units[first], unit_name(groups))


def unit_name(groups: Any) -> str:
    """Name the unit: the name of a pandas Series, ``group`` for other groups, ``record`` without any.

    >>> unit_name(None), unit_name([1, 2])
    ('record', 'group')
    """
    if groups is None:
        return RECORD
    name = getattr(groups, "name", None)
    return name if isinstance(name, str) and name else "group"


def check_labels(labels: ArrayLike) -> Ints:
    """Return labels as whole numbers from 0, or say what is wrong with them.

    >>> check_labels([0, 1, 1])
    array([0, 1, 1])
    """
    found = unmasked("labels", labels)
    if found.ndim != 1 or not found.size:
        raise UsageError(f"labels must hold one class per row, not have the shape {found.shape}.")
    if found.dtype.kind not in "biu" or (found.astype(np.int64) < 0).any():
        raise UsageError(
            f"labels must be whole numbers from 0, not of type {found.dtype}: numpy.unique(labels, "
            "return_inverse=True)[1] makes such."
        )
    return found.astype(np.int64)


def check_columns(groups: ArrayLike | None, kinds: ArrayLike | None, rows: int) -> tuple[Ints, Texts]:
    """Return the unit of every row as a whole number and its kind as text; a canary is a unit of its own.

    >>> check_columns(["ann", "bob", "ann"], None, rows=3)
    (array([0, 1, 0]), array(['record', 'record', 'record'], dtype='<U6'))
    >>> check_columns(["ann", "ann", "ann"], ["record", "record", "typo"], rows=3)[0]
    array([0, 0, 1])
    """
    names = np.full(rows, RECORD) if kinds is None else unmasked("kinds", kinds).astype(np.str_)
    by = np.arange(rows) if groups is None else unmasked("groups", groups)
    if kinds is not None and any(map(missing, np.asarray(kinds).tolist())):
        raise UsageError(f"kinds has missing values; call a row that is no canary {RECORD!r}.")
    if reserved := {name for name in names.tolist() if name == CANARIES or name.startswith(GROUP)}:
        raise UsageError(f"no kind of canary can be called {min(reserved)!r}, which results use; rename it.")
    for name, column in (("groups", by), ("kinds", names)):
        if column.shape != (rows,):
            raise UsageError(f"{name} must hold one value for each of the {rows} rows, not {column.shape}.")
    if unnamed := sum(map(missing, by.tolist())):
        raise UsageError(
            f"{unnamed} of {rows} rows have no group (None or NaN); give each a group of its own, or leave them out."
        )
    units: Ints = np.unique(by.astype(np.str_) if by.dtype == object else by, return_inverse=True)[1]
    canaries = np.flatnonzero(names != RECORD)
    units[canaries] = units.max() + 1 + np.arange(len(canaries))
    return np.unique(units, return_inverse=True)[1], names


def check_rows(name: str, rows: ArrayLike, count: int) -> Ints:
    """Return row numbers, none of them twice, or say what is wrong with them; a mask of all rows will do too.

    >>> check_rows("members", [2, 0], count=3), check_rows("members", [True, False, True], count=3)
    (array([2, 0]), array([0, 2]))
    """
    found = unmasked(name, rows)
    if found.dtype == bool and found.shape == (count,):
        found = np.flatnonzero(found)
    if found.ndim != 1 or found.dtype.kind not in "iu" or not found.size:
        raise UsageError(f"{name} must be row numbers, counted from 0; not an array of {found.dtype} {found.shape}.")
    if found.min() < 0 or found.max() >= count or len(np.unique(found)) < len(found):
        raise UsageError(f"{name} must be different row numbers from 0 to {count - 1}.")
    return found.astype(np.int64)


def unmasked(name: str, values: ArrayLike) -> Array:
    """Return an array; refuse a masked one, whose masked values would be taken for real."""
    refuse_masked(name, values)
    try:
        return np.asarray(values)
    except ValueError as error:
        raise UsageError(f"{name} must be an array of one value per row ({error}).") from error


def _held_out(kinds: Texts, units: Ints, free: Bools, wanted: int, seed: int) -> Bools:
    """Choose records for the population, by whole units; never canaries."""
    order = np.random.default_rng([seed, 77]).permutation(len(kinds))
    sizes = np.bincount(units[free & (kinds == RECORD)], minlength=int(units.max()) + 1)
    chosen, total = np.zeros(len(sizes), dtype=bool), 0
    for unit in dict.fromkeys(units[order[(free & (kinds == RECORD))[order]]].tolist()):
        if total >= wanted:
            break
        if total + sizes[unit] <= 2 * wanted:
            chosen[unit] = True
            total += sizes[unit]
    held: Bools = free & (kinds == RECORD) & chosen[units]
    return held
