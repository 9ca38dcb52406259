"""Compute the paper's Theorems 1 and 3 as printed; docs/theory.md says what of them is proven.

Theorem 3 is about ``F``, the functions ``w . x^p(T)`` of a linear flow ``dx = U x dt``, and ``G``, their expectations
under multiplicative noise. The noise multiplies the expectation of every feature by the same number, whatever ``U``
is, so ``R(G) = ratio * R(F)`` exactly. This is about generalisation; it protects nobody.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resperturb.checks import ratio

# What Theorem 1 assumes besides the exact bound; the second is not true in general.
THEOREM1_ASSUMES = (
    "The mean output of every block has norm at most {bound:g}.",
    "The output of every block is normal with the same spread for both data sets, which is not true in general: a "
    "nonlinear block makes normal inputs not normal.",
)
THEOREM3_ASSUMES = (
    "The network is a linear flow with one noise for all features, not a ResNet.",
    "Its output is averaged over the noise.",
    "The norms of w and U are at most 1.",
    "U is a multiple of the identity. For other U the paper's value of R(F) is only a lower bound (see "
    "docs/theory.md); the ratio is exact for every U.",
    "The loss lies in [0, 1] and changes at most 1 times as fast as the output; the records are independent draws.",
)
_DRAWS_AT_ONCE = 256


@dataclass(frozen=True)
class Theorem1:
    """What Theorem 1 gives for the whole model, and what its condition on the blocks gives alone."""

    epsilon: float
    from_blocks: float


def theorem1(*, gamma: float, input_std: float, radius: float, bound: float, epochs: float, delta: float) -> Theorem1:
    """Return Theorem 1's epsilon for the whole model, at the best ``lambda``.

    With ``rho = 2 epochs max(radius^2/input_std^2, bound^2/gamma^2)`` both conditions read
    ``rho alpha <= lambda epsilon``. The least epsilon over ``lambda`` is ``rho + 2 sqrt(rho log(1/delta))``.

    >>> result = theorem1(gamma=0.5, input_std=0.25, radius=30, bound=30, epochs=100, delta=1e-5)
    >>> round(result.epsilon), round(result.from_blocks)
    (2891516, 725758)
    """
    inputs, blocks = (
        rdp_epsilon(2 * epochs * ratio(size, noise) ** 2, delta)
        for size, noise in ((radius, input_std), (bound, gamma))
    )
    return Theorem1(max(inputs, blocks), blocks)


def rdp_epsilon(rho: float, delta: float) -> float:
    """Return the epsilon of a mechanism with Renyi divergence ``rho * alpha``, by the classical conversion.

    It is ``min over alpha of rho alpha + log(1/delta)/(alpha - 1)``.

    >>> round(rdp_epsilon(0.5, 1e-5), 4)
    5.2985
    """
    return rho + 2 * math.sqrt(rho) * math.sqrt(-math.log(delta)) if math.isfinite(rho) else math.inf


def rdp_rho(epsilon: float, delta: float) -> float:
    """Invert ``rdp_epsilon``.

    >>> round(rdp_rho(5.2985, 1e-5), 4)
    0.5
    """
    log_inverse = -math.log(delta)
    return float((epsilon / (math.sqrt(epsilon + log_inverse) + math.sqrt(log_inverse))) ** 2)


@dataclass(frozen=True)
class NoisyClass:
    """The Rademacher complexity of ``G`` at one ``gamma``, and the generalisation gap that it allows at 95%."""

    gamma: float
    ratio: float
    complexity: float
    standard_error: float
    gap: float


def theorem3(
    inputs: NDArray[Any], gammas: Sequence[float], power: float, time: float, draws: int = 1000
) -> tuple[tuple[NoisyClass, ...], str]:
    """Compute Theorem 3 on some inputs: the complexities, their ratios and the gap they allow.

    Args:
        inputs: One row per record.
        gammas: Noise coefficients; no noise comes first in the result.
        power: The power p of the features, between 0 and 1.
        time: The time T of the flow.
        draws: The number of random signs per record.

    Returns:
        What it gives for each gamma, and whether any gap is less than the loss allows.

    >>> [round(row.ratio, 3) for row in theorem3(np.eye(4, dtype=np.float32), [1.0, 2.0], 0.5, 1.0)[0]]
    [1.0, 0.882, 0.607]
    """
    rows = np.sign(inputs) * np.abs(inputs) ** power  # a negative feature keeps its sign
    rng, count = np.random.default_rng(0), len(rows)
    sizes = (min(_DRAWS_AT_ONCE, draws - start) for start in range(0, draws, _DRAWS_AT_ONCE))
    signed = [rng.choice(np.array([-1, 1], rows.dtype), (size, count)) @ rows for size in sizes]
    norms = np.linalg.norm(np.concatenate(signed), axis=1).astype(np.float64)
    slack = 3 * math.sqrt(math.log(2 / 0.05) / (2 * count))

    def at(gamma: float) -> NoisyClass:
        shrunk = power * (1 - power) * gamma * gamma * time / 2
        scale = math.exp(time * power - shrunk) / count
        complexity = float(norms.mean()) * scale
        error = float(norms.std(ddof=1)) / math.sqrt(draws) * scale
        return NoisyClass(gamma, math.exp(-shrunk), complexity, error, 2 * complexity + slack)

    classes = tuple(at(gamma) for gamma in (0.0, *gammas))
    best = min(classes, key=lambda row: row.gap)
    if best.gap >= 1:
        meaning = (
            f"vacuous: the gap is bounded by {best.gap:.3g} at best, and a loss of at most 1 has no larger gap "
            "anyway."
        )
    else:
        meaning = f"meaningful: with gamma {best.gamma:g} the gap is at most {best.gap:.3g}, if the assumptions hold."
    return classes, meaning
