"""Variants of ResNet8 that other readings of the paper would train: the same size, the noise or the block elsewhere.

They are built by name, as ``resperturb_reproduction.networks:inside_resnet8``.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from resperturb.models import build
from resperturb.perturbation import HasJunction, join

WIDTHS = (16, 32, 64)


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)


class InsideBlock(HasJunction):
    """The pre-activation block with its noise inside the branch: after the first convolution, before its BatchNorm.

    What a constant noise does there, batch normalisation can undo: it divides by the scale of signal and noise.
    """

    has_shortcut = False

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.conv1 = _conv(inputs, outputs, 3, stride)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.conv2 = _conv(outputs, outputs, 3)
        self.shortcut = _conv(inputs, outputs, 1, stride) if stride != 1 or inputs != outputs else None

    def forward(self, x: Tensor) -> Tensor:
        """Add the branch, noise and all, to the shortcut."""
        activated = F.relu(self.norm1(x))
        noisy = join(self, None, self.conv1(activated))
        branch = self.conv2(F.relu(self.norm2(noisy)))
        shortcut = x if self.shortcut is None else self.shortcut(activated)
        # Written as an addition, perturb would take this sum for a junction, and put noise here too.
        return torch.stack([shortcut, branch]).sum(dim=0)


class PostActivationBlock(HasJunction):
    """The block of He et al. 2015: convolution, BatchNorm and ReLU, the noise on the sum before its last ReLU."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv(inputs, outputs, 3, stride)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = _conv(outputs, outputs, 3)
        self.norm2 = nn.BatchNorm2d(outputs)
        changes = stride != 1 or inputs != outputs
        self.shortcut = (
            nn.Sequential(_conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs)) if changes else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        """Compute ``relu(x + F(x))``, the noise inside the ReLU."""
        branch = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(join(self, self.shortcut(x), branch))


class NoisyStem(HasJunction):
    """A stem whose output has half of the noise of a block: the paper's pi on what enters the first block."""

    has_shortcut = False

    def __init__(self, stem: nn.Module) -> None:
        super().__init__()
        self.stem = stem

    def forward(self, x: Tensor) -> Tensor:
        """Compute the stem with noise of gamma / 2."""
        return join(self, None, 2 * self.stem(x)) / 2


class Variant(nn.Module):
    """A ResNet8 of three given blocks; a post-activation one normalises its stem instead of its last features."""

    def __init__(
        self,
        block: type[InsideBlock] | type[PostActivationBlock],
        num_classes: int,
        in_channels: int,
        post_activation: bool,
    ) -> None:
        super().__init__()
        self.post_activation = post_activation
        self.stem = _conv(in_channels, WIDTHS[0], 3)
        shapes = zip((WIDTHS[0], *WIDTHS), WIDTHS, (1, 2, 2), strict=False)
        self.blocks = nn.ModuleList([block(inputs, outputs, stride) for inputs, outputs, stride in shapes])
        self.norm = nn.BatchNorm2d(WIDTHS[0] if post_activation else WIDTHS[-1])
        self.head = nn.Linear(WIDTHS[-1], num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of a batch of images."""
        x = self.stem(x)
        if self.post_activation:
            x = F.relu(self.norm(x))
        for block in self.blocks:
            x = block(x)
        if not self.post_activation:
            x = F.relu(self.norm(x))
        return self.head(x.mean(dim=(2, 3)))  # type: ignore[no-any-return]


def inside_resnet8(num_classes: int, in_channels: int = 3) -> nn.Module:
    """Build a ResNet8 whose noise is inside the branch, before the BatchNorm that follows.

    >>> from resperturb.perturbation import junctions
    >>> [junction.name for junction in junctions(inside_resnet8(num_classes=10))]
    ['blocks.0', 'blocks.1', 'blocks.2']
    """
    return Variant(InsideBlock, num_classes, in_channels, post_activation=False)


def post_activation_resnet8(num_classes: int, in_channels: int = 3) -> nn.Module:
    """Build a ResNet8 of the blocks of He et al. 2015.

    >>> from resperturb.perturbation import junctions
    >>> [junction.name for junction in junctions(post_activation_resnet8(num_classes=10))]
    ['blocks.0', 'blocks.1', 'blocks.2']
    """
    return Variant(PostActivationBlock, num_classes, in_channels, post_activation=True)


def stem_noise_resnet8(num_classes: int, in_channels: int = 3) -> nn.Module:
    """Build a ResNet8 with noise of gamma / 2 on the output of its stem, besides that in its blocks.

    >>> from resperturb.perturbation import junctions
    >>> [junction.name for junction in junctions(stem_noise_resnet8(num_classes=10))]
    ['stem', 'blocks.0', 'blocks.1', 'blocks.2']
    """
    network = build("resnet8", num_classes=num_classes, in_channels=in_channels)
    network.stem = NoisyStem(network.stem)  # type: ignore[arg-type]
    return network
