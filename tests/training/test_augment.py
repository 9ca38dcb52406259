"""Augmentation shifts and mirrors, and nothing else."""

import torch

from resperturb.training.augment import PADDING, crop_and_flip


def test_every_augmented_image_is_a_shifted_perhaps_mirrored_original() -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(1, 256, (200, 3, 12, 10), dtype=torch.uint8, generator=generator)
    augmented = crop_and_flip(images, generator)
    mirrored = 0
    for before, after in zip(images, augmented, strict=True):
        padded = torch.nn.functional.pad(before, (PADDING,) * 4)
        crops = [
            padded[:, top : top + 12, left : left + 10]
            for top in range(2 * PADDING + 1)
            for left in range(2 * PADDING + 1)
        ]
        plain = any(after.equal(crop) for crop in crops)
        flipped = any(after.equal(crop.flip(2)) for crop in crops)
        assert plain or flipped
        mirrored += flipped and not plain
    assert 70 < mirrored < 130  # half of 200, give or take four standard deviations
