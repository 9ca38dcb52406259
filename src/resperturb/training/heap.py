"""Keep the memory that a step frees for the next one: to give it back and ask again costs a tenth of a large step."""

import ctypes
import os
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # the names that malloc.h gives these numbers
_BYTES = 1 << 30


@cache
def keep_freed_memory() -> None:
    """Tell glibc so, for the whole process; another C library, and settings in the environment, are left alone."""
    if os.environ.keys() & {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "LD_PRELOAD"}:
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, _BYTES)
        mallopt(_MMAP_THRESHOLD, _BYTES)
