"""How a process asks the system for memory: page by page and anew in every step costs 10% of the step and more.

These settings hold for a whole process. Commands and workers make them; the library leaves its user's process alone.
"""

import ctypes
import os
from functools import cache

from resperturb.environment import wait_passively

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # the names that malloc.h gives these numbers
_BYTES = 1 << 30
# What torch calls it in the environment.
HUGE_PAGES = "THP_MEM_ALLOC_ENABLE"


def tune_process() -> None:
    """Set up a command's process for training, and those that it starts; call it before torch is loaded."""
    wait_passively()
    use_huge_pages()
    keep_freed_memory()


@cache
def keep_freed_memory() -> None:
    """Make glibc keep freed memory for later use in this process.

    Another C library, and settings in the environment, are left alone.
    """
    if os.environ.keys() & {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "LD_PRELOAD"}:
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, _BYTES)
        mallopt(_MMAP_THRESHOLD, _BYTES)


def use_huge_pages() -> None:
    """Make torch allocate large tensors in pages of 2 MB, in this process and in those that it starts.

    Torch reads the environment once, when it makes its first tensor. A user's own setting stays.
    """
    os.environ.setdefault(HUGE_PAGES, "1")
