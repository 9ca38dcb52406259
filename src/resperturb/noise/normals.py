"""Draw standard normals from a 128-bit key, and add them to tensors.

On the processor the numbers come from the kernel (AES in counter mode, Box-Muller) or, without a compiler and in
double precision, from numpy's ziggurat over SFC64 with a whole state made from the key. Other devices use Box-Muller
in double precision over torch's own generator there.

**Tails.** A computed normal has a largest value, and a record's noise beyond it would give the record away. Couple
each number with the exact normal that has the same leading random bits. Both lie within 2^-16 of each other unless
the exact radius lies in the last cell of its uniform number, which has probability 2^-127 in the kernel and 2^-126
on other devices. The ziggurat ends beyond 12 standard deviations, with less than 2^-100 left. So ``d`` numbers are
within total variation ``d`` times ``resperturb.privacy.accounting.TAIL_PROBABILITY`` of exact ones up to that
rounding. What is (epsilon, delta)-private with exact numbers is private with :func:`resperturb.privacy.tail_delta`
added to delta. Rounding is not counted, nor are exported graphs, which draw from their runtime.
"""

import hashlib
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from resperturb.noise.kernel import kernel
from resperturb.noise.rounding import is_half, refuse_swallowed, rounded

_CHUNK = 1 << 18
# Noisy sums are rounded to this many bits below the noise.
ROUND_BITS = 20


def generator_name(device: torch.device) -> str:
    """Name what draws single-precision normals on ``device``; another name draws other numbers from the same key.

    The numbers of a name never change: a generator that draws others gets a new name.

    >>> generator_name(torch.device("cpu")) in ("aes-2", "numpy-1")
    True
    """
    if device.type != "cpu":
        return f"torch-{device.type}-2"
    return "numpy-1" if kernel() is None else "aes-2"


def standard_normal(like: Tensor, key: bytes) -> Tensor:
    """Draw standard normals with the shape, type, device and memory layout of ``like``.

    A pure function of the key, the layout and the generator that :func:`generator_name` names.

    >>> a, b = (standard_normal(torch.empty(3), bytes([i] * 16)) for i in (0, 1))
    >>> bool((a == b).any())
    False
    """
    # In the order of memory, whatever the strides are.
    strides = torch.empty_like(like, device="meta").stride()
    if like.device.type == "cpu":
        flat = _on_processor(like.numel(), key, double=like.dtype == torch.float64)
    else:
        flat = _on_device(like.numel(), key, like.device)
    return flat.to(like.dtype).as_strided(like.shape, strides)


def noisy_sum(total: Tensor, key: bytes, std: float) -> Tensor:
    """Return ``total + std n``, drawn in double precision and rounded to at most 2^-20 of ``std``.

    The low bits of a float would reveal the sum below the noise.

    >>> float(noisy_sum(torch.tensor([0.3]), bytes(16), std=2.0**-4) * 2**24 % 1)
    0.0
    """
    normals = standard_normal(torch.empty_like(total, dtype=torch.float64), key)
    grid = 2.0 ** (math.floor(math.log2(std)) - ROUND_BITS)
    rounded = torch.round((total.double() + std * normals) / grid) * grid
    return rounded.to(total.dtype)


def add_normal(
    x: Tensor, plus: Tensor | None, factor: Tensor | None, key: bytes, scale: float, checked: bool = True
) -> Tensor:
    """Return ``x + plus + scale factor n`` with ``n = standard_normal(x, key)``, without a gradient.

    In one pass over memory where there is a kernel. Half precision is added up in 32 bits and rounded once.

    Without ``plus`` or ``factor`` if it is None; each has the shape and type of ``x``.

    Raises:
        NoiseLostError: Half precision rounds most of the noise away, and ``checked`` is set.
    """
    sides = [side for side in (x, plus, factor) if side is not None]
    dense = torch.ops.aten.is_non_overlapping_and_dense(x) and x.dtype in (torch.float32, torch.bfloat16)
    alike = all(s.stride() == x.stride() and s.shape == x.shape and s.dtype == x.dtype for s in sides)
    loaded = kernel() if dense and alike and all(s.device.type == "cpu" and not s.is_neg() for s in sides) else None
    with torch.no_grad():
        if loaded is None:
            return spelled_out(x, plus, factor, scale, lambda like: standard_normal(like, key), checked)
        out = torch.empty_like(x)
        same, meant = loaded.noisy(key, scale, factor, x, plus, out)
        if checked:
            refuse_swallowed(same, meant, x.dtype)
        return out


