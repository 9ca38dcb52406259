"""The principal directions of the features of synthetic images: a map without any private or natural image."""

import hashlib
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from scipy.linalg import eigh
from torch import Tensor, nn

from resperturb.data.storage import cache_folder
from resperturb.errors import UsageError
from resperturb.features.extractor import ROWS_PER_BATCH, Reduction, read_array, register_reduction
from resperturb.sealed import write_array

# The features of the synthetic images must fit into memory.
MOST_FEATURES = 40_000
# The radius of a leaf has density proportional to r^-3, between these shares of the shorter side.
_SMALLEST, _LARGEST = 0.04, 0.5
_LEAVES = 60


@register_reduction("synthetic")
@dataclass(frozen=True)
class Synthetic(Reduction):
    """Projects onto principal directions of dead-leaves images, divides by their spread, and scales rows to norm 1.

    Attributes:
        directions: How many directions are kept.
        images: How many synthetic images are drawn.
        power: Coordinate j is divided by ``(s_j + floor * s_1) ** power``, s_j the singular value of direction j.
    """

    directions: int = 1000
    images: int = 6000
    power: float = 0.6
    floor: float = 1e-3
    seed: int = 0
    version: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.directions < self.images:
            raise UsageError(
                f"{self.images} synthetic images do not have {self.directions} principal directions: ask for fewer "
                "directions, or for more images."
            )

    def dimensions(self, raw: int) -> int:
        """Return the number of directions, or of features if there are fewer."""
        if raw > MOST_FEATURES:
            raise UsageError(
                f"{raw:,} features are too many for the synthetic map, which takes {MOST_FEATURES:,}: make the "
                "images smaller (--image-size)."
            )
        return min(self.directions, raw)

    def network(self, raw: nn.Module, channels: int, size: tuple[int, int], digest: str) -> nn.Module:
        """Learn the map, or read it from the cache."""
        key = hashlib.sha256(repr((self, channels, size, digest)).encode()).hexdigest()[:32]
        file = cache_folder("features") / "maps" / f"{key}.npy"
        learned = read_array(file)
        if learned is None:
            learned = self._learn(_synthetic_features(raw, dead_leaves(self.images, channels, size, self.seed)))
            write_array(file, learned, private=True)
        return _Projection(torch.from_numpy(learned))

    def _learn(self, features: NDArray[np.float64]) -> NDArray[np.float32]:
        """Return the map ``[K, D]``, of features that are changed in place."""
        kept = self.dimensions(features.shape[1])
        if features.shape[1] <= len(features):
            spread, directions = _largest(features.T @ features, kept)
        else:  # fewer images than features: by way of the images' inner products
            spread, left = _largest(features @ features.T, kept)
            directions = features.T @ (left / np.maximum(spread, 1e-9 * spread[0]))
        # The sign of a direction is chosen, so that every machine finds the same map.
        directions *= np.sign(directions[np.abs(directions).argmax(axis=0), np.arange(kept)])
        learned: NDArray[np.float32] = (directions / (spread + self.floor * spread[0]) ** self.power).T.astype("f4")
        return np.ascontiguousarray(learned)


def dead_leaves(count: int, channels: int, size: tuple[int, int], seed: int = 0) -> NDArray[np.float64]:
    """Draw synthetic images ``[count, channels, H, W]`` in [0, 1], grey for one channel.

    Discs and rectangles cover each other. Their edges, corners and areas have statistics like those of photographs,
    and they show nothing of anyone's.

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


class _Projection(nn.Module):
    weight: Tensor

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", weight)

    def forward(self, features: Tensor) -> Tensor:
        return F.normalize(F.linear(features, self.weight))


def _largest(products: NDArray[np.float64], count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the largest singular values and their vectors, of a matrix of inner products."""
    size = len(products)
    values, vectors = eigh(products, subset_by_index=[size - count, size - 1], overwrite_a=True, check_finite=False)
    return np.sqrt(np.maximum(values[::-1], 0)), vectors[:, ::-1]


def _synthetic_features(raw: nn.Module, images: NDArray[np.float64]) -> NDArray[np.float64]:
    # In double precision: the last directions are close together, and rounding must not choose among them.
    device = "cuda" if torch.cuda.is_available() else "cpu"
    double = raw.double().to(device).eval()
    with torch.inference_mode():
        rows = [
            double(torch.from_numpy(images[at : at + ROWS_PER_BATCH]).to(device)).cpu().numpy()
            for at in range(0, len(images), ROWS_PER_BATCH)
        ]
    raw.float().cpu()
    return np.concatenate(rows)
