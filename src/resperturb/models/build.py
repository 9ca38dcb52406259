"""Networks by name: ``resnet8`` ... ``resnet110``, and ensembles as ``en5-resnet8``."""

import re

from torch import nn

from resperturb.errors import UsageError
from resperturb.models.ensemble import Ensemble
from resperturb.models.resnet import Norm, ResNet

DEPTHS = (8, 14, 20, 32, 44, 56, 110)


def build(
    name: str,
    *,
    num_classes: int,
    in_channels: int = 3,
    norm: Norm = "batch",
    skip: bool = True,
    dropout: float = 0.0,
) -> nn.Module:
    """Build a network with fresh weights from torch's global generator; ``dropout`` is between the convolutions.

    >>> type(build("en2-resnet8", num_classes=10)).__name__
    'Ensemble'
    """
    parsed = re.fullmatch(r"(?:en([1-9]\d?)-)?resnet(\d+)", name) if isinstance(name, str) else None
    if parsed is None or int(parsed[2]) not in DEPTHS:
        known = ", ".join(f"resnet{depth}" for depth in DEPTHS)
        raise UsageError(f"unknown model {name!r}; known are {known}, and ensembles of them such as en5-resnet8.")
    if norm not in ("batch", "group"):
        raise UsageError(f"norm must be 'batch' or 'group', not {norm!r}.")
    if num_classes < 2 or in_channels < 1:
        raise UsageError(
            f"a model needs at least 2 classes and 1 channel, not num_classes={num_classes}, "
            f"in_channels={in_channels}."
        )

    def single() -> ResNet:
        return ResNet(int(parsed[2]), num_classes, in_channels, norm, skip, dropout)

    return single() if parsed[1] is None else Ensemble([single() for _ in range(int(parsed[1]))])
