"""A set of labelled images, as bytes in memory or on disk."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from resperturb.data.rows import Images, Rows, in_chunks

# Bounds the memory of one step, whatever the size of the set.
_BYTES_PER_CHUNK = 1 << 24


@dataclass(frozen=True)
class LoadSummary:
    """What became of the files of a data set: how many were used, converted and left out, and why.

    ``converted`` and ``skipped`` are pairs of a reason and a number; ``advice`` is what the user should look at.

    >>> print(LoadSummary("scans", 80, 20, (("from 12 bits to 8 (asked for)", 100),), ((".txt files", 3),)))
    scans: 100 images used (80 training, 20 test); 100 from 12 bits to 8 (asked for); skipped: 3 .txt files.
    """

    source: str
    train: int
    test: int
    converted: tuple[tuple[str, int], ...] = ()
    skipped: tuple[tuple[str, int], ...] = ()
    advice: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [f"{self.train + self.test:,} images used ({self.train:,} training, {self.test:,} test)"]
        parts += [f"{count:,} {what}" for what, count in self.converted]
        if self.skipped:
            parts.append("skipped: " + ", ".join(f"{count:,} {what}" for what, count in self.skipped))
        return " ".join([f"{self.source}: {'; '.join(parts)}.", *self.advice])


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images as uint8 ``[N, C, H, W]``, their labels (indices into ``classes``) and, if known, their groups.

    ``groups`` says which images belong together (the patient of each image, as text); it is None if unknown. The
    images are a tensor, or :class:`~resperturb.data.rows.Rows` on disk: both give tensors when they are indexed.
    ``summary`` is that of the data set as it was loaded.

    >>> images = torch.zeros(4, 1, 8, 8, dtype=torch.uint8)
    >>> cells = ImageSet(images, torch.tensor([0, 1, 0, 1]), ("benign", "malignant"), None, "cells")
    >>> len(cells), cells.num_classes, cells.channels, cells.size
    (4, 2, 1, (8, 8))
    >>> cells.select([1, 3]).labels.tolist()
    [1, 1]
    """

    images: Images
    labels: torch.Tensor
    classes: tuple[str, ...]
    groups: np.ndarray[Any, Any] | None
    name: str
    summary: LoadSummary | None = None

    def __post_init__(self) -> None:
        if self.images.dtype != torch.uint8 or self.images.ndim != 4:
            raise ValueError(f"images must be uint8 [N, C, H, W], not {self.images.dtype} {self.images.shape}")
        if self.labels.dtype != torch.int64 or self.labels.shape != self.images.shape[:1]:
            raise ValueError(f"labels must be one int64 an image, not {self.labels.dtype} {self.labels.shape}")
        if len(self) and not 0 <= int(self.labels.min()) <= int(self.labels.max()) < len(self.classes):
            raise ValueError(f"labels must lie in 0..{len(self.classes) - 1}")
        if self.groups is not None and self.groups.shape != (len(self),):
            raise ValueError("groups must hold one value per image")

    def __len__(self) -> int:
        return int(self.images.shape[0])

    @property
    def num_classes(self) -> int:
        """How many classes a model of these images tells apart."""
        return len(self.classes)

    @property
    def channels(self) -> int:
        """1 for grey images, 3 for colour."""
        return int(self.images.shape[1])

    @property
    def size(self) -> tuple[int, int]:
        """Height and width in pixels."""
        return int(self.images.shape[2]), int(self.images.shape[3])

    def select(self, indices: Sequence[int] | np.ndarray[Any, Any] | torch.Tensor) -> "ImageSet":
        """Return the images at ``indices``, in that order."""
        chosen = torch.as_tensor(np.asarray(indices, dtype=np.int64))
        groups = None if self.groups is None else self.groups[chosen.numpy()]
        images = self.images.select(chosen) if isinstance(self.images, Rows) else self.images[chosen]
        return ImageSet(images, self.labels[chosen], self.classes, groups, self.name, self.summary)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the pixels, labels, class names and groups: what a result on these images depends on.

        The name and the path the images came from do not count.

        >>> images = torch.zeros(2, 1, 8, 8, dtype=torch.uint8)
        >>> one = ImageSet(images, torch.tensor([0, 1]), ("a", "b"), None, "here")
        >>> other = ImageSet(images.clone(), torch.tensor([0, 1]), ("a", "b"), None, "there")
        >>> one.fingerprint == other.fingerprint
        True
        """
        groups = None if self.groups is None else [str(group) for group in self.groups]
        digest = hashlib.sha256(repr((tuple(self.images.shape), self.classes, groups)).encode())
        for chunk in in_chunks(self.images, max(1, _BYTES_PER_CHUNK // max(1, math.prod(self.images.shape[1:])))):
            digest.update(chunk.contiguous().cpu().numpy().data)
        digest.update(self.labels.contiguous().cpu().numpy().astype("<i8").data)
        return digest.hexdigest()
