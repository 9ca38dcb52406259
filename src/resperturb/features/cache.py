"""Features kept on disk, in blocks of rows that are written whole: a killed command goes on with the next block.

The files are of the private images, so only their owner may read them.
"""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from resperturb.data.images import ImageSet
from resperturb.data.storage import cache_folder
from resperturb.errors import ResperturbError
from resperturb.files import read_bytes, write_bytes

ROWS_PER_BLOCK = 2048
ROWS_PER_BATCH = 32


def in_blocks(
    images: ImageSet,
    key: str,
    width: int,
    rows: Callable[[Tensor], NDArray[np.float32]],
    progress: Callable[[int, int], None] | None,
) -> NDArray[np.float32]:
    """Compute a row of features per image, block by block, and read the blocks that are there.

    Args:
        images: The images.
        key: Identifies the images and how the features are computed.
        width: The number of features.
        rows: Computes the features of a few images.
        progress: Called with the number of images done and of all.

    Returns:
        The features ``[n, width]``.
    """
    folder = cache_folder("features") / key[:32]
    found = np.empty((len(images), width), dtype=np.float32)
    for start in range(0, len(images), ROWS_PER_BLOCK):
        block = found[start : start + ROWS_PER_BLOCK]
        file = folder / f"{start}.npy"
        there = read_array(file)
        if there is not None and there.shape == block.shape and there.dtype == block.dtype:
            block[:] = there
        else:
            for at in range(start, start + len(block), ROWS_PER_BATCH):
                batch = images.images[at : min(at + ROWS_PER_BATCH, start + len(block))]
                found[at : at + len(batch)] = rows(batch)
                if progress is not None:
                    progress(at + len(batch), len(images))
            _refuse_not_finite(block)
            write_array(file, block)
    if progress is not None:
        progress(len(images), len(images))
    return found


def read_array(file: Path) -> NDArray[np.float32] | None:
    """Read an array that :func:`write_array` wrote; None if it is not there or damaged."""
    if not file.is_file():
        return None
    try:
        found: NDArray[np.float32] = np.load(io.BytesIO(read_bytes(file)), allow_pickle=False)
    except (ValueError, EOFError, OSError):
        return None
    return found


def write_array(file: Path, array: NDArray[np.float32]) -> None:
    """Write an array whole or not at all, readable by its owner alone."""
    content = io.BytesIO()
    np.save(content, array, allow_pickle=False)
    write_bytes(file, content.getvalue(), private=True)


def _refuse_not_finite(block: NDArray[np.float32]) -> None:
    if not np.isfinite(block).all():
        raise ResperturbError("the extractor's features are not finite: its weights do not fit, or are damaged.")
