"""Data that the processes of one machine read in place, instead of each loading its own."""

import mmap
import os
import pickle
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Shared:
    """A pickled value whose arrays lie in memory that other processes can map.

    The memory has no name in the file system: it is gone with the last process that has it, however that ends.

    Attributes:
        content: The pickle, without the arrays.
        sizes: How many bytes each array takes.
        handle: The file descriptor of the memory.
    """

    content: bytes
    sizes: tuple[int, ...]
    handle: int


def share(value: Any) -> Shared | None:
    """Put ``value`` into shared memory; None where the system has none without a name.

    >>> import numpy as np
    >>> shared = share({"images": np.arange(3)})
    >>> shared is None or attach(shared.content, shared.sizes, shared.handle)["images"].tolist()
    [0, 1, 2]
    """
    if not hasattr(os, "memfd_create"):  # only Linux has it
        return None
    buffers: list[pickle.PickleBuffer] = []
    content = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    handle = os.memfd_create("resperturb")
    with open(handle, "wb", closefd=False) as file:
        for buffer in buffers:
            file.write(buffer.raw())
    return Shared(content, tuple(buffer.raw().nbytes for buffer in buffers), handle)


def attach(content: bytes, sizes: tuple[int, ...], handle: int) -> Any:
    """Return the value of :func:`share`; its arrays cannot be written to. The handle is closed."""
    total = sum(sizes)
    memory = memoryview(mmap.mmap(handle, total, prot=mmap.PROT_READ) if total else b"")
    os.close(handle)
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    return pickle.loads(
        content, buffers=[memory[start : start + size] for start, size in zip(starts, sizes, strict=True)]
    )