def spelled_out(
    x: Tensor,
    plus: Tensor | None,
    factor: Tensor | None,
    scale: float,
    normal: Callable[[Tensor], Tensor],
    checked: bool = True,
) -> Tensor:
    """Do what :func:`add_normal` does in several operations, which tracers and transforms can follow.

    ``normal`` draws the numbers for a tensor, and ``factor`` may have any shape that fits.
    """
    wide = x.float() if is_half(x) else x
    total = wide if plus is None else wide + plus.to(wide.dtype)
    drawn = normal(total)
    if factor is None:
        noisy = torch.add(total, drawn, alpha=scale)
    else:
        noisy = torch.addcmul(total, factor.to(total.dtype), drawn, value=scale)
    if not is_half(x):
        return noisy
    return rounded(total, total, noisy, to=x.dtype) if checked else noisy.to(x.dtype)


def _on_processor(count: int, key: bytes, double: bool) -> Tensor:
    flat = torch.empty(count, dtype=torch.float64 if double else torch.float32)
    loaded = None if double else kernel()
    if loaded is not None:
        loaded.fill(key, flat)
        return flat
    array: Any = flat.numpy()
    starts = range(0, count, _CHUNK)

    def fill(start: int) -> None:
        # Each chunk has a generator of its own, so that the number of threads does not change the numbers.
        size = min(_CHUNK, count - start)
        array[start : start + size] = _sfc64(key, start // _CHUNK).standard_normal(size)

    if len(starts) <= 1:
        list(map(fill, starts))
    else:
        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            list(pool.map(fill, starts))
    return flat


def _sfc64(key: bytes, chunk: int) -> np.random.Generator:
    """A generator whose whole state is a hash of the key and the chunk."""
    bits = np.random.SFC64(0)
    state: Any = bits.state
    digest = hashlib.shake_256(key + chunk.to_bytes(8, "little")).digest(32)
    state["state"]["state"] = np.frombuffer(digest, dtype=np.uint64).copy()
    bits.state = state
    return np.random.Generator(bits)


def _on_device(count: int, key: bytes, device: torch.device) -> Tensor:
    """Box-Muller in double precision, from 126 bits for a radius and 63 for an angle."""
    generator = keyed_generator(key, device)
    words = torch.empty(3, -(-count // 2), dtype=torch.int64, device=device).random_(generator=generator)
    high, low, turn = words.double()
    # In two steps, so that a radius keeps its digits where the first bits are zeros.
    uniform = ((high + (low + 0.5) * 2.0**-63) * 2.0**-63, (turn + 0.5) * 2.0**-63)
    radius, angle = torch.sqrt(-2 * torch.log(uniform[0])), (2 * math.pi) * uniform[1]
    return torch.cat([radius * torch.cos(angle), radius * torch.sin(angle)])[:count]


def keyed_generator(key: bytes, device: torch.device | None = None) -> torch.Generator:
    """Make a generator whose whole state follows from ``key``; seeding one on the CPU would keep 32 bits only.

    >>> one, other = (torch.rand(1, generator=keyed_generator(bytes([i] * 16))) for i in (0, 1))
    >>> bool(one == other)
    False
    """
    if device is not None and device.type != "cpu":
        return torch.Generator(device).manual_seed(int.from_bytes(key[:8], "little") >> 1)
    generator = torch.Generator()
    state = generator.get_state()
    words = torch.frombuffer(bytearray(hashlib.shake_256(key).digest(624 * 4)), dtype=torch.int32)
    # The Mersenne Twister's 624 words, each in eight bytes, after the seed and two counters.
    state[24 : 24 + 624 * 8].view(torch.int64).copy_(words.to(torch.int64) & 0xFFFFFFFF)
    return generator.set_state(state)
