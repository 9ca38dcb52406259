"""The velocity field F of the paper's picture: a fixed table saying which pixel each pixel reads.

The paper's loop, for every pixel (i, j) of an image with R rows and C columns, is::

    offset_j = int((j + 50 cos(2 pi i / 180)) % C)
    offset_i = int((i + 50 sin(2 pi i / 180)) % R)
    F(x)[i, j] = x[(i + offset_j) % R, (j + offset_i) % C]

We follow it to the letter, oddities included. Both angles use the row ``i``. An offset is already a position
(it contains ``i`` or ``j``) and is then added to the index again. The *column* offset moves the *row* and the
other way round. ``row`` in the printed modulus is read as ``rows``. The 50 pixels and 180 rows are absolute, so
the field depends on the size of the image.

F is linear and every output pixel copies one input pixel, so it keeps ``max |x|`` from growing; but it is not a
permutation: some pixels are read many times and others never.
"""

import functools
import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
MOST_DOUBLINGS = 40


@functools.lru_cache(maxsize=8)
def source_pixels(rows: int, cols: int) -> NDArray[np.intp]:
    """Which flat pixel each flat pixel reads, in row-major order.

    >>> source_pixels(2, 3).tolist()
    [0, 1, 5, 0, 4, 5]
    """
    i = np.arange(rows)[:, None]
    j = np.arange(cols)[None, :]
    # math.cos, not np.cos: int() cuts at whole numbers, where one last bit decides which pixel is read.
    cos = np.array([50.0 * math.cos(2 * math.pi * row / 180) for row in range(rows)])[:, None]
    sin = np.array([50.0 * math.sin(2 * math.pi * row / 180) for row in range(rows)])[:, None]
    offset_j = ((j + cos) % cols).astype(np.intp)
    offset_i = ((i + sin) % rows).astype(np.intp)
    flat = ((i + offset_j) % rows) * cols + (j + offset_i) % cols
    table: NDArray[np.intp] = flat.reshape(-1).astype(np.intp)
    table.setflags(write=False)
    return table


def velocity(image: Array) -> Array:
    """Compute F(x) for an image of shape (rows, cols, channels).

    >>> velocity(np.arange(6.0).reshape(2, 3, 1))[:, :, 0].tolist()
    [[0.0, 1.0, 5.0], [0.0, 4.0, 5.0]]
    """
    rows, cols, channels = image.shape
    moved = image.reshape(rows * cols, channels)[source_pixels(rows, cols)]
    return moved.reshape(image.shape)


def undo_step(after: Array, scale: Array | float, dt: float) -> Array:
    """Solve ``scale x + dt F(x) = after``: find the image that one Euler step started from.

    Every pixel is a constant plus a gain times the pixel that it reads. This equation is put into itself until no
    gain is left. A pixel that reads itself is solved at once.

    >>> x = np.arange(6.0).reshape(2, 3, 1)
    >>> np.allclose(undo_step(2 * x + 0.1 * velocity(x), 2.0, 0.1), x)
    True
    """
    rows, cols, channels = after.shape
    source = source_pixels(rows, cols)
    itself = (source == np.arange(source.size))[:, None]
    divisor = np.broadcast_to(scale, after.shape).reshape(-1, channels) + dt * itself
    x: Array
    x, gain = after.reshape(-1, channels) / divisor, np.where(itself, 0.0, -dt / divisor)
    for _ in range(MOST_DOUBLINGS):
        if not gain.any():
            break
        x, gain, source = x + gain * x[source], gain * gain[source], source[source]
    return x.reshape(after.shape)
