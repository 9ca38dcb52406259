"""Keep decoded images in memory, or decode them once into a file that is mapped into memory.

A mapped file takes no memory of its own: the system reads the pages that are asked for, and drops them when the
memory is wanted for something else. The file is written under another name and renamed when it is complete, so a
process that is killed leaves no half of one, and a file that is there is whole. It is named by the files that its
images come from (their sizes and times), the rows chosen and how they are decoded: when any of these changes, another
file is made. Only its owner may read it, for it holds the private images in the clear.

The cache of Hugging Face `datasets` is no substitute: its files are readable by whomever the umask lets, which
tests/data/test_datasets.py shows.
"""

import fcntl
import hashlib
import json
import logging
import math
import os
import re
import secrets
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import PIL
import torch

from resperturb.data.decoding import Decoder, Tally
from resperturb.data.paths import expanded
from resperturb.data.records import Records, StreamedImages
from resperturb.data.rows import Images, Pixels, Rows
from resperturb.errors import ResperturbError, UsageError
from resperturb.progress import Lines

DataIn: TypeAlias = Literal["memory", "disk"]
DATA_IN_VARIABLE = "RESPERTURB_DATA_IN"
CACHE_VARIABLE = "RESPERTURB_CACHE"
# Training copies the chosen images once more, and the network needs room too.
SHARE_OF_MEMORY = 0.4
# Left free on the disk for everything else.
_SPARE_BYTES = 1 << 28
# To be raised when the same file would be decoded to other pixels.
_DECODING = 2

_logger = logging.getLogger(__name__)


def chosen_data_in(data_in: str | None = None) -> DataIn:
    """Settle where images are kept: as asked, or as RESPERTURB_DATA_IN says, or in memory.

    >>> chosen_data_in("disk")
    'disk'
    """
    chosen = data_in or os.environ.get(DATA_IN_VARIABLE) or "memory"
    if chosen not in ("memory", "disk"):
        raise UsageError(
            f"Images are kept in 'memory' or on 'disk', not in {chosen!r} (--data-in, or the environment variable "
            f"{DATA_IN_VARIABLE})."
        )
    return chosen  # type: ignore[return-value]


def cache_folder(kind: str) -> Path:
    """Give the folder of what is kept of one kind: in RESPERTURB_CACHE, or ``resperturb`` among the user's caches."""
    if named := os.environ.get(CACHE_VARIABLE):
        return expanded(named) / kind
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "resperturb" / kind


def decoded(records: Records, decoder: Decoder, data_in: DataIn) -> Images:
    """Decode the images of ``records`` into memory, or into a mapped file."""
    if data_in == "disk":
        return Rows([_on_disk(records, decoder)])
    return torch.from_numpy(decoder.into(in_memory, records.images, records.where))


def in_memory(shape: tuple[int, ...]) -> Pixels:
    """Allocate ``[N, C, H, W]``, unless it takes too much of this machine's memory."""
    needed = math.prod(shape)
    try:
        if needed > SHARE_OF_MEMORY * physical_memory():
            raise MemoryError
        return np.empty(shape, dtype=np.uint8)
    except MemoryError:
        raise UsageError(
            f"{shape[0]:,} images of {shape[3]}x{shape[2]} need {needed / 2**30:,.1f} GiB, too much of this "
            "machine's memory: keep them on disk (--data-in disk), or give a smaller image size (--image-size) or "
            "fewer images."
        ) from None


