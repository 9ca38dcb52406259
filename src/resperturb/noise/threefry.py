"""Standard normals for compiled networks: Threefry words and Box-Muller, in one kernel that the compiler writes.

Torch draws normals on the CPU from one serial Mersenne Twister. A network that is compiled has a compiler at hand,
and counter-based random numbers are plain arithmetic on 0, 1, 2, ...: vectorised, in threads, half the time. The
generator is Threefry-4x32 with its full 20 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
2011), so all 128 bits of a key count; the tail reaches 6.76 standard deviations.
"""

import math
import os
import shutil
from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor

_ROUNDS = 20
_ROTATIONS = ((10, 26), (11, 21), (13, 27), (23, 5), (6, 20), (17, 11), (25, 10), (18, 20))
_PARITY = 0x1BD11BDA


@cache
def has_compiler() -> bool:
    """Whether there is the C++ compiler that ``torch.compile`` needs."""
    return shutil.which(os.environ.get("CXX", "g++")) is not None


def threefry(counter: Sequence[Tensor], key: Sequence[Tensor]) -> list[Tensor]:
    """Hash four int32 words to four: Threefry-4x32-20.

    >>> zeros = [torch.zeros(1, dtype=torch.int32)] * 4
    >>> [hex(int(word) & 0xFFFFFFFF) for word in threefry(zeros, zeros)]
    ['0x9c6ca96a', '0xe17eae66', '0xfc10ecd4', '0x5256a7d8']
    """
    schedule = (*key, key[0] ^ key[1] ^ key[2] ^ key[3] ^ _PARITY)
    words = [word + part for word, part in zip(counter, schedule, strict=False)]
    for index in range(_ROUNDS):
        first, second = (1, 3) if index % 2 == 0 else (3, 1)
        for low, high, by in ((0, first, _ROTATIONS[index % 8][0]), (2, second, _ROTATIONS[index % 8][1])):
            words[low] = words[low] + words[high]
            words[high] = _rotated(words[high], by) ^ words[low]
        if index % 4 == 3:
            injection = index // 4 + 1
            words = [word + schedule[(injection + place) % 5] for place, word in enumerate(words)]
            words[3] = words[3] + injection
    return words


def _rotated(word: Tensor, by: int) -> Tensor:
    return (word << by) | ((word >> (32 - by)) & ((1 << by) - 1))


def normals(key: Tensor, quarter: int) -> Tensor:
    """Draw ``4 * quarter`` standard normals, a function of the four int32 words of ``key``.

    >>> normals(torch.tensor([1, 2, 3, 4], dtype=torch.int32), 2).shape
    torch.Size([8])
    """
    counter = torch.arange(quarter, dtype=torch.int32, device=key.device)
    zero = torch.zeros((), dtype=torch.int32, device=key.device)
    words = threefry((counter, zero, zero, zero), key.unbind())
    pairs = ((_radius(words[i]), *_cosine_and_sine(words[i + 1])) for i in (0, 2))
    return torch.cat([radius * side for radius, *sides in pairs for side in sides])


def _radius(word: Tensor) -> Tensor:
    """``sqrt(-2 log u)`` with ``u = (word + 1/2) / 2^32``, all of its 32 bits kept where u is small: in the tail."""
    high = ((word >> 8) & 0xFFFFFF).float()
    low = (word & 0xFF).float() + 0.5
    return torch.sqrt(-2 * torch.log((high * 256.0 + low) * 2.0**-32))


def _cosine_and_sine(word: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine of a uniform angle: polynomials within 45 degrees of an axis, which two bits pick."""
    angle = (word << 2).float() * (math.pi / 4 * 2.0**-31)
    square = angle * angle
    sine = angle * (1 + square * (-0.16666654611 + square * (0.0083321608736 + square * -0.00019515295891)))
    rest = 0.041666645683 + square * (-0.0013887316255 + square * 2.4433157118e-05)
    cosine = 1 - 0.5 * square + square * square * rest
    turned, opposite = (word & 0x40000000) != 0, word < 0
    x, y = torch.where(turned, -sine, cosine), torch.where(turned, cosine, sine)
    return torch.where(opposite, -x, x), torch.where(opposite, -y, y)


@cache
def compiled_normals() -> Callable[[Tensor, int], Tensor]:
    """Compile :func:`normals`, once for draws of any size."""
    return torch.compile(normals, dynamic=True, fullgraph=True)
