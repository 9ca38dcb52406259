"""Images in a .npz file of arrays."""

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from resperturb.data.records import Records, clean_groups, clean_labels, identity_of
from resperturb.data.tables import Columns
from resperturb.errors import UsageError


def read_npz(file: Path, columns: Columns) -> tuple[Records, Records | None]:
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
    arrays = _arrays(file)
    image, label, group = columns.image or "x", columns.label or "y", columns.group
    if f"{image}_train" not in arrays:
        return _records(file, arrays, columns.image or "images", columns.label or "labels", group), None

    def part(name: str) -> Records:
        return _records(file, arrays, f"{image}_{name}", f"{label}_{name}", group and f"{group}_{name}")

    return part("train"), part("test") if f"{image}_test" in arrays else None


def _arrays(file: Path) -> dict[str, np.ndarray[Any, Any]]:
    try:
        if not zipfile.is_zipfile(file):
            raise UsageError(f"{file} is no npz file (an archive of arrays), or a damaged one.")
        with np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (ValueError, OSError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        if isinstance(error, UsageError):
            raise
        if "allow_pickle" in str(error):
            raise UsageError(
                f"{file} holds pickled objects, which may run code when loaded: save plain arrays of numbers or "
                "text with numpy.savez."
            ) from None
        raise UsageError(f"{file} is a damaged npz file or cannot be read: {error}.") from None


def _records(
    file: Path, arrays: dict[str, np.ndarray[Any, Any]], image: str, label: str, group: str | None
) -> Records:
    for name in (image, label, *(() if group is None else (group,))):
        if name not in arrays:
            there = ", ".join(repr(present) for present in arrays) or "none"
            raise UsageError(
                f"There is no array {name!r} in {file}; its arrays are {there}. Images and labels are expected as "
                "'images', 'labels' or 'x_train', 'y_train', 'x_test', 'y_test'."
            )
    pixels = _pixels(arrays[image], f"array {image!r} of {file}")
    where = tuple(f"row {i} of {image!r} in {file}" for i in range(len(pixels)))
    values = _column(arrays[label], len(pixels), f"{label!r} of {file}")
    labels = clean_labels(values, where, f"array {label!r}")
    groups = None
    if group is not None:
        groups = clean_groups(_column(arrays[group], len(pixels), f"{group!r} of {file}"), where, f"array {group!r}")
    return Records(pixels, labels, groups, None, where, f"array {image!r} of {file}", identity_of([file], image))


def _column(values: np.ndarray[Any, Any], n: int, what: str) -> list[Any]:
    flat = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
    if flat.shape != (n,):
        raise UsageError(f"The array {what} must hold one value for each of the {n} images, not {values.shape}.")
    return list(flat.tolist())


def _pixels(values: np.ndarray[Any, Any], what: str) -> np.ndarray[Any, Any]:
    """Convert to uint8 ``[N, H, W]`` or ``[N, H, W, 3]``."""
    if values.size == 0:
        raise UsageError(f"The {what} is empty.")
    if values.ndim == 4 and values.shape[3] not in (1, 3, 4) and values.shape[1] in (1, 3, 4):
        values = values.transpose(0, 2, 3, 1)
    if values.ndim not in (3, 4) or (values.ndim == 4 and values.shape[3] not in (1, 3, 4)):
        raise UsageError(
            f"The {what} has the shape {values.shape}; images are [N, H, W], [N, H, W, C] or [N, C, H, W] "
            "with 1, 3 or 4 channels."
        )
    pixels = _eight_bit(values, what)
    if pixels.ndim == 4 and pixels.shape[3] == 1:
        return pixels[..., 0]
    if pixels.ndim == 4 and pixels.shape[3] == 4:  # lay transparent pixels on white, as for image files
        alpha = pixels[..., 3:].astype(np.float32) / 255
        flat: np.ndarray[Any, Any] = np.rint(pixels[..., :3] * alpha + 255 * (1 - alpha)).astype(np.uint8)
        return flat
    return pixels


def _eight_bit(values: np.ndarray[Any, Any], what: str) -> np.ndarray[Any, Any]:
    if values.dtype == np.uint8:
        return values
    if values.dtype == np.bool_:
        return values.astype(np.uint8) * np.uint8(255)
    if values.dtype == np.uint16:
        return ((values.astype(np.uint32) + 128) // 257).astype(np.uint8)
    if values.dtype.kind in "iuf":
        low, high = values.min(), values.max()  # NaN makes both comparisons below false
        if values.dtype.kind == "f" and low >= 0 and high <= 1:
            scaled: np.ndarray[Any, Any] = np.rint(values * 255).astype(np.uint8)
            return scaled
        if low >= 0 and high <= 255 and high > 1 and (values == np.rint(values)).all():
            return values.astype(np.uint8)
        raise UsageError(
            f"The {what} holds {values.dtype} values from {low} to {high}, whose range is unclear: "
            "give uint8 (0 to 255), uint16 (0 to 65535) or floats from 0 to 1."
        )
    raise UsageError(f"The {what} holds {values.dtype} values, not pixels.")
