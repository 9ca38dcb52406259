"""Where decoded images are kept: in memory, or decoded once into a file that is mapped into memory.

A mapped file takes no memory of its own: the system reads the pages that are asked for, and drops them when the
memory is wanted for something else. The file is written under another name and renamed when it is complete, so a
process that is killed leaves no half of one, and a file that is there is whole. It is named by the files that its
images come from (their sizes and times), the rows chosen and the image size: when any of these changes, another file
is made. Only its owner may read it, for it holds the private images in the clear.
"""

import fcntl
import hashlib
import logging
import math
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import PIL
import torch

from resperturb.data.decoding import decode_into, in_memory
from resperturb.data.memory import available_memory
from resperturb.data.records import Records, StreamedImages
from resperturb.data.rows import Images, Pixels, Rows
from resperturb.errors import ResperturbError, UsageError

DataIn: TypeAlias = Literal["auto", "memory", "disk"]
DATA_IN_VARIABLE = "RESPERTURB_DATA_IN"
CACHE_VARIABLE = "RESPERTURB_CACHE"
# Training copies the chosen images once more, an attack asks about half of them, and the network needs room too.
SHARE_OF_MEMORY = 0.25
# Left free on the disk for everything else.
_SPARE_BYTES = 1 << 28
# To be raised when the same file would be decoded to other pixels.
_DECODING = 1
_SECONDS_BETWEEN_MESSAGES = 30

_logger = logging.getLogger(__name__)


class _DoesNotFitError(Exception):
    pass


def chosen_data_in(data_in: str | None = None) -> DataIn:
    """Settle where images are kept: as asked, or as RESPERTURB_DATA_IN says, or by their size.

    >>> chosen_data_in("disk")
    'disk'
    """
    chosen = data_in or os.environ.get(DATA_IN_VARIABLE) or "auto"
    if chosen not in ("auto", "memory", "disk"):
        raise UsageError(
            f"Images are kept in 'memory', on 'disk', or wherever they fit ('auto'), not in {chosen!r} "
            f"(--data-in, or the environment variable {DATA_IN_VARIABLE})."
        )
    return chosen  # type: ignore[return-value]


def cache_folder() -> Path:
    """Give the folder of the decoded images: RESPERTURB_CACHE, or ``resperturb`` among the user's caches."""
    if named := os.environ.get(CACHE_VARIABLE):
        return Path(named).expanduser() / "images"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "resperturb" / "images"


def decoded(records: Records, image_size: int | None, data_in: DataIn) -> Images:
    """Decode the images of ``records`` into memory, or into a mapped file, or wherever they fit."""
    if isinstance(records.images, np.ndarray) and data_in == "auto":
        data_in = "memory"  # they are there already
    if data_in != "disk":
        allocate = _if_it_fits if data_in == "auto" else in_memory
        with suppress(_DoesNotFitError):
            return torch.from_numpy(decode_into(allocate, records.images, records.where, image_size))
    return Rows([_on_disk(records, image_size)])


def _if_it_fits(shape: tuple[int, ...]) -> Pixels:
    there = available_memory()
    if there is not None and math.prod(shape) > SHARE_OF_MEMORY * there:
        raise _DoesNotFitError
    return in_memory(shape)


def _on_disk(records: Records, image_size: int | None) -> Pixels:
    key = repr((_DECODING, PIL.__version__, records.identity, image_size))
    stem = re.sub(r"\W+", "-", "-".join(Path(records.origin).with_suffix("").parts[-2:])).strip("-")[:40] or "images"
    file = cache_folder() / f"{stem}-{hashlib.sha256(key.encode()).hexdigest()[:24]}.npy"
    try:
        there = _mapped(file, len(records))
        return _filled(file, records, image_size) if there is None else there
    except OSError as error:
        raise ResperturbError(
            f"The decoded images cannot be kept in {file.parent}: {error.strerror or error}. Set {CACHE_VARIABLE} to "
            "a folder that can be written."
        ) from error


