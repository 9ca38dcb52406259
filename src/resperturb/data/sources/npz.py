"""Images in a .npz file of arrays, and the embedded sample of Fashion-MNIST, which is one."""

import zipfile
from dataclasses import replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np

from resperturb.data.paths import one_line, open_regular, printable
from resperturb.data.records import Columns, Records, clean_groups, clean_labels, identity_of
from resperturb.data.sources import SAMPLE, Parts, Place, data_sources
from resperturb.data.storage import SHARE_OF_MEMORY, physical_memory
from resperturb.errors import UsageError

CLASSES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip


@data_sources.register("npz")
class Npz:
    """A ``.npz`` file with ``x_train, y_train, x_test, y_test``, or ``images, labels``."""

    def accepts(self, place: Place) -> bool:
        """Say whether it is a file of that name."""
        return place.path is not None and not place.path.is_dir() and place.path.suffix.lower() == ".npz"

    def read(self, place: Place) -> Parts:
        """Read the arrays."""
        assert place.path is not None
        return read_npz(place.path, place.columns)


@data_sources.register("sample")
class Sample:
    """``fashion-sample``: 4,000 training and 2,000 test images that come with the package."""

    def accepts(self, place: Place) -> bool:
        """Say whether the name is that of the sample."""
        return place.spec == SAMPLE and place.path is None

    def read(self, place: Place) -> Parts:
        """Read the archive of the package."""
        with as_file(files("resperturb.data") / "embedded" / f"{SAMPLE}.npz") as file:
            train, test = read_npz(file, place.columns)
        assert test is not None
        return replace(train, names=CLASSES), replace(test, names=CLASSES)


def read_npz(file: Path, columns: Columns) -> Parts:
    """Read ``x_train, y_train, x_test, y_test``, or ``images, labels`` (then there is no test part).

    A group column ``patient`` means the arrays ``patient_train`` and ``patient_test``, or ``patient``. Images are
    ``[N, H, W]``, ``[N, H, W, C]`` or ``[N, C, H, W]``.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/cells.npz", images=np.zeros((2, 8, 8)), labels=["benign", "malignant"])
    ...     train, test = read_npz(Path(folder, "cells.npz"), Columns())
    >>> train.labels, test
    (('benign', 'malignant'), None)
    """
    shown = printable(file)
    try:
        with open_regular(file) as opened:
            if not zipfile.is_zipfile(opened):
                raise UsageError(f"{shown} is no npz file (an archive of arrays), or a damaged one.")
            opened.seek(0)
            with np.load(opened, allow_pickle=False) as arrays:
                return _parts(_Arrays(file, shown, arrays), columns)
    except UsageError:
        raise
    except OSError as error:
        raise UsageError(f"{shown} cannot be read: {one_line(error)}.") from None
    except Exception as error:  # zipfile, zlib and numpy raise many kinds on damaged files
        raise UsageError(f"{shown} is damaged, encrypted or holds pickled objects: {one_line(error)}.") from None


class _Arrays:
    """The arrays of an open archive, by name."""

    def __init__(self, file: Path, shown: str, arrays: Any) -> None:
        self.file, self.shown, self.arrays = file, shown, arrays
        names = arrays.files
        if twice := [name for name in names if names.count(name) > 1]:
            raise UsageError(f"There are two arrays {twice[0]!r} in {shown}: save it anew.")
        self.sizes = dict(zip(names, (info.file_size for info in arrays.zip.infolist()), strict=True))

    def read(self, name: str) -> np.ndarray[Any, Any]:
        if name not in self.sizes:
            there = ", ".join(map(repr, self.sizes)) or "none"
            raise UsageError(
                f"There is no array {name!r} in {self.shown}; its arrays are {there}. Images and labels are expected "
                "as 'images', 'labels' or 'x_train', 'y_train', 'x_test', 'y_test'."
            )
        if self.sizes[name] > SHARE_OF_MEMORY * physical_memory():
            raise UsageError(
                f"The array {name!r} of {self.shown} takes {self.sizes[name] / 2**30:,.0f} GiB unpacked, too much of "
                "this machine's memory: use parquet files or an image folder."
            )
        found: np.ndarray[Any, Any] = self.arrays[name]
        return found


