"""How memory is asked of the system: page by page, and anew in every step, it costs a tenth of the step and more."""

import ctypes
import os
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # the names that malloc.h gives these numbers
_BYTES = 1 << 30
# What torch calls it in the environment.
HUGE_PAGES = "THP_MEM_ALLOC_ENABLE"


@cache
def keep_freed_memory() -> None:
    """Tell glibc to keep what is freed for later, for the whole process.

    Another C library, and settings in the environment, are left alone.
    """
    if os.environ.keys() & {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "LD_PRELOAD"}:
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, _BYTES)
        mallopt(_MMAP_THRESHOLD, _BYTES)


def use_huge_pages() -> None:
    """Let torch ask for large tensors in pages of two megabytes, in this process and in those that it starts.

    Torch looks at the environment once, when it makes its first tensor. What the user has set there stays.
    """
    os.environ.setdefault(HUGE_PAGES, "1")
