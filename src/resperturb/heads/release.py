"""What a head gives away: noisy sums, rounded, one after the other."""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from resperturb.bounds.arrays import Floats

# A release is rounded to 2^-ROUND_BITS of its noise: the low bits of floats would reveal the sum below the noise.
ROUND_BITS = 20


@dataclass(frozen=True, eq=False)
class Release:
    """A noisy sum as it is published at a step: ``gradient``; ``features`` and ``labels`` of one shot."""

    step: int
    name: str
    value: Floats


OnRelease = Callable[[Release], None]
Noise = Callable[[tuple[int, ...]], Floats]


def noise_of(secret: int | None = None) -> Noise:
    """Make a source of standard normals in float64.

    They are numpy's ziggurat over SFC64. Its tail ends beyond 12 standard deviations, with less than 2^-100 of the
    probability left; ``privacy.dp_head`` counts that in delta. Without a ``secret`` the seed is 128 bits of the
    operating system, which are not kept.
    """
    seed = int.from_bytes(os.urandom(16)) if secret is None else secret
    generator = np.random.Generator(np.random.SFC64(np.random.SeedSequence(seed)))
    return lambda shape: generator.standard_normal(shape)


def noisy(total: Floats, sigma: float, normals: Floats) -> Floats:
    """Add noise to a sum and round the result.

    >>> noisy(np.array([1.0]), 2.0**-4, np.array([0.123456789])) * 2**24 % 1
    array([0.])
    """
    if sigma == 0:
        return total
    grid = 2.0 ** (math.ceil(math.log2(sigma)) - ROUND_BITS)
    rounded: Floats = np.round((total + sigma * normals) / grid) * grid
    return rounded
