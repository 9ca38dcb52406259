"""Synthetic images: discs and rectangles that cover each other, known as dead leaves.

Their edges, corners and areas have statistics like those of photographs, and they show nothing of anyone's.
"""

import numpy as np
from numpy.typing import NDArray

# The radius of a leaf has density proportional to r^-3, between these shares of the shorter side.
_SMALLEST, _LARGEST = 0.04, 0.5
_LEAVES = 60


def dead_leaves(count: int, channels: int, size: tuple[int, int], seed: int = 0) -> NDArray[np.float64]:
    """Draw synthetic images.

    Args:
        count: The number of images.
        channels: The number of their channels; 1 for grey.
        size: Their height and width.
        seed: The seed.

    Returns:
        The images ``[count, channels, H, W]``, in [0, 1].

    >>> images = dead_leaves(2, 3, (8, 8))
    >>> images.shape, bool((images >= 0).all() and (images <= 1).all())
    ((2, 3, 8, 8), True)
    """
    random = np.random.default_rng(seed)
    height, width = size
    short = min(size)
    images = np.repeat(random.random((count, channels, 1)), height * width, axis=2).reshape(count, channels, *size)
    y, x = np.mgrid[:height, :width]
    for _ in range(_LEAVES):  # one leaf on every image at a time, the later above the earlier
        u, cy, cx, turn, shape, disc = random.random((6, count, 1, 1))
        colour = random.random((count, channels, 1, 1))
        radius = short * (_SMALLEST**-2 + u * (_LARGEST**-2 - _SMALLEST**-2)) ** -0.5
        dy, dx = y - cy * height, x - cx * width
        along = dy * np.cos(np.pi * turn) + dx * np.sin(np.pi * turn)
        across = dx * np.cos(np.pi * turn) - dy * np.sin(np.pi * turn)
        aspect = 0.25 + 0.75 * shape
        round_ = dy**2 + dx**2 <= radius**2
        angular = (np.abs(along) <= radius) & (np.abs(across) <= radius * aspect)
        images = np.where(np.where(disc < 0.5, round_, angular)[:, None], colour, images)
    return images
