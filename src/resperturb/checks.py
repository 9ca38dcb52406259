"""Say in one sentence what is wrong with a number a user gave."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resperturb.errors import UsageError


def positive(name: str, value: float) -> float:
    """Return ``value`` if it is a finite number above zero.

    >>> positive("floor", 0.1)
    0.1
    """
    if not (math.isfinite(value) and value > 0):
        raise UsageError(f"{name} must be a number above 0, not {value:g}.")
    return float(value)


def not_negative(name: str, value: float) -> float:
    """Return ``value`` if it is a finite number of at least zero.

    >>> not_negative("radius", 0)
    0.0
    """
    if not (math.isfinite(value) and value >= 0):
        raise UsageError(f"{name} must be a number of at least 0, not {value:g}.")
    return float(value)


def between_0_and_1(name: str, value: float) -> float:
    """Return ``value`` if it lies strictly between zero and one.

    >>> between_0_and_1("delta", 1e-5)
    1e-05
    """
    if not 0 < value < 1:
        raise UsageError(f"{name} must lie strictly between 0 and 1, not {value:g}.")
    return float(value)


def count(name: str, value: float) -> int:
    """Return ``value`` if it is a whole number of at least one.

    >>> count("records", 12500)
    12500
    """
    if not (math.isfinite(value) and value == int(value) and value >= 1):
        raise UsageError(f"{name} must be a whole number of at least 1, not {value:g}.")
    return int(value)


def ratio(numerator: float, denominator: float) -> float:
    """Divide two numbers of at least zero; no noise (0 below) is infinite, nothing to hide (0 above) is 0.

    >>> ratio(30, 0), ratio(0, 0), ratio(30, 15)
    (inf, 0.0, 2.0)
    """
    if numerator == 0:
        return 0.0
    return math.inf if denominator == 0 else numerator / denominator


def finite_rows(what: str, rows: NDArray[Any]) -> None:
    """Refuse rows that hold NaN or infinity.

    >>> finite_rows("the features", np.array([[1.0], [np.inf]]))
    Traceback (most recent call last):
    resperturb.errors.UsageError: row 1 of the features is not finite: correct or remove it.
    """
    wrong = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if len(wrong):
        raise UsageError(f"row {wrong[0]} of {what} is not finite: correct or remove it.")


def missing(value: Any) -> bool:
    """Whether a value stands for none: None, NaN, pandas' NaT or NA.

    >>> missing(None), missing(float("nan")), missing("ann"), missing(0)
    (True, True, False, False)
    """
    try:
        return value is None or bool(value != value)
    except TypeError:  # pandas' NA is neither true nor false
        return True


def refuse_masked(what: str, values: Any) -> None:
    """Refuse a masked array, whose masked values would be taken for real.

    >>> refuse_masked("groups", np.ma.masked_array([1, 2], mask=[True, False]))
    Traceback (most recent call last):
    resperturb.errors.UsageError: groups is a masked array with masked values; leave those rows out, or fill them.
    """
    if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
        raise UsageError(f"{what} is a masked array with masked values; leave those rows out, or fill them.")


def refuse_other_index(**columns: Any) -> None:
    """Refuse columns of pandas whose indexes differ: they would be taken by position.

    Raises:
        UsageError: Two columns of the same length have different indexes.
    """
    indexed = [(what, x.index) for what, x in columns.items() if hasattr(getattr(x, "index", None), "equals")]
    for what, index in indexed[1:]:
        first, other = indexed[0]
        if len(index) == len(other) and not index.equals(other):
            raise UsageError(
                f"{what} and {first} have different pandas indexes; align them by {what}.loc[{first}.index], or pass "
                f"{what}.to_numpy() if their rows are in the same order."
            )
