"""Where features come from: a base class, and the registry of those who compute them.

Adding an extractor is one file that defines an :class:`Extractor` under ``@register_extractor``.
"""

import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from resperturb.data.images import ImageSet
from resperturb.errors import UsageError
from resperturb.features.cache import in_blocks
from resperturb.features.reduction import Reduction, reductions
from resperturb.registry import Registry

Features: TypeAlias = NDArray[np.float32]
Part: TypeAlias = Literal["train", "test"]
Progress: TypeAlias = Callable[[int, int], None]


@dataclass(frozen=True)
class FeatureSource:
    """What is public about features: how they are computed, and by whose weights.

    Attributes:
        name: The name of the extractor.
        origin: A sentence: where the extractor and its weights come from.
        weights: ``sha256:`` and the digest of the weights; empty if there are none.
        preprocessing: What is done to the pixels and to the features of each image.
        reduction: The map that shortens the features; empty if there is none.
        digest: Changes when the features of an image change.
    """

    name: str
    origin: str
    weights: str
    preprocessing: str
    reduction: str
    digest: str


class Extractor:
    """Computes features of images, each row from one image alone.

    Attributes:
        example: A name that it knows, for messages.
        default_reduction: The name of the reduction that applies unless another is asked for; empty for none.
    """

    example: ClassVar[str]
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

    def digest(self) -> str:
        """Return what changes when the features of an image change."""
        return self.describe().digest

    def dimensions(self, channels: int, size: tuple[int, int]) -> int:
        """Return the number of features of an image of ``channels`` and of ``size`` (height, width)."""
        raw = self.raw_dimensions(channels, size)
        return raw if self.reduction is None else self.reduction.dimensions(raw)

    def network(self, channels: int, size: tuple[int, int]) -> nn.Module:
        """Build the network from images to features.

        Args:
            channels: The number of channels of the images.
            size: Their height and width.

        Returns:
            A frozen network in evaluation mode. It takes uint8, or float in [0, 1].
        """
        layers = [_Scaled(), self.raw(channels, size)]
        if self.reduction is not None:
            layers.append(self.reduction.network(layers[1], channels, size, _digest(*self.public())))
        return nn.Sequential(*layers).requires_grad_(False).eval()

    def compute(self, images: ImageSet, part: Part = "train", progress: Progress | None = None) -> Features:
        """Compute the features of images, or read those computed before.

        Blocks of rows are kept in a cache, so that a command that was killed goes on where it was. Compute the
        features of whole sets and choose rows of them: every other selection is computed anew.

        Args:
            images: The images.
            part: Which part of the data set they are; read where features come from a file.
            progress: Called with the number of images done and of all.

        Returns:
            One row per image.
        """
        device = "cuda" if torch.cuda.is_available() else "cpu"
        networks: list[nn.Module] = []

        def rows(pixels: Tensor) -> Features:
            if not networks:  # built when a block is missing, for a map may have to be learned first
                networks.append(self.network(images.channels, images.size).to(device))
            with torch.inference_mode():
                found: Features = networks[0](pixels.to(device)).float().cpu().numpy()
            return found

        width = self.dimensions(images.channels, images.size)
        return in_blocks(images, _digest(self.digest(), images.fingerprint), width, rows, progress)


class _Scaled(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images.float() / 255 if images.dtype == torch.uint8 else images


def _digest(*parts: str) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


extractors: Registry[type[Extractor]] = Registry(
    "feature extractor", group="resperturb.extractors", package="resperturb.features.extractors"
)
register_extractor = extractors.register


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

    Raises:
        UsageError: There is no such extractor, or an argument is not one of its own.

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
