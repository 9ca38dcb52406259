"""Memory that was freed is used again, instead of being asked from the system page by page."""

import resource
import sys

import pytest

from resperturb.training.heap import keep_freed_memory


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc is Linux's")
def test_freed_memory_is_kept() -> None:
    keep_freed_memory()
    page, size = resource.getpagesize(), 200 << 20

    def pages_asked() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        bytearray(size)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    pages_asked()
    assert pages_asked() < size / page / 100
