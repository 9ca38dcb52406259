"""Whose membership is in question: the records of the target half and the canaries, and outsiders to compare with."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from resperturb.data.canaries import Bools, Names, joined
from resperturb.data.images import ImageSet
from resperturb.data.splits import Indices
from resperturb.training.config import DataConfig
from resperturb.training.inputs import Inputs, load_inputs

RECORD = "record"
# They only break ties among those who beat all others, so a few will do.
MOST_OUTSIDERS = 200


@dataclass(frozen=True, eq=False)
class Candidates:
    """The rows that every model is asked about: candidates first, then outsiders that no model was trained on.

    ``kinds`` names each candidate: ``record``, or the kind of canary it is. ``indices`` are the records' places in
    the training images.
    """

    images: ImageSet
    kinds: Names
    indices: Indices
    data: DataConfig

    def __len__(self) -> int:
        return len(self.kinds)

    @property
    def labels(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The label of every row."""
        return self.images.labels.numpy()

    @cached_property
    def digest(self) -> str:
        """What the answers about these rows depend on, as sixteen hexadecimal digits."""
        return hashlib.sha256(self.images.fingerprint.encode()).hexdigest()[:16]

    def members(self, data: DataConfig) -> Bools:
        """Say of every row whether a model of ``data`` was trained on it."""
        inputs = load_inputs(data)
        canaries = len(self) - len(self.indices)
        return np.concatenate(
            [
                np.isin(self.indices, inputs.member_indices(data.part)),
                inputs.canary_coins(canaries),
                np.zeros(len(self.images) - len(self), dtype=bool),
            ]
        )

    def coins(self) -> Bools:
        """Say of every candidate whether its own fair coin decided about it, and not a cut into quarters."""
        by_coin: Bools = self.kinds != RECORD
        if self.data.part == "audit" and self.images.groups is None:
            by_coin = np.ones_like(by_coin)
        return by_coin


def candidates(data: DataConfig, outsiders: int = MOST_OUTSIDERS) -> Candidates:
    """Find the rows to ask the models of ``data`` about; at most so many ``outsiders``.

    >>> found = candidates(DataConfig(spec="fashion-sample", limit=80, part="target_train"), outsiders=10)
    >>> len(found), len(found.images), int(found.members(found.data).sum())
    (40, 50, 20)
    """
    inputs = load_inputs(data)
    canaries = inputs.canaries(data.part)
    indices = np.zeros(0, dtype=np.int64) if data.part == "all" else inputs.target_half
    images = inputs.train.select(indices)
    kinds = np.full(len(indices), RECORD, dtype="<U32")
    if canaries is not None:
        images = joined(images, canaries.images)
        kinds = np.concatenate([kinds, canaries.kinds])
    images = joined(images, _outsiders(inputs, data, outsiders))
    return Candidates(images, kinds, indices, data)


def _outsiders(inputs: Inputs, data: DataConfig, most: int) -> ImageSet:
    """Images of the other half that no canary was made from; where all are trained on, test images."""
    if data.part == "all":
        return inputs.test.select(np.arange(min(most, len(inputs.test))))
    canaries = inputs.canaries(data.part)
    others = inputs.quarters.shadow_out
    spare = others if canaries is None else np.setdiff1d(others, canaries.left_out)
    return inputs.train.select(np.random.default_rng(data.split_seed).permutation(spare)[:most])
