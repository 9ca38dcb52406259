"""Networks of timm without their last layer: ``timm:resnet26d``."""

import hashlib
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from resperturb.errors import UsageError
from resperturb.features.extractor import Extractor, Reduction, register_extractor
from resperturb.files import digest_of
from resperturb.models import build
from resperturb.models.adapt import library, load_weights

PRETRAINED = "pretrained"


class Photographs(nn.Module):
    """Make images into what a network of photographs expects: in colour, of one size, normalised.

    The memory format is channels last, in which convolutions on a CPU take half the time.

    >>> Photographs((4, 4), (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 3, 4, 4])
    """

    mean: Tensor
    std: Tensor

    def __init__(self, size: tuple[int, int], mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("mean", torch.tensor(mean)[:, None, None])
        self.register_buffer("std", torch.tensor(std)[:, None, None])

    def forward(self, images: Tensor) -> Tensor:
        """Resize by bicubic interpolation, then normalise each colour."""
        resized = F.interpolate(images, self.size, mode="bicubic", antialias=True).clamp(0, 1)
        normalised = (resized.expand(-1, 3, -1, -1) - self.mean) / self.std
        return normalised.contiguous(memory_format=torch.channels_last)


def _digest_of_weights(model: nn.Module) -> str:
    digest = hashlib.sha256()
    for name, value in model.state_dict().items():
        digest.update(repr((name, value.dtype, tuple(value.shape))).encode())
        digest.update(value.contiguous().cpu().reshape(-1).view(torch.uint8).numpy().data)
    return "sha256:" + digest.hexdigest()


@register_extractor("timm")
class TimmFeatures(Extractor):
    """Any classifier of timm, with the weights that timm offers or with those of a file."""

    def __init__(self, name: str, weights: str, reduction: Reduction | None, resolution: int = 0) -> None:
        super().__init__(name, weights, reduction)
        if not weights:
            raise UsageError(
                f"timm:{name} needs public weights: a safetensors file (--weights FILE), or --weights pretrained."
            )
        if weights != PRETRAINED and not Path(weights).is_file():
            raise UsageError(f"there is no file {weights} with weights.")
        config = library("timm", f"timm:{name}").get_pretrained_cfg(name)
        if config is None:
            raise UsageError(f"timm has no network {name!r} with weights.")
        self.mean, self.std = tuple(config.mean), tuple(config.std)
        self.resolution = resolution or int(config.input_size[1])

    @cached_property
    def _network(self) -> nn.Module:
        pretrained = self.weights == PRETRAINED
        network = build(f"timm:{self.name}", num_classes=1000, pretrained=pretrained)
        if not pretrained:
            load_weights(network, Path(self.weights))
        network.reset_classifier(0)  # type: ignore[operator]
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return network

    def public(self) -> tuple[str, str, str, str]:
        """Describe the weights and the preprocessing."""
        if self.weights == PRETRAINED:
            origin, digest = f"{self.name} with timm's pretrained weights.", _digest_of_weights(self._network)
        else:
            origin = f"{self.name} with weights of the user's file {Path(self.weights).name}."
            digest = f"sha256:{digest_of(Path(self.weights))}"
        size = f"{self.resolution}x{self.resolution}"
        return f"timm:{self.name}", origin, digest, f"bicubic to {size}, mean {self.mean}, std {self.std}"

    def raw_dimensions(self, channels: int, size: tuple[int, int]) -> int:
        """Return the width of the network's last layer."""
        width: Any = self._network.num_features
        return int(getattr(self._network, "head_hidden_size", None) or width)

    def raw(self, channels: int, size: tuple[int, int]) -> nn.Module:
        """Build the network without its last layer."""
        return nn.Sequential(Photographs((self.resolution, self.resolution), self.mean, self.std), self._network)