def physical_memory() -> int:
    """Bytes of memory that this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _on_disk(records: Records, decoder: Decoder) -> Pixels:
    key = repr((_DECODING, PIL.__version__, records.identity, decoder.image_size, decoder.bits))
    stem = re.sub(r"\W+", "-", "-".join(Path(records.origin).with_suffix("").parts[-2:])).strip("-")[:40] or "images"
    file = cache_folder("images") / f"{stem}-{hashlib.sha256(key.encode()).hexdigest()[:24]}.npy"
    try:
        there = _mapped(file, len(records), decoder)
        return _filled(file, records, decoder) if there is None else there
    except OSError as error:
        raise ResperturbError(
            f"The decoded images cannot be kept in {file.parent}: {error.strerror or error}. Set {CACHE_VARIABLE} to "
            "a folder that can be written."
        ) from error


def _mapped(file: Path, count: int, decoder: Decoder) -> Pixels | None:
    """Map a file of ``count`` images and note how they were converted; None if it is not whole or not there."""
    try:
        pixels: Any = np.load(file, mmap_mode="r", allow_pickle=False)
        with file.open("rb") as opened:
            opened.seek(pixels.offset + pixels.nbytes)
            notes = json.loads(opened.read())
        tally = Tally(Counter(notes["converted"]), int(notes["brightest"]))
    except (FileNotFoundError, ValueError, EOFError, KeyError, TypeError, AttributeError):
        return None
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or len(pixels) != count:
        return None
    decoder.tally.add(tally)
    return np.asarray(pixels)


def _filled(file: Path, records: Records, decoder: Decoder) -> Pixels:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    parts: list[Path] = []

    def allocate(shape: tuple[int, ...]) -> Pixels:
        parts.append(file.with_name(f".{file.name}.{secrets.token_hex(4)}.part"))
        needed, free = math.prod(shape), shutil.disk_usage(file.parent).free
        if needed + _SPARE_BYTES > free:
            raise ResperturbError(
                f"The {shape[0]:,} images of {records.origin} need {needed / 2**30:,.2f} GiB decoded, and "
                f"{file.parent} has {free / 2**30:,.2f} GiB free: make room (what was decoded before may be deleted "
                f"there), set {CACHE_VARIABLE} to a folder on a larger disk, or give a smaller --image-size."
            )
        _logger.info(
            "%s: decoding %s images once (%.2f GiB) into %s, where they are read from.",
            records.origin, f"{shape[0]:,}", needed / 2**30, file,
        )  # fmt: skip
        return _reserved(parts[-1], shape)

    with _alone(file):
        there = _mapped(file, len(records), decoder)
        if there is not None:
            return there
        own = Decoder(decoder.image_size, decoder.bits)
        try:
            pixels: Any = own.into(allocate, _reported(records), records.where)
            pixels.flush()
            notes = {"converted": own.tally.converted, "brightest": own.tally.brightest}
            with parts[-1].open("ab") as opened:  # behind the array, where numpy does not look
                opened.write(json.dumps(notes).encode())
                opened.flush()
                os.fsync(opened.fileno())
            there = _mapped(parts[-1], len(records), decoder)
            # Files that a table only names may change without the table: such images are decoded every time.
            if not (isinstance(records.images, StreamedImages) and records.images.outside):
                os.replace(parts[-1], file)
        finally:
            for part in parts:
                part.unlink(missing_ok=True)
    assert there is not None
    return there


def _reserved(file: Path, shape: tuple[int, ...]) -> Pixels:
    """Make a file for an array, all of its room on the disk taken: writing to it can then not fail half-way."""
    with os.fdopen(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600), "r+b") as opened:
        pixels: Pixels = np.lib.format.open_memmap(file, mode="w+", dtype=np.uint8, shape=shape)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(opened.fileno(), 0, file.stat().st_size)
    return pixels


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    """Let one process at a time decode the same images; the lock is the kernel's, so a killed one leaves none."""
    handle = os.open(file.with_name(f".{file.name}.lock"), os.O_CREAT | os.O_RDWR, 0o600)
    try:
        with suppress(OSError):  # not every network drive has locks; two processes then do the same work, each whole
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                _logger.info("Waiting for another process that decodes the same images into %s.", file)
                fcntl.flock(handle, fcntl.LOCK_EX)
            for left in file.parent.glob(f".{file.name}.*.part"):  # by a process that was killed
                left.unlink(missing_ok=True)
        yield
    finally:
        os.close(handle)


def _reported(records: Records) -> Iterator[Any]:
    """Yield the images of records, and say from time to time how many have been taken."""
    lines = Lines("decoding", _logger.info, unit="images")
    for number, image in enumerate(records.images):
        lines.step(number, len(records))
        yield image