def _mapped(file: Path, count: int) -> Pixels | None:
    """Map a file of ``count`` images; None if there is none, or if it is not what it should be."""
    try:
        pixels = np.load(file, mmap_mode="r", allow_pickle=False)
    except (FileNotFoundError, ValueError, EOFError):
        return None
    fine = isinstance(pixels, np.ndarray) and pixels.dtype == np.uint8 and pixels.ndim == 4 and len(pixels) == count
    return pixels if fine else None


def _filled(file: Path, records: Records, image_size: int | None) -> Pixels:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    parts: list[Path] = []

    def allocate(shape: tuple[int, ...]) -> Pixels:
        parts.append(file.with_name(f".{file.name}.{secrets.token_hex(4)}.part"))
        _refuse_too_large(shape, records, file.parent)
        _logger.warning(
            "%s: decoding %s images once (%.2f GiB) into %s, where they are read from.",
            records.origin, f"{shape[0]:,}", math.prod(shape) / 2**30, file,
        )  # fmt: skip
        return _reserved(parts[-1], shape)

    with _alone(file):
        there = _mapped(file, len(records))
        if there is not None:
            return there
        try:
            images = records.images if isinstance(records.images, np.ndarray) else _Reported(records)
            pixels = decode_into(allocate, images, records.where, image_size)
            _flush(pixels, parts[-1])
            there = _mapped(parts[-1], len(records))
            # Files that a table only names may change without the table: such images are decoded every time.
            if not (isinstance(records.images, StreamedImages) and records.images.outside):
                os.replace(parts[-1], file)
        finally:
            for part in parts:
                part.unlink(missing_ok=True)
    assert there is not None
    return there


def _refuse_too_large(shape: tuple[int, ...], records: Records, folder: Path) -> None:
    needed, free = math.prod(shape), shutil.disk_usage(folder).free
    if needed + _SPARE_BYTES > free:
        raise ResperturbError(
            f"The {shape[0]:,} images of {records.origin} need {needed / 2**30:,.2f} GiB decoded, and {folder} has "
            f"{free / 2**30:,.2f} GiB free: make room (what was decoded before may be deleted there), set "
            f"{CACHE_VARIABLE} to a folder on a larger disk, or give a smaller image size (--image-size)."
        )


def _reserved(file: Path, shape: tuple[int, ...]) -> Pixels:
    """Make a file for an array, all of its room on the disk taken: writing to it can then not fail half-way."""
    with os.fdopen(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600), "r+b") as opened:
        header = {"descr": "|u1", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(opened, header)
        opened.flush()
        start, size = opened.tell(), math.prod(shape)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(opened.fileno(), start, size)
        else:
            for at in range(0, size, 1 << 24):
                opened.write(bytes(min(1 << 24, size - at)))
    return np.lib.format.open_memmap(file, mode="r+")


def _flush(pixels: Any, file: Path) -> None:
    pixels.flush()
    with open(file, "rb") as opened:
        os.fsync(opened.fileno())


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    """Let one process at a time decode the same images; the lock is the kernel's, so a killed one leaves none."""
    handle = os.open(file.with_name(f".{file.name}.lock"), os.O_CREAT | os.O_RDWR, 0o600)
    try:
        locked = _locked(handle, file)
        if locked:
            for left in file.parent.glob(f".{file.name}.*.part"):  # by a process that was killed
                left.unlink(missing_ok=True)
        yield
    finally:
        os.close(handle)


def _locked(handle: int, file: Path) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _logger.warning("Waiting for another process that decodes the same images into %s.", file)
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError:  # not every network drive has locks; two processes then do the same work, each whole
        return False
    return True


class _Reported:
    """The images of records, which say from time to time how many have been taken."""

    def __init__(self, records: Records) -> None:
        self.records = records

    def __iter__(self) -> Iterator[Any]:
        told = time.monotonic()
        images: Iterable[Any] = self.records.images
        for number, image in enumerate(images):
            if time.monotonic() - told > _SECONDS_BETWEEN_MESSAGES:
                told = time.monotonic()
                _logger.warning("Decoded %s of %s images.", f"{number:,}", f"{len(self.records):,}")
            yield image
