"""Poison: one record made to leave a trace in any model that was trained on it, for audits over many trainings.

Jagielski, Ullman and Oprea ("Auditing differentially private machine learning", 2020) train models with and without
``k`` copies of such a record, and ask how well the two kinds of model can be told apart. Two records of theirs:

- ``backdoor``: an ordinary image with a white square in its corner, and a wrong label;
- ``clipbkd``: an image of directions in which the data hardly varies, labelled as what it looks least like. No other
  record pulls the weights that way, so clipping gradients hardly weakens it. They take the one least direction; bytes
  cannot hold an image of the usual size along it, so ours is a pattern within the least quarter of directions.
"""

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from resperturb.data.images import ImageSet

Kind = Literal["backdoor", "clipbkd"]
KINDS: tuple[Kind, ...] = ("backdoor", "clipbkd")
MIDDLE = 127.5
# Of larger images the middle is used: finding a direction takes the cube of the number of pixels.
LARGEST_PATCH = 32
MOST_IMAGES = 5000
LEAST_SHARE = 0.25


def make_poison(images: ImageSet, kind: Kind) -> ImageSet:
    """Make the one poisoned record for models that are trained on ``images``; the same images give the same record.

    >>> from resperturb.data import load
    >>> sample = load("fashion-sample", split="train", limit=100)
    >>> poison = make_poison(sample, "clipbkd")
    >>> poison.images.shape, poison.name
    (torch.Size([1, 1, 28, 28]), 'clipbkd poison')
    """
    pixels, label = _backdoor(images) if kind == "backdoor" else _clipbkd(images)
    groups = None if images.groups is None else np.array(["poison"])
    return ImageSet(pixels[None], torch.tensor([label]), images.classes, groups, f"{kind} poison")


def copies_of(poison: ImageSet, copies: int) -> ImageSet:
    """Repeat the poisoned record.

    >>> from resperturb.data import load
    >>> len(copies_of(make_poison(load("fashion-sample", split="train", limit=100), "backdoor"), 4))
    4
    """
    return poison.select(np.zeros(copies, dtype=np.int64))


def _backdoor(images: ImageSet) -> tuple[Tensor, int]:
    pixels = images.images[torch.tensor([0])][0].clone()
    side = max(2, min(images.size) // 6)
    pixels[:, -side:, -side:] = 255
    return pixels, (int(images.labels[0]) + 1) % images.num_classes


def _clipbkd(images: ImageSet) -> tuple[Tensor, int]:
    (top, left), (height, width) = _patch(images.size)
    chosen = torch.linspace(0, len(images) - 1, min(len(images), MOST_IMAGES)).long()
    patches = images.images[chosen][:, :, top : top + height, left : left + width]
    rows = patches.flatten(1).to(torch.float64) - MIDDLE
    directions = torch.linalg.eigh(rows.T @ rows).eigenvectors
    least = directions[:, : max(1, int(LEAST_SHARE * len(directions)))]
    signs = torch.from_numpy(np.random.default_rng(0).choice([-1.0, 1.0], len(directions)))
    pattern = least @ (least.T @ signs)
    pattern *= rows.norm(dim=1).mean() / pattern.norm()
    patch = (MIDDLE + pattern).clamp(0, 255).round().to(torch.uint8).view(patches.shape[1:])
    pixels = torch.full((images.channels, *images.size), round(MIDDLE), dtype=torch.uint8)
    pixels[:, top : top + height, left : left + width] = patch
    look = rows @ (patch.flatten().to(torch.float64) - MIDDLE)
    labels = images.labels[chosen]
    present = sorted(set(labels.tolist()))
    return pixels, int(min(present, key=lambda c: float(look[labels == c].mean())))


def _patch(size: tuple[int, int]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Where the middle of an image begins, and how large it is."""
    height, width = (min(side, LARGEST_PATCH) for side in size)
    return ((size[0] - height) // 2, (size[1] - width) // 2), (height, width)
