"""The usual augmentations: crops after padding by four pixels for small images, resized crops for large ones."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

PADDING = 4
# Of the area and of the ratio of width to height, as in training on ImageNet.
AREAS = (0.08, 1.0)
RATIOS = (3 / 4, 4 / 3)
# The image, its mirror image, and both shifted by pixels down and to the right, once along each axis.
VARIANTS = tuple(
    (mirrored, down, right)
    for down, right in ((0, 0), (2, 0), (-2, 0), (0, 2), (0, -2))
    for mirrored in (False, True)
)


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


def resized_crop_and_flip(
    images: Tensor, generator: torch.Generator, share: slice = slice(None), of: int | None = None
) -> Tensor:
    """Cut a random part out of each image, resize it to the whole, and mirror half of them.

    ``images`` may be the ``share`` of a batch ``of`` more, as in :func:`crop_and_flip`.

    >>> batch = torch.full((2, 1, 8, 8), 7, dtype=torch.uint8)
    >>> resized_crop_and_flip(batch, torch.Generator().manual_seed(0)).unique()
    tensor([7], dtype=torch.uint8)
    """
    count = len(images)
    whole = count if of is None else of
    area, ratio, across, down, flip = torch.rand(5, whole, generator=generator)[:, share]
    area = AREAS[0] + (AREAS[1] - AREAS[0]) * area
    ratio = torch.exp(math.log(RATIOS[0]) + (math.log(RATIOS[1]) - math.log(RATIOS[0])) * ratio)
    width, height = (area * ratio).sqrt().clamp(max=1), (area / ratio).sqrt().clamp(max=1)
    theta = torch.zeros(count, 2, 3)
    theta[:, 0, 0] = torch.where(flip < 0.5, -width, width)
    theta[:, 1, 1] = height
    theta[:, 0, 2] = (1 - width) * (2 * across - 1)
    theta[:, 1, 2] = (1 - height) * (2 * down - 1)
    grid = F.affine_grid(theta, list(images.shape), align_corners=False)
    cut = F.grid_sample(images.float(), grid, padding_mode="border", align_corners=False)
    return cut.round_().to(torch.uint8)


def augmented(images: Tensor, variant: int) -> Tensor:
    """Return images as the training may have seen them, in one of the variants.

    A model memorises augmented images, so LiRA and RMIA ask about several of them (Carlini et al. 2022, Zarifzadeh et
    al. 2024): LiRA takes the answers as dimensions, RMIA averages them, label-only counts their votes.

    >>> row = torch.tensor([[[[1, 2, 3, 4]]]])
    >>> augmented(row, 1).flatten().tolist(), augmented(row, 6).flatten().tolist()
    ([4, 3, 2, 1], [0, 0, 1, 2])
    """
    mirrored, down, right = VARIANTS[variant]
    found = images.flip(-1) if mirrored else images
    return F.pad(found, (right, -right, down, -down))
