"""Steps that shorten features: a base class and the registry of them."""

from typing import ClassVar

from torch import nn

from resperturb.registry import Registry


class Reduction:
    """Maps features to fewer numbers, by a map in which no private image has a part.

    Subclasses are frozen dataclasses: their fields are their settings, and ``repr`` tells two of them apart.
    """

    name: ClassVar[str]

    def dimensions(self, raw: int) -> int:
        """Return how many numbers are left of ``raw``."""
        raise NotImplementedError

    def network(self, raw: nn.Module, channels: int, size: tuple[int, int], digest: str) -> nn.Module:
        """Build the map of the features of ``raw``.

        Args:
            raw: Maps images ``[B, C, H, W]`` to features ``[B, D]``.
            channels: The number of channels of the images.
            size: Their height and width.
            digest: Identifies ``raw``, for caches.
        """
        raise NotImplementedError


reductions: Registry[type[Reduction]] = Registry(
    "feature reduction", group="resperturb.reductions", package="resperturb.features.reductions"
)
register_reduction = reductions.register
