"""Freed memory is reused, and large tensors use huge pages."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from resperturb.heap import use_huge_pages

# In a process of its own: what the C library does depends on what the process did before.
CHECK = """
import resource
from resperturb.heap import keep_freed_memory
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


HUGE_PAGES = """
from pathlib import Path
from resperturb.heap import use_huge_pages
use_huge_pages()
import torch
tensor = torch.ones(1 << 24)
lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
[kilobytes] = [int(line.split()[1]) for line in lines if line.startswith("AnonHugePages:")]
assert kilobytes >= (1 << 15)
"""
SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.skipif(
    not SETTING.exists() or "[never]" in SETTING.read_text(), reason="the system has no transparent huge pages"
)
def test_large_tensors_are_in_huge_pages() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "THP_MEM_ALLOC_ENABLE"}
    subprocess.run([sys.executable, "-c", HUGE_PAGES], check=True, env=environment)


COMMAND = """
import sys
from resperturb import cli, heap
sys.argv = ["resperturb", "--version"]
try:
    cli.main()
except SystemExit:
    pass
assert heap.keep_freed_memory.cache_info().currsize == 1
"""


def test_a_command_tunes_its_process() -> None:
    subprocess.run([sys.executable, "-c", COMMAND], check=True, capture_output=True)


def test_the_users_setting_of_huge_pages_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THP_MEM_ALLOC_ENABLE", "0")
    use_huge_pages()
    assert os.environ["THP_MEM_ALLOC_ENABLE"] == "0"
