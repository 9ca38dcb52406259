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
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


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
    """F(x) for an image of shape (rows, cols, channels), or for a stack of them.

    >>> velocity(np.arange(6.0).reshape(2, 3, 1))[:, :, 0].tolist()
    [[0.0, 1.0, 5.0], [0.0, 4.0, 5.0]]
    """
    *stack, rows, cols, channels = image.shape
    pixels = image.reshape(*stack, rows * cols, channels)
    return pixels.take(source_pixels(rows, cols), axis=-2).reshape(image.shape)


def undo_step(after: Array, scale: Array | float, dt: float) -> Array:
    """The image x with ``scale x + dt F(x) = after``, exactly: what one Euler step started from.

    Every pixel of x depends on the one it reads, so the pixels are solved in that order: first the closed cycles,
    then the pixels that read them, and so on outwards.

    >>> x = np.arange(6.0).reshape(2, 3, 1)
    >>> np.allclose(undo_step(2 * x + 0.1 * velocity(x), 2.0, 0.1), x)
    True
    """
    *stack, rows, cols, channels = after.shape

    def by_pixel(values: Array) -> Array:
        flat = np.broadcast_to(values, after.shape).reshape(*stack, rows * cols, channels)
        return np.ascontiguousarray(np.moveaxis(flat, -2, 0))

    source, order = source_pixels(rows, cols), _reading_order(rows, cols)
    constant, gain = by_pixel(after / scale), by_pixel(np.asarray(-dt / scale))
    x: Array = np.empty_like(constant)
    for cycle in order.cycles:
        total, factor = np.zeros_like(constant[0]), np.ones_like(constant[0])
        for pixel in cycle:
            total = total + factor * constant[pixel]
            factor = factor * gain[pixel]
        x[cycle[0]] = total / (1.0 - factor)
        for pixel in reversed(cycle[1:]):
            x[pixel] = constant[pixel] + gain[pixel] * x[source[pixel]]
    for ring in order.rings:
        x[ring] = constant[ring] + gain[ring] * x[source[ring]]
    return np.moveaxis(x, 0, -2).reshape(after.shape)


@dataclass(frozen=True, eq=False)
class _ReadingOrder:
    cycles: tuple[tuple[int, ...], ...]
    rings: tuple[NDArray[np.intp], ...]


@functools.lru_cache(maxsize=8)
def _reading_order(rows: int, cols: int) -> _ReadingOrder:
    """Peel off the pixels nobody reads, ring by ring; what remains are the cycles."""
    source = source_pixels(rows, cols)
    readers = np.bincount(source, minlength=source.size)
    rings = []
    ring = np.flatnonzero(readers == 0)
    while ring.size:
        rings.append(ring)
        np.subtract.at(readers, source[ring], 1)
        read = np.unique(source[ring])
        ring = read[readers[read] == 0]
    left = set(np.flatnonzero(readers > 0).tolist())
    cycles = []
    while left:
        cycle = [left.pop()]
        while (following := int(source[cycle[-1]])) != cycle[0]:
            cycle.append(following)
            left.remove(following)
        cycles.append(tuple(cycle))
    return _ReadingOrder(tuple(cycles), tuple(reversed(rings)))
