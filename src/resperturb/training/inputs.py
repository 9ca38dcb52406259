"""The images of a training: which of them are members, which are held out."""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from resperturb.data import load_pair
from resperturb.data.canaries import Bools, Canaries, concatenated, fair_coins, make_canaries
from resperturb.data.images import ImageSet
from resperturb.data.splits import Indices, Quarters, RowNumbers, four_quarters
from resperturb.data.storage import DataIn, chosen_data_in
from resperturb.errors import UsageError
from resperturb.training.config import CanaryConfig, DataConfig


@dataclass(frozen=True, eq=False)
class Inputs:
    """All training images, the test images, and the split of the former."""

    train: ImageSet
    test: ImageSet
    split_seed: int
    subset_seed: int = 0
    canary_config: CanaryConfig | None = None
    rows: RowNumbers | None = None
    canaries_for: str = "all"
    validation_share: float = 0.0

    @cached_property
    def quarters(self) -> Quarters:
        """The paper's four quarters of the training images."""
        return four_quarters(len(self.train), self.split_seed, self.train.groups)

    @cached_property
    def target_half(self) -> Indices:
        """The images that ``audit`` tosses its coins for: both quarters of the target."""
        return np.sort(np.concatenate([self.quarters.target_train, self.quarters.target_out]))

    def candidates(self, part: str) -> Indices:
        """The images whose membership an attack on a model of this part guesses."""
        return np.setdiff1d(np.arange(len(self.train)), self.held_back) if part == "half" else self.target_half

    def spare(self, part: str) -> Indices:
        """Images that no target nor shadow model of an audit of this part is trained on."""
        return self.held_back if part == "half" else self.quarters.shadow_out

    @cached_property
    def held_back(self) -> Indices:
        """A tenth of the images, at most 400 and by whole groups, that models of the part ``half`` never see."""
        count = len(self.train)
        return self._aside(np.random.default_rng([self.split_seed, 3]).permutation(count), min(400, count // 10))

    @cached_property
    def validation(self) -> Indices:
        """The images that early stopping looks at, by whole groups; none of them is held back as well."""
        wanted = int(self.validation_share * len(self.train))
        if not wanted:
            return np.zeros(0, dtype=np.int64)
        order = np.random.default_rng([self.split_seed, 4]).permutation(len(self.train))
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

    def table(self, part: str) -> ImageSet:
        """The rows that models of one audit are trained on: all training images, then the canaries of this part."""
        canaries = self.canaries(part)
        return self.train if canaries is None else concatenated(self.train, canaries.images)

    def members(self, part: str) -> ImageSet:
        """The images that a model of this part is trained on, and the canaries whose coin says so."""
        images = self.train.select(self.member_indices(part))
        canaries = self.canaries(part)
        if self.rows is not None:
            self._check_rows(0 if canaries is None else len(canaries))
        if canaries is None:
            return images
        return concatenated(images, canaries.images.select(np.flatnonzero(self.canary_coins(len(canaries)))))

    def member_indices(self, part: str) -> Indices:
        """Which of the training images a model of this part is trained on, canaries aside."""
        if part == "rows":
            numbers = self._row_numbers()
            return numbers[numbers < len(self.train)]
        if part == "all":
            canaries = self.canaries(part)
            everybody = np.setdiff1d(np.arange(len(self.train)), self.validation)
            return everybody if canaries is None else np.setdiff1d(everybody, canaries.left_out)
        if part in ("audit", "half"):
            pool = self.candidates(part)
            return pool[self._coins(pool)]
        quarter: Indices = getattr(self.quarters, part)
        return quarter

    def canaries(self, part: str) -> Canaries | None:
        """The canaries of models of this part, made from images that none of these is trained on."""
        config = self.canary_config
        if config is None:
            return None
        if part == "rows":
            part = self.canaries_for
        if part == "all":
            spare = np.setdiff1d(np.arange(len(self.train)), self.validation)
        else:
            spare = self.quarters.target_out if part == "shadow_train" else self.spare(part)
        return make_canaries(self.train, spare, config.counts, config.seed)

    def canary_coins(self, count: int) -> Bools:
        """Say which of the canaries are put in."""
        if self.rows is not None:
            return np.isin(np.arange(count) + len(self.train), self._row_numbers())
        return fair_coins(count, self.subset_seed, purpose=1)

    def _row_numbers(self) -> Indices:
        if self.rows is None or self.rows.numbers is None:
            raise UsageError(
                "the configuration names its rows by their digest only; they are kept in rows.npy next to the "
                "config.json of its run."
            )
        return self.rows.numbers

    def _check_rows(self, canaries: int) -> None:
        count, last = len(self.train) + canaries, int(self._row_numbers()[-1])
        if last >= count:
            raise UsageError(f"there is no row {last}: there are {len(self.train)} images and {canaries} canaries.")

    def _coins(self, pool: Indices) -> Bools:
        groups = self.train.groups
        if groups is None:
            return fair_coins(len(pool), self.subset_seed)
        # Who belongs together is in or out together: one coin per group.
        names, group = np.unique(groups[pool], return_inverse=True)
        return fair_coins(len(names), self.subset_seed)[group]


def load_inputs(data: DataConfig) -> Inputs:
    """Read the images that ``data`` names; the last few sets stay in memory.

    Where they are kept is no part of the configuration, for no result depends on that: the environment variable
    RESPERTURB_DATA_IN says it.

    Args:
        data: Which images, and how to read them.

    Returns:
        The training and test images, and who is a member.

    Raises:
        UsageError: They cannot be read, or are not those of the fingerprint that ``data`` carries.
    """
    same_images = data.model_copy(
        update={
            "part": "all",
            "fingerprint": "",
            "split_seed": 0,
            "subset_seed": 0,
            "canaries": None,
            "rows": None,
            "canaries_for": "all",
            "validation": 0.0,
        }
    )
    try:
        train, test = _provided.get(data.fingerprint) or _load_pair(same_images, chosen_data_in())
    except UsageError as error:
        if not data.fingerprint:
            raise
        raise UsageError(
            f"{error} The images are those of --data {data.spec} when this was trained: give the command in the "
            "folder that it was given in, or put them back."
        ) from error
    inputs = Inputs(
        train,
        test,
        data.split_seed,
        data.subset_seed,
        data.canaries,
        data.rows,
        data.canaries_for,
        data.validation,
    )
    if data.fingerprint and data.fingerprint != fingerprint(inputs):
        raise UsageError(
            f"{data.spec} is not the data this was made with: its images have changed (fingerprint "
            f"{fingerprint(inputs)}, expected {data.fingerprint})."
        )
    return inputs


# Images that came from another machine, by their fingerprint.
_provided: dict[str, tuple[ImageSet, ImageSet]] = {}


def provide(train: ImageSet, test: ImageSet) -> None:
    """Serve these images, and no file, to every configuration that carries their fingerprint; forget others."""
    _provided.clear()
    _provided[fingerprint(Inputs(train, test, split_seed=0))] = train, test


def is_provided(mark: str) -> bool:
    """Whether the images of this fingerprint were given to :func:`provide`."""
    return mark in _provided


def fingerprint(inputs: Inputs) -> str:
    """Name images by their content.

    Args:
        inputs: The images.

    Returns:
        Sixteen hexadecimal digits that change with any pixel or label of the training or test images.
    """
    return inputs.train.fingerprint[:8] + inputs.test.fingerprint[:8]


def out_indices(inputs: Inputs, part: str) -> np.ndarray:
    """Find the non-members of an attack.

    Args:
        inputs: All images.
        part: What the model was trained on.

    Returns:
        The images of the same half that it was not trained on.
    """
    if part == "shadow_train":
        return inputs.quarters.shadow_out
    return np.setdiff1d(inputs.candidates(part), inputs.member_indices(part))


@lru_cache(maxsize=3)
def _load_pair(data: DataConfig, data_in: DataIn) -> tuple[ImageSet, ImageSet]:
    return load_pair(
        data.spec,
        image_column=data.image_column,
        label_column=data.label_column,
        group_column=data.group_column,
        group_pattern=data.group_pattern,
        positive=data.positive,
        image_size=data.image_size,
        bits=data.bits,
        limit=data.limit,
        data_in=data_in,
    )
