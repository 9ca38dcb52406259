"""What the extractors share whose networks were trained on public photographs."""

import hashlib

import torch
import torch.nn.functional as F
from torch import Tensor, nn


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


def digest_of_weights(model: nn.Module) -> str:
    """Give ``sha256:`` and the digest of the names and values of all weights."""
    digest = hashlib.sha256()
    for name, value in model.state_dict().items():
        digest.update(repr((name, value.dtype, tuple(value.shape))).encode())
        digest.update(value.contiguous().cpu().reshape(-1).view(torch.uint8).numpy().data)
    return "sha256:" + digest.hexdigest()
