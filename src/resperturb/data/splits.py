"""Which records are members: given rows, the paper's four quarters, and a held-out test part."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from resperturb.errors import UsageError

Indices: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class RowNumbers:
    """The rows that a model is trained on, named by their digest; equal digests are equal rows.

    ``numbers`` ascend, and are None where only the digest is known, as in a configuration file.

    >>> RowNumbers.of([3, 1]) == RowNumbers.of([1, 3])
    True
    """

    digest: str
    numbers: Indices | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, rows: Any) -> "RowNumbers":
        """Check, sort and name row numbers."""
        given = np.asarray(rows)
        if given.ndim != 1 or given.dtype.kind not in "iu" or len(given) == 0 or given.min() < 0:
            raise UsageError("rows are at least one row number, counted from 0.")
        numbers = np.unique(given).astype(np.int64)
        if len(numbers) < len(given):
            raise UsageError("rows repeat; give each row number once.")
        return cls(hashlib.sha256(numbers.astype("<i8").tobytes()).hexdigest(), numbers)


class Quarters(NamedTuple):
    """Indices of the four quarters of a training set; each model trains on one and never sees the others."""

    shadow_train: Indices
    shadow_out: Indices
    target_train: Indices
    target_out: Indices


def four_quarters(n: int, seed: int, groups: Sequence[Any] | np.ndarray[Any, Any] | None = None) -> Quarters:
    """Cut ``n`` records into four disjoint quarters at random: shadow train/out, target train/out.

    The same arguments always give the same quarters. They are of equal size, at most three records left out. With
    ``groups``, such as the patient of each record, every group goes whole into one quarter; they are as equal as that
    allows, and none is left out.

    >>> shadow_train, shadow_out, target_train, target_out = four_quarters(10, seed=0)
    >>> len(target_train)
    2
    >>> [len(part) for part in four_quarters(8, seed=0, groups=list("aabbccdd"))]
    [2, 2, 2, 2]
    """
    rng = np.random.default_rng(_seed(seed))
    if groups is None:
        if n < 4:
            raise UsageError(f"Four quarters need at least 4 records, and there are {n}: give more images.")
        order = rng.permutation(n)[: n - n % 4].astype(np.int64)
        return Quarters(*(np.sort(part) for part in np.split(order, 4)))
    ids, sizes = _group_ids(n, groups)
    if len(sizes) < 4:
        raise UsageError(
            f"Four quarters that share no group need at least 4 groups, and there are {len(sizes)}: "
            "give more groups, or split without the group column."
        )
    # Largest first into the emptiest quarter keeps the quarters balanced; the seed decides among equals.
    order = rng.permutation(len(sizes))
    order = order[np.argsort(-sizes[order], kind="stable")]
    quarter_of_group = np.empty(len(sizes), dtype=np.int64)
    filled = np.zeros(4, dtype=np.int64)
    for group in order:
        emptiest = np.flatnonzero(filled == filled.min())
        quarter = rng.choice(emptiest)
        quarter_of_group[group] = quarter
        filled[quarter] += sizes[group]
    quarter_of_record = quarter_of_group[ids]
    return Quarters(*(np.flatnonzero(quarter_of_record == quarter).astype(np.int64) for quarter in range(4)))


def held_out(
    labels: Sequence[int] | np.ndarray[Any, Any],
    fraction: float = 0.2,
    seed: int = 0,
    groups: Sequence[Any] | np.ndarray[Any, Any] | None = None,
) -> tuple[Indices, Indices]:
    """Split records in train and test, about ``fraction`` of every class in test; return the indices of both.

    The same arguments always give the same parts, and no class is ever missing from the training part. Every group
    goes whole to one side, and the classes are as even as that allows.

    >>> train, test = held_out([0, 1] * 10)
    >>> len(train), len(test)
    (16, 4)
    """
    if not 0 < fraction < 1:
        raise UsageError(f"The held-out fraction must lie between 0 and 1, not {fraction}.")
    classes, codes = np.unique(np.asarray(labels), return_inverse=True)
    rng = np.random.default_rng(_seed(seed))
    in_test = np.zeros(len(codes), dtype=bool)
    if groups is None:
        for label in range(len(classes)):
            members = rng.permutation(np.flatnonzero(codes == label))
            wanted = max(1, round(fraction * len(members))) if len(members) > 1 else 0
            in_test[members[: min(wanted, len(members) - 1)]] = True
        if not in_test.any():
            raise UsageError("No class has two images, so none can be held out for a test: give more images.")
    else:
        ids, sizes = _group_ids(len(codes), groups)
        if len(sizes) < 2:
            raise UsageError("A test part that shares no group with training needs at least 2 groups: there is 1.")
        counts = np.zeros((len(sizes), len(classes)), dtype=np.int64)
        np.add.at(counts, (ids, codes), 1)
        chosen = _choose_groups(counts, fraction, rng.permutation(len(sizes)))
        if not chosen:
            raise UsageError(
                "No group can be held out for a test without taking a whole class away from training: "
                "give more groups, or provide a test set."
            )
        in_test = np.isin(ids, chosen)
    return np.flatnonzero(~in_test).astype(np.int64), np.flatnonzero(in_test).astype(np.int64)


def _choose_groups(counts: np.ndarray[Any, Any], fraction: float, order: np.ndarray[Any, Any]) -> list[int]:
    """Take each group that brings the class counts of the test part nearer to ``fraction`` of the whole."""
    whole = counts.sum(axis=0)
    test = np.zeros_like(whole)
    chosen: list[int] = []

    def distance(part: np.ndarray[Any, Any]) -> float:
        return float(np.abs(part - fraction * whole).sum())

    for group in order:
        with_it = test + counts[group]
        if (with_it < whole).all() and distance(with_it) < distance(test):
            test = with_it
            chosen.append(int(group))
    if not chosen:  # every group is larger than the part wanted: the smallest that training can spare
        possible = [int(group) for group in order if (counts[group] < whole).all()]
        chosen = sorted(possible, key=lambda group: int(counts[group].sum()))[:1]
    return chosen


def _group_ids(n: int, groups: Sequence[Any] | np.ndarray[Any, Any]) -> tuple[Indices, Indices]:
    values = np.asarray(groups)
    if values.shape != (n,):
        raise UsageError(f"There must be one group for each of the {n} records, not {values.shape}.")
    _, ids, sizes = np.unique(values, return_inverse=True, return_counts=True)
    return ids.astype(np.int64), sizes.astype(np.int64)


def _seed(seed: int) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise UsageError(f"A seed is a whole number of at least 0, not {seed!r}.")
    return int(seed)
