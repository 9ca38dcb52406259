"""Networks of timm without their last layer: ``timm:resnet26d``."""

from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from resperturb.errors import UsageError
from resperturb.features.extractor import Extractor, register_extractor
from resperturb.features.pretrained import Photographs, digest_of_weights
from resperturb.features.reduction import Reduction
from resperturb.files import digest_of
from resperturb.models import build
from resperturb.models.adapt import library, load_weights

PRETRAINED = "pretrained"


@register_extractor("timm")
class TimmFeatures(Extractor):
    """Any classifier of timm, with the weights that timm offers or with those of a file."""

    example: ClassVar = "timm:resnet18"

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
            origin, digest = f"{self.name} with timm's pretrained weights.", digest_of_weights(self._network)
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
