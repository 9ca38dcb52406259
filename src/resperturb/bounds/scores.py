"""Scores of an attack: one number per record, higher where the attacker believes the record was a member."""

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from resperturb.errors import ResperturbError, UsageError
from resperturb.files import read_bytes
from resperturb.sealed import DAMAGED_ARCHIVE

Scores = NDArray[np.float64]

LARGEST_FILE = 1 << 28


def check_scores(members: ArrayLike, nonmembers: ArrayLike) -> tuple[Scores, Scores]:
    """Return both arrays as floats, or say which of them is unusable and why.

    Infinite scores are allowed, and so are ties and arrays of different length.

    Raises:
        UsageError: Either is empty, holds NaN, or is not one row of real numbers.

    >>> check_scores([1, 2], [0])
    (array([1., 2.]), array([0.]))
    """
    return _checked("members", members), _checked("nonmembers", nonmembers)


@dataclass(frozen=True, eq=False, init=False)
class CanaryScores:
    """The evidence of every lower bound: an attack's scores of canaries that were in and of those that were out.

    Bounds take the two arrays, ``delta``, ``confidence`` and options of their own, and return a
    :class:`~resperturb.bounds.LowerBound` that states its assumptions; ``delta`` is that of the (epsilon, delta) that
    is refuted, and the bound exceeds the truth with probability at most 1 - ``confidence``.

    Raises:
        UsageError: Either is empty, holds NaN, or is not one row of real numbers.

    >>> CanaryScores([1, 2], [0]).members
    array([1., 2.])
    """

    members: Scores
    nonmembers: Scores

    def __init__(self, members: ArrayLike, nonmembers: ArrayLike) -> None:
        for name, values in zip(("members", "nonmembers"), check_scores(members, nonmembers), strict=True):
            object.__setattr__(self, name, values)


def check_probability(name: str, value: float, *, zero: bool = False) -> float:
    """Return ``value`` if it lies strictly between 0 and 1, or is 0 where that is allowed.

    >>> check_probability("delta", 0, zero=True)
    0.0
    """
    if not (0 < value < 1 or (zero and value == 0)):
        allowed = "at least 0 and below 1" if zero else "strictly between 0 and 1"
        raise UsageError(f"{name} must be {allowed}, not {value:g}.")
    return float(value)


def read_scores(path: Path) -> Scores:
    """Read scores from a ``.npy`` file, or from a text file with one number per line.

    Raises:
        UsageError: The file cannot be read, is larger than 256 MiB, or holds anything but scores.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "members.txt"
    >>> _ = file.write_text("0.5\\n-inf\\n")
    >>> read_scores(file)
    array([ 0.5, -inf])
    """
    if path.suffix == ".npz":
        raise UsageError(f"{path} holds several arrays; save the scores alone: numpy.save('scores.npy', array).")
    try:
        content = read_bytes(path, LARGEST_FILE)
        values = (
            np.load(io.BytesIO(content), allow_pickle=False)
            if path.suffix == ".npy"
            else _from_text(content.decode(), path)
        )
    except UsageError:
        raise
    except ResperturbError as error:
        raise UsageError(str(error)) from error
    except DAMAGED_ARCHIVE as error:
        raise UsageError(
            f"{path} is not a file of numbers; give a .npy file written by numpy.save (no pickled objects), "
            "or a text file with one number per line."
        ) from error
    return _checked(str(path), values)


def _from_text(text: str, path: Path) -> Scores:
    values = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            try:
                values.append(float(line))
            except ValueError:
                raise UsageError(f"{path}, line {number}: {line.strip()[:40]!r} is not one number.") from None
    return np.array(values, dtype=np.float64)


def _checked(name: str, values: ArrayLike) -> Scores:
    array = np.asarray(values)
    if array.size == 0:
        raise UsageError(f"{name}: there are no scores; at least one is needed.")
    if array.dtype.kind not in "biuf":
        raise UsageError(f"{name}: scores must be real numbers, not of type {array.dtype}.")
    if array.ndim != 1:
        raise UsageError(f"{name}: scores must be one row of numbers, not of shape {array.shape}.")
    floats = array.astype(np.float64)
    missing = int(np.isnan(floats).sum())
    if missing:
        raise UsageError(
            f"{name}: {missing} of {floats.size} scores are NaN; drop those records or repair the attack."
        )
    return floats