def _parts(arrays: _Arrays, columns: Columns) -> Parts:
    image, label, group = columns.image or "x", columns.label or "y", columns.group
    if f"{image}_train" not in arrays.sizes:
        return _records(arrays, columns.image or "images", columns.label or "labels", group), None

    def part(name: str) -> Records:
        return _records(arrays, f"{image}_{name}", f"{label}_{name}", group and f"{group}_{name}")

    return part("train"), part("test") if f"{image}_test" in arrays.sizes else None


def _records(arrays: _Arrays, image: str, label: str, group: str | None) -> Records:
    what = f"array {image!r} of {arrays.shown}"
    pixels = _pixels(arrays.read(image), what)
    where = tuple(f"row {i} of {image!r} in {arrays.shown}" for i in range(len(pixels)))

    def column(name: str) -> list[Any]:
        values = arrays.read(name)
        flat = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
        if flat.shape != (len(pixels),):
            raise UsageError(
                f"The array {name!r} of {arrays.shown} must hold one value for each of the {len(pixels)} images, not "
                f"{values.shape}."
            )
        return list(flat.tolist())

    labels = clean_labels(column(label), where, f"array {label!r}")
    groups = None if group is None else clean_groups(column(group), where, f"array {group!r}")
    return Records(pixels, labels, groups, None, where, what, identity_of([arrays.file], image))


def _pixels(values: np.ndarray[Any, Any], what: str) -> np.ndarray[Any, Any]:
    """Convert to ``[N, H, W]`` or ``[N, H, W, 3]`` of uint8, or of uint16 where no smaller type holds the values."""
    if values.size == 0:
        raise UsageError(f"The {what} is empty.")
    if values.ndim == 4 and values.shape[3] not in (1, 3, 4) and values.shape[1] in (1, 3, 4):
        values = values.transpose(0, 2, 3, 1)
    if values.ndim not in (3, 4) or (values.ndim == 4 and values.shape[3] not in (1, 3, 4)):
        raise UsageError(
            f"The {what} has the shape {values.shape}; images are [N, H, W], [N, H, W, C] or [N, C, H, W] "
            "with 1, 3 or 4 channels."
        )
    pixels = _integers(values, what)
    if pixels.ndim == 4 and pixels.shape[3] == 1:
        return pixels[..., 0]
    if pixels.ndim == 4 and pixels.shape[3] == 4:  # lay transparent pixels on white, as for image files
        if pixels.dtype != np.uint8:
            raise UsageError(f"The {what} has transparent pixels of 16 bits: lay them on white first.")
        alpha = pixels[..., 3:].astype(np.float32) / 255
        flat: np.ndarray[Any, Any] = np.rint(pixels[..., :3] * alpha + 255 * (1 - alpha)).astype(np.uint8)
        return flat
    return pixels


def _integers(values: np.ndarray[Any, Any], what: str) -> np.ndarray[Any, Any]:
    if values.dtype in (np.uint8, np.uint16):
        return values
    if values.dtype == np.bool_:
        return values.astype(np.uint8) * np.uint8(255)
    if values.dtype.kind in "iuf":
        low, high = values.min(), values.max()  # NaN makes all comparisons below false
        if values.dtype.kind == "f" and low >= 0 and high <= 1:
            scaled: np.ndarray[Any, Any] = np.rint(values * 255).astype(np.uint8)
            return scaled
        if low >= 0 and high <= 255 and high > 1 and (values == np.rint(values)).all():
            return values.astype(np.uint8)
        raise UsageError(
            f"The {what} holds {values.dtype} values from {low} to {high}, whose range is unclear: "
            "give uint8 (0 to 255), uint16 (0 to 65535, or less with --bits) or floats from 0 to 1."
        )
    raise UsageError(f"The {what} holds {values.dtype} values, not pixels.")
