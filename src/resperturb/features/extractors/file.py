"""Features of a user's own, from a file: ``file:features.npz``."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from resperturb.checks import finite_rows
from resperturb.data.images import ImageSet
from resperturb.data.paths import expanded, printable
from resperturb.errors import UsageError
from resperturb.features.extractor import Extractor, Features, Part, Progress, Reduction, register_extractor
from resperturb.files import digest_of

_LAYOUT = "an .npz file with the arrays train and test, or a folder with train.npy and test.npy"


@register_extractor("file")
class FileFeatures(Extractor):
    """Arrays ``train`` and ``test``, one row per image in the order of the data set.

    Arrays ``train_labels`` and ``test_labels``, if they are there, must agree with the data set's labels.
    """

    def __init__(self, name: str, weights: str, reduction: Reduction | None) -> None:
        super().__init__(name, weights, reduction)
        if weights or reduction is not None:
            raise UsageError(
                "features from a file have no weights and no reduction: write them as they are to be used."
            )
        self.place = expanded(name)
        if not self.place.exists():
            raise UsageError(f"there is no {printable(name)}; file: takes {_LAYOUT}.")
        self.rows = {part: _array(self.place, part) for part in ("train", "test")}
        widths = {part: rows.shape[1] for part, rows in self.rows.items()}
        if len(set(widths.values())) > 1:
            raise UsageError(f"the parts of {self._file} have different numbers of features: {widths}.")

    @property
    def _file(self) -> str:
        return printable(self.place.name)

    def public(self) -> tuple[str, str, str, str]:
        """Describe the file; where its numbers come from only the user knows."""
        files = sorted(self.place.glob("*.npy")) if self.place.is_dir() else [self.place]
        digest = hashlib.sha256(repr([digest_of(file) for file in files]).encode()).hexdigest()
        origin = f"The user's file {self._file}; how it was made cannot be checked here."
        return f"file:{self._file}", origin, f"sha256:{digest}", "none"

    def raw_dimensions(self, channels: int, size: tuple[int, int]) -> int:
        """Return the width of the arrays."""
        return int(self.rows["train"].shape[1])

    def raw(self, channels: int, size: tuple[int, int]) -> nn.Module:
        """Refuse: there is no network."""
        raise UsageError(f"features of the file {self._file} cannot be computed for other images.")

    def compute(self, images: ImageSet, part: Part = "train", progress: Progress | None = None) -> Features:
        """Return the rows of one part, after checking that they are finite and fit the images."""
        rows = self.rows[part]
        if len(rows) != len(images):
            raise UsageError(
                f"{self._file} has {len(rows):,} rows of {part} features for {len(images):,} {part} images: there "
                "must be one row per image, in the order of the data set."
            )
        labels = _load(self.place, f"{part}_labels")
        if labels is not None and not np.array_equal(labels, images.labels.numpy()):
            raise UsageError(
                f"the {part} labels of {self._file} are not those of the images: bring the rows into the order of "
                f"the data set, with its class numbers (0 is {images.classes[0]!r})."
            )
        with np.errstate(over="ignore"):  # what is too large is not finite
            found = np.array(rows, dtype=np.float32)
        finite_rows(f"the {part} features of {self._file}", found)
        return found


def _array(place: Path, part: str) -> NDArray[Any]:
    rows = _load(place, part)
    if rows is None:
        raise UsageError(f"{printable(place)} has no array {part}; file: takes {_LAYOUT}.")
    if rows.ndim != 2 or rows.dtype.kind not in "fiu" or not rows.shape[1]:
        raise UsageError(
            f"the array {part} of {printable(place.name)} must be numbers [n, d], not {rows.dtype} {rows.shape}."
        )
    return rows


def _load(place: Path, name: str) -> NDArray[Any] | None:
    try:
        if place.is_dir():
            file = place / f"{name}.npy"
            return np.load(file, mmap_mode="r", allow_pickle=False) if file.is_file() else None
        with np.load(place, allow_pickle=False) as arrays:
            found: NDArray[Any] | None = arrays.get(name)
            return found
    except (ValueError, OSError, EOFError, AttributeError, TypeError) as error:
        raise UsageError(f"{printable(place)} cannot be read as arrays of numbers; file: takes {_LAYOUT}.") from error
