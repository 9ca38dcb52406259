"""The images of a training: which of them are members, which are held out."""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch

from resperturb.data import load_pair
from resperturb.data.canaries import Bools, Canaries, concatenated, fair_coins, make_canaries
from resperturb.data.images import ImageSet
from resperturb.data.rows import Rows
from resperturb.data.splits import Indices, Quarters, four_quarters
from resperturb.data.storage import chosen_data_in
from resperturb.errors import UsageError
from resperturb.training.config import DataConfig

# The settings of the data that say how images are read.
READING = {"image_column", "label_column", "group_column", "group_pattern", "positive", "image_size", "bits", "limit"}


@dataclass(frozen=True, eq=False)
class Inputs:
    """All images that a configuration names, and which of them its models are trained on."""

    train: ImageSet
    test: ImageSet
    data: DataConfig

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits that change with any pixel or label of the training or test images."""
        return self.train.fingerprint[:8] + self.test.fingerprint[:8]

    @property
    def _part(self) -> str:
        """The part of the run whose audit this belongs to."""
        return self.data.canaries_for if self.data.part == "rows" else self.data.part

    @cached_property
    def quarters(self) -> Quarters:
        """The paper's four quarters of the training images."""
        return four_quarters(len(self.train), self.data.split_seed, self.train.groups)

    @cached_property
    def held_back(self) -> Indices:
        """A tenth of the images, at most 400 and by whole groups, that models of the part ``half`` never see."""
        count = len(self.train)
        return self._aside(np.random.default_rng([self.data.split_seed, 3]).permutation(count), min(400, count // 10))

    @cached_property
    def validation(self) -> Indices:
        """The images that early stopping looks at, by whole groups; none of them is held back as well."""
        wanted = int(self.data.validation * len(self.train))
        if not wanted:
            return np.zeros(0, dtype=np.int64)
        order = np.random.default_rng([self.data.split_seed, 4]).permutation(len(self.train))
        chosen = self._aside(order[~np.isin(order, self.held_back)], wanted)
        if not len(chosen):
            raise UsageError(f"no whole group is small enough for {wanted} validation images; raise --validation.")
        return chosen

    def _aside(self, order: Indices, wanted: int) -> Indices:
        """Take the first images of an order, or as many of its first groups as fit."""
        if self.train.groups is None:
            return np.sort(order[:wanted])
        names, codes = np.unique(self.train.groups, return_inverse=True)
        sizes = np.bincount(codes)
        chosen = np.zeros(len(names), dtype=bool)
        for group in dict.fromkeys(codes[order].tolist()):
            if sizes[chosen].sum() + sizes[group] <= wanted:
                chosen[group] = True
        return np.flatnonzero(chosen[codes])

    @cached_property
    def candidates(self) -> Indices:
        """The images whose membership an attack guesses: both quarters of the target, or all but those held back."""
        if self._part == "half":
            return np.setdiff1d(np.arange(len(self.train)), self.held_back)
        return np.sort(np.concatenate([self.quarters.target_train, self.quarters.target_out]))

    @cached_property
    def spare(self) -> Indices:
        """The images that canaries and populations are made from; no model is trained on those that are taken."""
        if self._part == "all":
            return np.setdiff1d(np.arange(len(self.train)), self.validation)
        if self._part == "half":
            return self.held_back
        return self.quarters.target_out if self._part == "shadow_train" else self.quarters.shadow_out

    @cached_property
    def canaries(self) -> Canaries | None:
        """The canaries, whether or not they are put in."""
        wanted = self.data.canaries
        return None if wanted is None else make_canaries(self.train, self.spare, wanted.counts, wanted.seed)

    @property
    def left_out(self) -> Indices:
        """The images that stand aside for the canaries that were made from them."""
        return np.zeros(0, dtype=np.int64) if self.canaries is None else self.canaries.left_out

    @property
    def canary_coins(self) -> Bools:
        """Whether each of the canaries is put in."""
        count = 0 if self.canaries is None else len(self.canaries)
        if self.data.rows is not None:
            return np.isin(np.arange(count) + len(self.train), self._row_numbers())
        return fair_coins(count, self.data.subset_seed, purpose=1)

    @property
    def member_indices(self) -> Indices:
        """Which of the training images are trained on, canaries aside."""
        part = self.data.part
        if part == "rows":
            numbers = self._row_numbers()
            return numbers[numbers < len(self.train)]
        if part == "all":
            return np.setdiff1d(self.spare, self.left_out)
        if part in ("audit", "half"):
            return self.candidates[self._coins(self.candidates)]
        quarter: Indices = getattr(self.quarters, part)
        return quarter

    def table(self) -> ImageSet:
        """Return the rows that models of one audit are trained on: all training images, then the canaries."""
        return self.train if self.canaries is None else concatenated(self.train, self.canaries.images)

    def members(self) -> ImageSet:
        """Return the images that a model is trained on, and the canaries whose coin says so."""
        images = self.train.select(self.member_indices)
        if self.canaries is None:
            return images
        return concatenated(images, self.canaries.images.select(np.flatnonzero(self.canary_coins)))

    def _row_numbers(self) -> Indices:
        rows = self.data.rows
        if rows is None or rows.numbers is None:
            raise UsageError(
                "the configuration names its rows by their digest only; they are kept in rows.npy next to the "
                "config.json of its run."
            )
        canaries = 0 if self.canaries is None else len(self.canaries)
        if (last := int(rows.numbers[-1])) >= len(self.train) + canaries:
            raise UsageError(f"there is no row {last}: there are {len(self.train)} images and {canaries} canaries.")
        return rows.numbers

    def _coins(self, pool: Indices) -> Bools:
        """Toss a coin for every image of a pool, or one for all images of a group."""
        groups = np.arange(len(pool)) if self.train.groups is None else self.train.groups[pool]
        names, group = np.unique(groups, return_inverse=True)
        return fair_coins(len(names), self.data.subset_seed)[group]


_read_pair = lru_cache(maxsize=3)(load_pair)


def load_inputs(data: DataConfig) -> Inputs:
    """Read the images that ``data`` names; the last few sets stay in memory.

    Where they are kept is no part of the configuration, for no result depends on that: the environment variable
    RESPERTURB_DATA_IN says it.

    Raises:
        UsageError: They cannot be read, or are not those of the fingerprint that ``data`` carries.
    """
    reading = data.model_dump(include=READING)
    try:
        pair = _received.get(data.fingerprint) or _read_pair(data.spec, **reading, data_in=chosen_data_in())
    except UsageError as error:
        if not data.fingerprint:
            raise
        raise UsageError(
            f"{error} The images are those of --data {data.spec} when this was trained: give the command in the "
            "folder that it was given in, or put them back."
        ) from error
    found = Inputs(*pair, data)
    if data.fingerprint not in ("", found.fingerprint):
        raise UsageError(
            f"{data.spec} is not the data this was made with: its images have changed (fingerprint "
            f"{found.fingerprint}, expected {data.fingerprint})."
        )
    return found


# Images that came from another process, by their fingerprint.
_received: dict[str, tuple[ImageSet, ImageSet]] = {}


def packed(data: DataConfig) -> list[tuple[Any, ...]] | None:
    """Pack the images for other processes; None if they are not in memory."""
    inputs = load_inputs(data)
    both = (inputs.train, inputs.test)
    if not all(isinstance(part.images, torch.Tensor) for part in both):
        return None
    # As arrays of numpy, which the workers of a node read in place; tensors would be copied into each of them.
    return [(part.images[:].numpy(), part.labels.numpy(), part.classes, part.groups, part.name) for part in both]


def receive(data: DataConfig, shared: Any | None) -> None:
    """Read from now on the images that another process packed, and no file; None leaves everything as it is."""
    if shared is not None and data.fingerprint not in _received:
        train, test = (
            ImageSet(Rows([images]), torch.from_numpy(labels.copy()), *about) for images, labels, *about in shared
        )
        _received.clear()
        _received[data.fingerprint] = train, test
