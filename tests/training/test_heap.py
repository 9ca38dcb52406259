"""Memory that was freed is used again, instead of being asked from the system page by page."""

import subprocess
import sys

import pytest

# In a process of its own: what the C library does depends on what the process did before.
CHECK = """
import resource
from resperturb.training.heap import keep_freed_memory
keep_freed_memory()
page, size = resource.getpagesize(), 200 << 20
def pages_asked():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    bytearray(size)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
pages_asked()
assert pages_asked() < size / page / 100
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc is Linux's")
def test_freed_memory_is_kept() -> None:
    subprocess.run([sys.executable, "-c", CHECK], check=True)
