"""Images that stay where they are, on disk as a rule, until they are asked for."""

import mmap
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch

Pixels: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]

# After so many bytes of a mapped file were touched, its pages leave the resident set of the process.
RESIDENT_BYTES = 1 << 23
# What the system maps around a row that is asked for, in the hope that the next one is near.
_AROUND_A_ROW = 1 << 16


def release_pages(pixels: Pixels, touched: int) -> int:
    """Give the pages of a mapped file back to the system once ``touched`` bytes of it were read or written.

    The system keeps them for as long as there is room, so that reading them again costs next to nothing. What is not
    mapped stays as it is. The number of bytes that count as touched from now on is returned.
    """
    if touched < RESIDENT_BYTES:
        return touched
    owner: Any = pixels
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if isinstance(owner, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        owner.madvise(mmap.MADV_DONTNEED)
    return 0


class Rows:
    """Chosen rows of arrays ``[N, C, H, W]`` one after the other; indexing it copies those rows into a tensor.

    It is indexed as a tensor is, and stands for one in an :class:`~resperturb.data.images.ImageSet`. Selecting and
    joining move no pixels. Grey rows become colour ones where the others are in colour.

    >>> rows = Rows([np.zeros((3, 1, 2, 2), np.uint8), np.ones((1, 1, 2, 2), np.uint8)]).select([3, 0])
    >>> rows.shape, rows[0].tolist()
    (torch.Size([2, 1, 2, 2]), [[[1, 1], [1, 1]]])
    """

    dtype = torch.uint8
    ndim = 4

    def __init__(
        self, parts: Sequence[Pixels], places: np.ndarray[Any, Any] | None = None, channels: int | None = None
    ) -> None:
        self.parts = tuple(np.asarray(part) for part in parts)
        self._starts = np.cumsum([0, *map(len, self.parts)]).tolist()
        self.places = np.arange(self._starts[-1]) if places is None else places
        wanted = max(part.shape[1] for part in self.parts) if channels is None else channels
        self._touched = 0
        self.shape = torch.Size((len(self.places), wanted, *self.parts[0].shape[2:]))

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: Any) -> torch.Tensor:
        chosen = self.places[index.cpu().numpy() if isinstance(index, torch.Tensor) else index]
        found = self._copied(np.atleast_1d(chosen))
        touched = self._touched + found.nbytes + len(found) * _AROUND_A_ROW
        self._touched = [release_pages(part, touched) for part in self.parts][-1]
        return torch.from_numpy(found if np.ndim(chosen) else found[0])

    def _copied(self, places: np.ndarray[Any, Any]) -> Pixels:
        if len(self.parts) == 1 and self.parts[0].shape[1] == self.shape[1]:
            return np.asarray(self.parts[0][places])
        found = np.empty((len(places), *self.shape[1:]), dtype=np.uint8)
        for start, part in zip(self._starts, self.parts, strict=False):
            here = (places >= start) & (places < start + len(part))
            found[here] = part[places[here] - start]
        return found

    def select(self, indices: Any) -> "Rows":
        """Choose among the rows without reading them."""
        return Rows(self.parts, self.places[np.asarray(indices, dtype=np.int64)], self.shape[1])

    def concatenated(self, other: "Rows") -> "Rows":
        """Put the rows of another after these, without reading either."""
        places = np.concatenate([self.places, other.places + self._starts[-1]])
        return Rows([*self.parts, *other.parts], places, max(self.shape[1], other.shape[1]))


Images: TypeAlias = torch.Tensor | Rows


def as_rows(images: Images) -> Rows:
    """See a tensor as rows; rows are what they are."""
    return images if isinstance(images, Rows) else Rows([images.numpy()])


def in_chunks(images: Images, size: int) -> Iterator[torch.Tensor]:
    """Give images ``size`` at a time, so that those on disk are never all in memory.

    >>> [len(chunk) for chunk in in_chunks(torch.zeros(5, 1, 2, 2, dtype=torch.uint8), 2)]
    [2, 2, 1]
    """
    for start in range(0, max(1, len(images)), size):  # none at all are one chunk of none, as torch.split has it
        yield images[start : start + size]
