"""Where features come from: a base class, and the registries of those who compute and who shorten them.

Adding an extractor is one file that defines an :class:`Extractor` under ``@register_extractor``. Features are kept on
disk in blocks of rows that are written whole: a killed command goes on with the next block. The files are of the
private images, so only their owner may read them.
"""

import hashlib
import inspect
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from resperturb.data.images import ImageSet
from resperturb.data.storage import cache_folder
from resperturb.errors import ResperturbError, UsageError
from resperturb.files import read_bytes
from resperturb.registry import Registry
from resperturb.sealed import write_array

Features: TypeAlias = NDArray[np.float32]
Part: TypeAlias = Literal["train", "test"]
Progress: TypeAlias = Callable[[int, int], None]

ROWS_PER_BLOCK = 2048
ROWS_PER_BATCH = 32


class Reduction:
    """Maps features to fewer numbers, by a map in which no private image has a part.

    Subclasses are frozen dataclasses: their fields are their settings, and ``repr`` tells two of them apart.
    """

    name: ClassVar[str]

    def dimensions(self, raw: int) -> int:
        """Return how many numbers are left of ``raw``."""
        raise NotImplementedError

    def network(self, raw: nn.Module, channels: int, size: tuple[int, int], digest: str) -> nn.Module:
        """Build the map of the features of ``raw``, from ``[B, C, H, W]`` to ``[B, D]``; ``digest`` identifies it."""
        raise NotImplementedError


@dataclass(frozen=True)
class FeatureSource:
    """What is public about features: how they are computed, and by whose weights (``sha256:`` and their digest)."""

    name: str
    origin: str
    weights: str
    preprocessing: str
    reduction: str
    digest: str


class Extractor:
    """Computes features of images, each row from one image alone.

    ``channels`` and ``size`` (height, width) are those of the images. ``default_reduction`` names the reduction that
    applies unless another is named; it is empty for none.
    """

    default_reduction: ClassVar[str] = ""

    def __init__(self, name: str, weights: str, reduction: Reduction | None) -> None:
        self.name, self.weights, self.reduction = name, weights, reduction

    def public(self) -> tuple[str, str, str, str]:
        """Return the name, origin, weights and preprocessing of :class:`FeatureSource`."""
        raise NotImplementedError

    def raw(self, channels: int, size: tuple[int, int]) -> nn.Module:
        """Build the network that maps images, float in [0, 1], to features before the reduction."""
        raise NotImplementedError

    def raw_dimensions(self, channels: int, size: tuple[int, int]) -> int:
        """Return the number of features before the reduction."""
        raise NotImplementedError

    def describe(self) -> FeatureSource:
        """Say what is public about the features."""
        reduction = "" if self.reduction is None else repr(self.reduction)
        parts = *self.public(), reduction
        return FeatureSource(*parts, digest=_digest(*parts))

    def dimensions(self, channels: int, size: tuple[int, int]) -> int:
        """Return the number of features of an image."""
        raw = self.raw_dimensions(channels, size)
        return raw if self.reduction is None else self.reduction.dimensions(raw)

    def network(self, channels: int, size: tuple[int, int]) -> nn.Module:
        """Build the frozen network, in evaluation mode, from images (uint8, or float in [0, 1]) to features."""
        layers = [_Scaled(), self.raw(channels, size)]
        if self.reduction is not None:
            layers.append(self.reduction.network(layers[1], channels, size, _digest(*self.public())))
        return nn.Sequential(*layers).requires_grad_(False).eval()

    def compute(self, images: ImageSet, part: Part = "train", progress: Progress | None = None) -> Features:
        """Compute a row of features per image, block by block, and read the blocks that were computed before.

        Compute the features of whole sets and choose rows of them: every other selection is computed anew.

        Args:
            images: The images.
            part: Which part of the data set they are; read where features come from a file.
            progress: Called with the number of images done and of all.
        """
        device = "cuda" if torch.cuda.is_available() else "cpu"
        network: nn.Module | None = None
        folder = cache_folder("features") / _digest(self.describe().digest, images.fingerprint)[:32]
        found = np.empty((len(images), self.dimensions(images.channels, images.size)), dtype=np.float32)
        for start in range(0, len(images), ROWS_PER_BLOCK):
            block = found[start : start + ROWS_PER_BLOCK]
            file = folder / f"{start}.npy"
            there = read_array(file)
            if there is not None and there.shape == block.shape and there.dtype == block.dtype:
                block[:] = there
                continue
            if network is None:  # built when a block is missing, for a map may have to be learned first
                network = self.network(images.channels, images.size).to(device)
            for at in range(start, start + len(block), ROWS_PER_BATCH):
                batch = images.images[at : min(at + ROWS_PER_BATCH, start + len(block))]
                with torch.inference_mode():
                    found[at : at + len(batch)] = network(batch.to(device)).float().cpu().numpy()
                if progress is not None:
                    progress(at + len(batch), len(images))
            if not np.isfinite(block).all():
                raise ResperturbError(
                    "the extractor's features are not finite: its weights do not fit, or are damaged."
                )
            write_array(file, block, private=True)
        if progress is not None:
            progress(len(images), len(images))
        return found


class _Scaled(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images.float() / 255 if images.dtype == torch.uint8 else images


def _digest(*parts: str) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def read_array(file: Path) -> NDArray[np.float32] | None:
    """Read an array that :func:`~resperturb.sealed.write_array` wrote; None if it is not there or damaged."""
    if not file.is_file():
        return None
    try:
        found: NDArray[np.float32] = np.load(io.BytesIO(read_bytes(file)), allow_pickle=False)
    except (ValueError, EOFError, OSError):
        return None
    return found


extractors: Registry[type[Extractor]] = Registry(
    "feature extractor", group="resperturb.extractors", package="resperturb.features.extractors"
)
register_extractor = extractors.register
reductions: Registry[type[Reduction]] = Registry(
    "feature reduction", group="resperturb.reductions", package="resperturb.features.reductions"
)
register_reduction = reductions.register


def build(
    name: str,
    weights: str = "",
    reduction: str | None = None,
    args: Mapping[str, Any] | None = None,
) -> Extractor:
    """Make a feature extractor.

    Args:
        name: ``scattering``, ``efficientnet-lite0``, ``timm:NAME``, ``file:PATH``, or what is registered.
        weights: A safetensors file, or ``pretrained``, where the extractor needs to be told.
        reduction: The reduction of its features, or ``none``; None for the extractor's own.
        args: Settings of the extractor or of the reduction.

    >>> build("scattering").dimensions(channels=1, size=(28, 28))
    1000
    >>> build("scattering", reduction="none").dimensions(channels=3, size=(32, 32))
    15552
    """
    kind, _, rest = str(name).partition(":")
    known = extractors[kind]
    own = inspect.signature(known).parameters
    given = dict(args or {})
    chosen = known.default_reduction if reduction is None else "" if reduction == "none" else reduction
    step = None
    if chosen:
        shortening = reductions[chosen]
        settings = [key for key in inspect.signature(shortening).parameters if key in given]
        try:
            step = shortening(**{key: given.pop(key) for key in settings})
        except (TypeError, ValueError) as error:
            raise UsageError(f"the reduction {chosen} cannot be used: {error}") from error
    if wrong := [key for key in given if key not in own or key in ("name", "weights", "reduction")]:
        raise UsageError(f"{name} has no setting {', '.join(wrong)}.")
    return known(rest, weights, step, **given)
