"""Theorem 3: how much multiplicative noise shrinks the Rademacher complexity of a linear residual flow.

``F`` is ``{w . x^p(T) : dx = U x dt}`` and ``G`` the expectation of the same under multiplicative noise, with the
norms of ``w`` and ``U`` at most ``norm``. The noise multiplies the expectation of every feature by the same number,
whatever ``U`` is, so ``R(G) = ratio * R(F)`` exactly. This is about generalisation; it protects nobody.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from resperturb.checks import between_0_and_1, count, not_negative, positive
from resperturb.errors import UsageError

_EXACT_UP_TO = 16
_DRAWS_AT_ONCE = 256
ASSUMES = (
    "The network is a linear flow with one noise for all features, not a ResNet.",
    "Its output is averaged over the noise.",
    "The norms of w and U are at most {norm:g}.",
    "U is a multiple of the identity. For other U the paper's value of R(F) is only a lower bound (see "
    "docs/theory.md); the ratio is exact for every U.",
    "The loss lies in [0, {loss_bound:g}] and changes at most {lipschitz:g} times as fast as the output; the records "
    "are independent draws.",
)


@dataclass(frozen=True)
class SignedSum:
    """The mean norm of ``sum_i s_i x_i^p`` over random signs; ``standard_error`` is 0 where it is exact."""

    mean: float
    standard_error: float
    records: int
    draws: int | None


@dataclass(frozen=True)
class NoisyClass:
    """The complexity of ``G`` at one ``gamma``, and the generalisation gap it allows.

    ``gap`` is the textbook bound, ``gap_printed`` the paper's, which multiplies the complexity by the loss bound.
    """

    gamma: float
    ratio: float
    complexity: float
    standard_error: float
    gap: float
    gap_printed: float


@dataclass(frozen=True)
class Rademacher:
    """Theorem 3 on given data, without noise first; ``meaning`` says whether any gap is less than the loss allows."""

    classes: tuple[NoisyClass, ...]
    assumptions: tuple[str, ...]
    meaning: str


def rademacher(
    inputs: ArrayLike,
    gammas: Sequence[float],
    *,
    power: float = 0.5,
    time: float = 1.0,
    norm: float = 1.0,
    loss_bound: float = 1.0,
    lipschitz: float = 1.0,
    delta: float = 0.05,
    draws: int = 1000,
    seed: int = 0,
) -> Rademacher:
    """Compute Theorem 3 on some inputs: the complexities, their ratios and the gap they allow.

    Args:
        inputs: One row per record.
        gammas: Noise coefficients to compare.
        power: The power p of the features, between 0 and 1.
        time: The time T of the flow.
        norm: The largest norm of the weights (the paper's c).
        loss_bound: The largest loss (the paper's B).
        lipschitz: The Lipschitz constant of the loss (the paper's L).
        delta: The probability with which the gap may be larger.
        draws: Sign draws, for more than 16 records.
        seed: Seed of the sign draws.

    Returns:
        The complexities without and with noise.

    >>> [round(row.ratio, 3) for row in rademacher(np.eye(4), [1.0, 2.0]).classes]
    [1.0, 0.882, 0.607]
    """
    positive("norm", norm)
    positive("loss bound", loss_bound)
    positive("lipschitz", lipschitz)
    between_0_and_1("delta", delta)
    total = signed_sum(inputs, power, draws=draws, seed=seed)

    def at(gamma: float) -> NoisyClass:
        scale = norm / total.records * _exp(norm * time * power - power * (1 - power) * gamma * gamma * time / 2)
        complexity = total.mean * scale if total.mean > 0 else 0.0
        return NoisyClass(
            gamma=gamma,
            ratio=noise_ratio(gamma, power, time),
            complexity=complexity,
            standard_error=total.standard_error * scale if total.standard_error > 0 else 0.0,
            gap=generalisation_bound(complexity, total.records, lipschitz, loss_bound, delta),
            gap_printed=generalisation_bound(loss_bound * complexity, total.records, lipschitz, loss_bound, delta),
        )

    classes = tuple(at(not_negative("gamma", gamma)) for gamma in (0.0, *gammas))
    best = min(classes, key=lambda row: row.gap)
    meaning = f"meaningful: with gamma {best.gamma:g} the gap is at most {best.gap:.3g}, if the assumptions hold."
    if best.gap >= loss_bound:
        meaning = (
            f"vacuous: the gap is bounded by {best.gap:.3g} at best, and a loss of at most {loss_bound:g} has no "
            "larger gap anyway."
        )
    known = {"norm": norm, "loss_bound": loss_bound, "lipschitz": lipschitz}
    return Rademacher(classes, tuple(statement.format(**known) for statement in ASSUMES), meaning)


def noise_ratio(gamma: float, power: float, time: float) -> float:
    """Compute ``R(G) / R(F) = exp(-p (1 - p) gamma^2 T / 2)``: below 1 for any noise, and falling in gamma.

    >>> noise_ratio(0.0, 0.5, 1.0), round(noise_ratio(1.0, 0.5, 1.0), 4)
    (1.0, 0.8825)
    """
    not_negative("gamma", gamma)
    between_0_and_1("power", power)
    positive("time", time)
    return math.exp(-power * (1 - power) * gamma * gamma * time / 2)


def signed_sum(inputs: ArrayLike, power: float, *, draws: int = 1000, seed: int = 0) -> SignedSum:
    """Return the mean norm of the randomly signed sum of ``x_i^p``: over all signs, or a sample of them.

    A negative feature keeps its sign: ``x^p`` is ``sgn(x) |x|^p``. Up to 16 records all signs are enumerated.

    >>> signed_sum([[1.0], [1.0]], 0.5)
    SignedSum(mean=1.0, standard_error=0.0, records=2, draws=None)
    """
    between_0_and_1("power", power)
    data = np.asarray(inputs)
    if data.ndim == 0 or data.size == 0 or not np.issubdtype(data.dtype, np.number):
        raise UsageError("the inputs must be an array of numbers with one row for each record.")
    rows = data.reshape(len(data), -1).astype(np.float64 if data.dtype == np.float64 else np.float32)
    if not np.isfinite(rows).all():
        raise UsageError("the inputs hold a value that is not a finite number.")
    rows = np.sign(rows) * np.abs(rows) ** power
    if len(rows) <= _EXACT_UP_TO:
        # Every sign vector up to a common sign, which does not change the norm.
        codes = np.arange(2 ** (len(rows) - 1))[:, None]
        signs = np.where(codes >> np.arange(len(rows)) & 1, -1.0, 1.0)
        return SignedSum(float(_norms(signs, rows).mean()), 0.0, len(rows), None)
    draws = count("draws", draws)
    if draws < 2:
        raise UsageError("the sign draws must be at least 2, or there is no standard error.")
    rng = np.random.default_rng(seed)
    sizes = (min(_DRAWS_AT_ONCE, draws - start) for start in range(0, draws, _DRAWS_AT_ONCE))
    norms = np.concatenate(
        [_norms(rng.choice(np.array([-1, 1], rows.dtype), (size, len(rows))), rows) for size in sizes]
    )
    return SignedSum(float(norms.mean()), float(norms.std(ddof=1) / math.sqrt(draws)), len(rows), draws)


def generalisation_bound(
    complexity: float, records: int, lipschitz: float = 1.0, loss_bound: float = 1.0, delta: float = 0.05
) -> float:
    """Return the bound on ``risk - empirical risk`` that holds with probability ``1 - delta``.

    >>> round(generalisation_bound(0.01, 10000), 4)
    0.0607
    """
    return 2 * lipschitz * complexity + 3 * loss_bound * math.sqrt(math.log(2 / delta) / (2 * records))


def _norms(signs: NDArray[Any], rows: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(np.linalg.norm(signs @ rows, axis=1), np.float64)


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf  # also where the exponent itself overflowed
