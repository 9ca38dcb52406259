"""Whose membership is in question in the audit of a run: records and canaries; and the population to compare with."""

import hashlib
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from resperturb.audits.assess import Candidates
from resperturb.bounds.audit_result import RECORD
from resperturb.data.canaries import Bools, Names, concatenated
from resperturb.data.images import ImageSet
from resperturb.data.splits import Indices
from resperturb.training.config import DataConfig
from resperturb.training.inputs import Inputs, load_inputs

# They only break ties among those who beat all others, so a few will do.
MOST_POPULATION = 200


@dataclass(frozen=True, eq=False)
class CandidateImages:
    """The rows that every model is asked about: candidates first, then a population that no model was trained on.

    ``kinds`` names each candidate: ``record``, or the kind of canary it is. ``indices`` are the records' places in
    the training images.
    """

    images: ImageSet
    kinds: Names
    indices: Indices
    data: DataConfig

    def __len__(self) -> int:
        return len(self.kinds)

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

    def candidates(self) -> Candidates:
        """The candidates, for the target of these data."""
        count = len(self)
        groups = self.images.groups
        return Candidates(
            members=self.members(self.data)[:count],
            labels=self.images.labels.numpy()[:count],
            kinds=self.kinds,
            groups=None if groups is None else groups[:count],
            population=len(self.images) - count,
            neighbours="add_remove" if self.data.part in ("audit", "half") else "swap",
        )


@lru_cache(maxsize=2)
def candidate_images(data: DataConfig, population: int = MOST_POPULATION) -> CandidateImages:
    """Find the rows to ask the models of ``data`` about.

    Args:
        data: The data of the target.
        population: The most records of the population.

    >>> found = candidate_images(DataConfig(spec="fashion-sample", limit=80, part="target_train"), population=10)
    >>> len(found), len(found.images), int(found.members(found.data).sum())
    (40, 50, 20)
    """
    inputs = load_inputs(data)
    canaries = inputs.canaries(data.part)
    indices = np.zeros(0, dtype=np.int64) if data.part == "all" else inputs.candidates(data.part)
    images = inputs.train.select(indices)
    kinds = np.full(len(indices), RECORD, dtype="<U32")
    if canaries is not None:
        images = concatenated(images, canaries.images)
        kinds = np.concatenate([kinds, canaries.kinds])
    images = concatenated(images, _population(inputs, data, population))
    return CandidateImages(images, kinds, indices, data)


def _population(inputs: Inputs, data: DataConfig, most: int) -> ImageSet:
    """Records that neither target nor shadow models are trained on, nor any canary was made from; or test images."""
    if data.part == "all":
        return inputs.test.select(np.arange(min(most, len(inputs.test))))
    canaries = inputs.canaries(data.part)
    spare = inputs.spare(data.part)
    spare = spare if canaries is None else np.setdiff1d(spare, canaries.left_out)
    return inputs.train.select(np.random.default_rng(data.split_seed).permutation(spare)[:most])
