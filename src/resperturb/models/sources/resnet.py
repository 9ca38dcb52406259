"""The paper's networks: pre-activation ResNets of depth 6n + 2 (He et al. 2016) with blocks exactly ``x + F(x)``."""

import re
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from resperturb.errors import UsageError
from resperturb.models.names import NetworkName
from resperturb.models.source import NetworkSource, Norm, Request, register_network
from resperturb.perturbation.junctions import HasJunction, join

DEPTHS = (8, 14, 20, 32, 44, 56, 110)
WIDTHS = (16, 32, 64)
GROUPS = 8


def _norm(norm: Norm, channels: int) -> nn.Module:
    return nn.BatchNorm2d(channels) if norm == "batch" else nn.GroupNorm(GROUPS, channels)


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)


class Block(HasJunction):
    """Two pre-activated 3x3 convolutions and a shortcut, which is a 1x1 convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norm, skip: bool, dropout: float = 0.0) -> None:
        super().__init__()
        self.has_shortcut = skip
        self.norm1 = _norm(norm, inputs)
        self.conv1 = _conv(inputs, outputs, 3, stride)
        self.norm2 = _norm(norm, outputs)
        self.dropout = nn.Dropout(dropout)
        self.conv2 = _conv(outputs, outputs, 3)
        changes = stride != 1 or inputs != outputs
        self.shortcut = _conv(inputs, outputs, 1, stride) if skip and changes else None

    def forward(self, x: Tensor) -> Tensor:
        """Compute ``x + F(x)``, or ``F(x)`` in the ablation without skip connections."""
        activated = F.relu(self.norm1(x))
        branch = self.conv2(self.dropout(F.relu(self.norm2(self.conv1(activated)))))
        if not self.has_shortcut:
            return join(self, None, branch)
        return join(self, x if self.shortcut is None else self.shortcut(activated), branch)


class ResNet(nn.Module):
    """A stem, three stages of ``n`` blocks with widths 16, 32 and 64, average pooling and a linear layer.

    >>> ResNet(depth=20, num_classes=10, in_channels=1).depth
    20
    """

    def __init__(
        self,
        depth: int,
        num_classes: int,
        in_channels: int = 3,
        norm: Norm = "batch",
        skip: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.depth = depth
        self.stem = _conv(in_channels, WIDTHS[0], 3)
        blocks = []
        inputs = WIDTHS[0]
        for stage, outputs in enumerate(WIDTHS):
            for position in range((depth - 2) // 6):
                stride = 2 if stage > 0 and position == 0 else 1
                blocks.append(Block(inputs, outputs, stride, norm, skip, dropout))
                inputs = outputs
        self.blocks = nn.ModuleList(blocks)
        self.norm = _norm(norm, inputs)
        self.head = nn.Linear(inputs, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                # Constant noise is there from the first step: a smaller start drowns in it at large gammas.
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of a batch of images."""
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        x = F.relu(self.norm(x)).mean(dim=(2, 3))
        return self.head(x)  # type: ignore[no-any-return]


@register_network("resnet")
class ResNets(NetworkSource):
    """CIFAR-style pre-activation ResNets, trained as the paper trains them unless told otherwise."""

    examples: ClassVar = ", ".join(f"resnet{depth}" for depth in DEPTHS)
    recipe: ClassVar = {}
    fine_tuning: ClassVar = {"lr": 0.01}

    def owns(self, name: str) -> bool:
        """Whether it is a ResNet of one of the depths."""
        found = re.fullmatch(r"resnet(\d+)", name)
        return found is not None and int(found[1]) in DEPTHS

    def check(self, name: NetworkName, request: Request) -> None:
        """Refuse other depths, and arguments, of which there are none."""
        if not self.owns(name.name):
            raise UsageError(f"unknown network {name.name!r}; known are {self.examples}.")
        if request.args:
            raise UsageError(f"{name} takes no arguments, so drop {', '.join(request.args)} from --model-args.")
        if request.pretrained:
            raise UsageError(f"there are no pretrained weights of {name}; give a file (--weights FILE).")

    def build(self, name: NetworkName, request: Request) -> nn.Module:
        """Build a ResNet."""
        depth = int(name.name.removeprefix("resnet"))
        return ResNet(depth, request.num_classes, request.in_channels, request.norm, request.skip, request.dropout)
