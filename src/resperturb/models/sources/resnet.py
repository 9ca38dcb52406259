"""The paper's networks: ``resnet8`` to ``resnet110``."""

import re
from typing import ClassVar

from torch import nn

from resperturb.errors import UsageError
from resperturb.models.names import NetworkName
from resperturb.models.resnet import ResNet
from resperturb.models.source import NetworkSource, Request, register_network

DEPTHS = (8, 14, 20, 32, 44, 56, 110)


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
