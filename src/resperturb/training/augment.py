"""The usual augmentation of small images: a random crop after padding by four pixels, and a random flip."""

import torch
import torch.nn.functional as F
from torch import Tensor

PADDING = 4


def crop_and_flip(
    images: Tensor, generator: torch.Generator, share: slice = slice(None), of: int | None = None
) -> Tensor:
    """Shift each image by up to four pixels, filling with black, and mirror half of them.

    ``images`` may be the ``share`` of a batch ``of`` more: they are moved as they would be in the whole of it.

    >>> batch = torch.arange(2 * 64, dtype=torch.uint8).reshape(2, 1, 8, 8)
    >>> crop_and_flip(batch, torch.Generator().manual_seed(0)).shape
    torch.Size([2, 1, 8, 8])
    """
    count, _, height, width = images.shape
    whole = count if of is None else of
    shifts = torch.randint(0, 2 * PADDING + 1, (2, whole, 1), generator=generator)[:, share]
    rows = shifts[0] + torch.arange(height)
    columns = shifts[1] + torch.arange(width)
    flipped = torch.rand(whole, 1, generator=generator)[share] < 0.5
    columns = torch.where(flipped, columns.flip(1), columns)
    padded = F.pad(images, (PADDING,) * 4)
    which = torch.arange(count)[:, None, None]
    return padded[which, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()
