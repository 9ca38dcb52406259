"""The images of a training: which of them are members, which are held out."""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from resperturb.data.images import ImageSet
from resperturb.data.sources import load_pair
from resperturb.data.splits import Quarters, four_quarters
from resperturb.errors import UsageError
from resperturb.training.config import DataConfig


@dataclass(frozen=True, eq=False)
class Inputs:
    """All training images, the test images, and the split of the former."""

    train: ImageSet
    test: ImageSet
    split_seed: int

    @cached_property
    def quarters(self) -> Quarters:
        """The paper's four quarters of the training images."""
        return four_quarters(len(self.train), self.split_seed, self.train.groups)

    def members(self, part: str) -> ImageSet:
        """The images that a model of this part is trained on."""
        if part == "all":
            return self.train
        return self.train.select(getattr(self.quarters, part))


def load_inputs(data: DataConfig) -> Inputs:
    """Read the images that ``data`` names; the last few sets stay in memory.

    A configuration that carries a fingerprint is only served by the very same images.
    """
    train, test = _load_pair(data.model_copy(update={"part": "all", "fingerprint": "", "split_seed": 0}))
    inputs = Inputs(train, test, data.split_seed)
    if data.fingerprint and data.fingerprint != fingerprint(inputs):
        raise UsageError(
            f"{data.spec} is not the data this was made with: its images have changed (fingerprint "
            f"{fingerprint(inputs)}, expected {data.fingerprint})."
        )
    return inputs


def fingerprint(inputs: Inputs) -> str:
    """Sixteen hexadecimal digits that change with any pixel or label of the training or test images."""
    return inputs.train.fingerprint[:8] + inputs.test.fingerprint[:8]


def out_indices(inputs: Inputs, part: str) -> np.ndarray:
    """The images of the same half that a model of ``part`` was not trained on: the non-members of the attack."""
    quarters = inputs.quarters
    return quarters.target_out if part == "target_train" else quarters.shadow_out


@lru_cache(maxsize=3)
def _load_pair(data: DataConfig) -> tuple[ImageSet, ImageSet]:
    return load_pair(
        data.spec,
        image_column=data.image_column,
        label_column=data.label_column,
        group_column=data.group_column,
        image_size=data.image_size,
        limit=data.limit,
    )
