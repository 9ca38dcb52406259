"""Predictions that exist already, as a trainee."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from resperturb.attacks.signals import LEAST_PROBABILITY, Query
from resperturb.auditing.ask import check_probabilities
from resperturb.auditing.candidates import unmasked
from resperturb.auditing.store import array_digest
from resperturb.auditing.trainee import Claims, Fitted, Job
from resperturb.bounds.arrays import Bools, Floats, Ints
from resperturb.errors import UsageError
from resperturb.privacy import Guarantee


@dataclass(frozen=True, eq=False)
class KeptPredictions:
    """The predictions of one model: log-probabilities ``[draws, rows, classes]``."""

    logs: Floats
    stage: str = ""
    digest: str = ""

    def queries(self, some: Ints, draws: tuple[int, ...]) -> tuple[Query, ...]:
        """As many draws as there are."""
        return (Query("served", tuple(sorted({1, len(self.logs)}))),)

    def outputs(self, rows: Ints, query: Query) -> Iterator[Floats]:
        """Yield what is kept."""
        for one in self.logs[: query.draws]:
            yield one[rows]


@dataclass(frozen=True, eq=False)
class Predictions(Claims):
    """Predictions of several models about the same rows."""

    probabilities: Sequence[Floats]
    name: str = "predictions"
    claimed: Guarantee | None = None
    description: str = "given predictions"

    def digest(self) -> str:
        """Name the predictions by their contents."""
        return array_digest(*self.probabilities)

    def fit(self, job: Job) -> Iterator[Fitted]:
        """Give the predictions of a model."""
        yield KeptPredictions(np.log(np.maximum(self.probabilities[job.number], LEAST_PROBABILITY)))


def check_model(name: str, values: ArrayLike, labels: Ints) -> Floats:
    """Return the predictions of a model as ``[draws, rows, classes]``, or say what is wrong with them."""
    try:
        found = unmasked(name, values).astype(np.float64)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name} must hold probabilities ({error}).") from error
    every = found[None] if found.ndim == 2 else found
    if every.ndim != 3:
        raise UsageError(f"{name} must be [rows, classes] or [draws, rows, classes], not {found.shape}.")
    try:
        checked: Floats = np.stack([check_probabilities(one, len(labels), int(labels.max()) + 1) for one in every])
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None
    return checked


def check_flags(name: str, values: Any, shape: tuple[int, ...]) -> Bools:
    """Return a mask of members, or say what is wrong with it."""
    found = unmasked(name, values)
    if found.shape != shape:
        raise UsageError(f"{name} must have the shape {shape}, not {found.shape}.")
    if found.dtype.kind != "b" and not np.isin(found, (0, 1)).all():
        raise UsageError(f"{name} must be true or false for every row; row numbers are not understood here.")
    return found.astype(bool)


def check_whole_units(units: Ints, members: Bools) -> None:
    """Refuse units with members and non-members."""
    _, codes = np.unique(units, return_inverse=True)
    share = np.bincount(codes, weights=members) / np.bincount(codes)
    torn = int(((share > 0) & (share < 1)).sum())
    if torn:
        raise UsageError(f"{torn} groups have members and non-members; all records of a group must be in or out.")
