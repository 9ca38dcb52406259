"""Compile and load ``kernel.cpp``, which draws normals on the processor.

A compiler takes a second. Its output is kept in the user's cache folder, and every later process loads it. Without a
compiler, or on a processor without AES instructions, :func:`kernel` is None. Numpy then draws the numbers, ten times
slower and other ones; a training is bound to the generator that it began with.
"""

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

# So many numbers hide the price of waking other threads.
WORTH_SHARING = 32 * 1024
_FLAGS = ("-O3", "-march=native", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fPIC")
# Compilers keep to half of what the processor has unless they are told.
_WIDEST = ("-mprefer-vector-width=512",) if platform.machine().lower() in ("x86_64", "amd64") else ()
# NIST SP 800-38A, F.5.1: key, first counter, and the key stream of the first block.
_KNOWN_KEY = bytes.fromhex("2b7e151628aed2a6abf7158809cf4f3c")
_KNOWN_COUNTER = bytes.fromhex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff")
_KNOWN_WORDS = bytes.fromhex("ec8cdf7398607cb0f2d21675ea9ea1e4")


@cache
def has_compiler() -> bool:
    """Whether there is the C++ compiler that ``torch.compile`` and the kernel need."""
    return shutil.which(_compiler()[0]) is not None


def _compiler() -> list[str]:
    return shlex.split(os.environ.get("CXX", "")) or ["g++"]


class Kernel:
    """The functions of ``kernel.cpp`` on flat memory of float32 or bfloat16, shared out among torch's threads."""

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        key, memory, count = ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64

        def function(name: str, *arguments: Any, returns: Any = None) -> Any:
            found = library[f"resperturb_{name}"]
            found.argtypes, found.restype = arguments, returns
            return found

        self._words = function("words", key, ctypes.c_uint64, ctypes.c_uint64, memory)
        self._fill = function("fill", key, ctypes.c_int, count, memory)
        self._noisy = {
            dtype: function(name, key, ctypes.c_int, count, ctypes.c_float, *[memory] * 4, returns=ctypes.c_uint64)
            for dtype, name in ((torch.float32, "noisy_float"), (torch.bfloat16, "noisy_bfloat16"))
        }

    def words(self, key: bytes, counter: bytes) -> bytes:
        """Return AES-128 of ``counter`` under ``key``."""
        words = (ctypes.c_uint32 * 64)()
        low, high = int.from_bytes(counter[:8], "little"), int.from_bytes(counter[8:], "little")
        self._words(key, low, high, ctypes.addressof(words))
        return bytes(words)[:16]

    def fill(self, key: bytes, out: Tensor) -> None:
        """Fill a tensor of float32 with normals."""
        self._fill(key, _threads(out.numel()), out.numel(), out.data_ptr())

    def noisy(
        self, key: bytes, scale: float, factor: Tensor | None, x: Tensor, y: Tensor | None, out: Tensor
    ) -> tuple[int, int]:
        """Compute ``out = x + y + scale factor n``, without ``y`` or ``factor`` if it is None.

        All are of one type and laid out alike; ``out`` may be one of the others.

        Returns:
            Of half precision, how many elements are as without noise, and how many were to change; else zeros.
        """
        places = (None if tensor is None else tensor.data_ptr() for tensor in (factor, x, y, out))
        found = self._noisy[x.dtype](key, _threads(x.numel()), x.numel(), scale, *places)
        return found & 0xFFFFFFFF, found >> 32


_loaded_by = os.getpid()


def _threads(count: int) -> int:
    """The number of threads that draw a number of normals; the threads of OpenMP do not live on in a forked child."""
    return torch.get_num_threads() if count >= WORTH_SHARING and os.getpid() == _loaded_by else 1


@cache
def kernel() -> Kernel | None:
    """Load the kernel, compiling it if this machine has not done so before; None if it cannot be had.

    >>> (kernel() is not None) <= has_compiler()
    True
    """
    if not has_compiler():
        return None
    try:
        loaded = Kernel(_built())
    except (OSError, subprocess.SubprocessError):
        return None
    return loaded if loaded.words(_KNOWN_KEY, _KNOWN_COUNTER) == _KNOWN_WORDS else None


def _built() -> Path:
    source = Path(__file__).with_name("kernel.cpp")
    compiler = _compiler()
    version = subprocess.run([*compiler, "--version"], capture_output=True, check=True, timeout=60).stdout
    openmp = _openmp()
    parts = (source.read_bytes(), version, repr((compiler, _FLAGS, _WIDEST, openmp)).encode(), _processor())
    name = "normals-" + hashlib.sha256(b"\0".join(parts)).hexdigest()[:24] + ".so"
    folder = _cache_folder()
    path = folder / name
    if not _is_ours(path):
        written, compiled = (folder / f"{name}.{os.getpid()}{end}" for end in ("", ".o"))
        threads = ["-fopenmp"] if openmp else []
        for command in (
            [*compiler, *_FLAGS, *_WIDEST, *threads, "-c", str(source), "-o", str(compiled)],
            [*compiler, "-shared", str(compiled), *openmp, "-o", str(written)],
        ):
            subprocess.run(command, capture_output=True, check=True, timeout=120)
        compiled.unlink()
        written.chmod(0o700)
        written.replace(path)
    return path


def _openmp() -> list[str]:
    """The OpenMP runtime that torch brought along, to be linked with; without one the kernel has a single thread."""
    return [str(path) for path in sorted(Path(torch.__file__).with_name("lib").glob("libgomp*.so*"))[:1]]


def _processor() -> bytes:
    """Name what ``-march=native`` means here: a home folder may be shared by different machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()} {platform.node()}".encode()
    names = ("model name", "flags", "Features", "CPU part")
    return "\n".join(sorted({line for line in lines if line.startswith(names)})).encode()


def _cache_folder() -> Path:
    """Return a folder that only its owner can write to, since code is loaded from it."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "resperturb" / "kernels"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if _is_ours(folder) and os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="resperturb-kernel-"))


def _is_ours(path: Path) -> bool:
    """Whether ``path`` is there, belongs to this user, and no other user may write to it."""
    try:
        facts = path.lstat()
    except OSError:
        return False
    mine = facts.st_uid == os.geteuid() and not stat.S_ISLNK(facts.st_mode)
    return mine and not facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
