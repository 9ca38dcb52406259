from typing import ClassVar

import torch
from torch import nn

from resperturb.models import NetworkName, NetworkSource, Request, register_network


class Perceptron(nn.Module):
    """One hidden layer with a residual block."""

    def __init__(self, inputs: int, width: int, classes: int) -> None:
        super().__init__()
        self.first, self.branch, self.head = (
            nn.Linear(inputs, width),
            nn.Linear(width, width),
            nn.Linear(width, classes),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = self.first(images.flatten(1)).relu()
        hidden = hidden + self.branch(hidden).relu()
        return self.head(hidden)


@register_network("perceptron")
class Perceptrons(NetworkSource):
    """``perceptron:64`` has a width of 64."""

    examples: ClassVar = "perceptron:64"
    recipe: ClassVar = {"optimizer": "adamw", "lr": 1e-2}

    def build(self, name: NetworkName, request: Request) -> nn.Module:
        height, width = request.image_size
        return Perceptron(request.in_channels * height * width, int(name.name), request.num_classes)
