"""Measure how well an image is recovered from its features: by four attackers on the SDE, and from the ODE.

The paper's backward scheme adds noise of its own, which makes the SDE look harder to reverse than it is. The same
features therefore also go to attackers who leave the noise out, average several queries, or know the noise.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from resperturb.errors import UsageError
from resperturb_reproduction.sde.field import Array
from resperturb_reproduction.sde.flow import (
    BrownianPath,
    Strategy,
    check_gamma,
    forward_ode,
    forward_sde,
    invert_sde,
    number_of_steps,
    reverse_ode,
    reverse_sde,
)
from resperturb_reproduction.sde.images import check_image

Attacker = Literal["ode", "paper", "noise_free", "averaged", "known_noise"]

ATTACKERS: Mapping[Attacker, str] = {
    "ode": "ODE features, the paper's reversal",
    "paper": "SDE features, the paper's reversal (adds fresh noise)",
    "noise_free": "SDE features, reversed without adding noise",
    "averaged": "SDE features averaged over queries, reversed without adding noise",
    "known_noise": "SDE features, the noise path is known",
}

QUERIES = 8

# The second entry of a path's key keeps the streams of one seed apart.
_FORWARD, _BACKWARD, _QUERY = 0, 1, 2


@dataclass(frozen=True, eq=False)
class Recovery:
    """An attacker's image and its error, measured on values that are not clipped to [0, 1].

    ``relative_l2`` is ``|recovered - original| / |original|``; ``psnr`` is in dB with a peak of 1.
    """

    image: Array
    relative_l2: float
    psnr: float

    def errors(self) -> dict[str, float]:
        """Return the errors without the image."""
        return {"relative_l2": self.relative_l2, "psnr_db": self.psnr}


@dataclass(frozen=True, eq=False)
class ReversalResult:
    """One image, its features under the ODE and one SDE, and what each attacker recovered."""

    strategy: Strategy
    gamma: float
    dt: float
    seed: int
    queries: int
    original: Array
    ode_features: Array
    sde_features: Array
    recoveries: Mapping[Attacker, Recovery]
    blind: Recovery

    def summary(self) -> dict[str, Any]:
        """Return the numbers and their settings, without the images."""
        rows, cols, channels = self.original.shape
        return {
            "strategy": self.strategy,
            "gamma": self.gamma,
            "dt": self.dt,
            "seed": self.seed,
            "queries_averaged": self.queries,
            "image": {"rows": rows, "cols": cols, "channels": channels, "scale": "[0, 1]"},
            "errors": {name: {**r.errors(), "what": ATTACKERS[name]} for name, r in self.recoveries.items()},
            "blind_guess": self.blind.errors(),
        }


def run_reversal(
    image: Array, strategy: str, gamma: float = 1.0, dt: float = 0.01, seed: int = 0, queries: int = QUERIES
) -> ReversalResult:
    """Push ``image`` through the ODE and the SDE, and let every attacker try to get it back.

    >>> image = np.linspace(0, 1, 10 * 12 * 3).reshape(10, 12, 3)
    >>> result = run_reversal(image, "additive", gamma=1.0, queries=4)
    >>> error = {name: found.relative_l2 for name, found in result.recoveries.items()}
    >>> error["known_noise"] < error["ode"] < error["averaged"] < error["noise_free"] < error["paper"]
    True
    """
    if strategy not in get_args(Strategy):
        raise UsageError(f"Unknown strategy '{strategy}': use additive or multiplicative.")
    chosen: Strategy = strategy  # type: ignore[assignment]
    image = check_image(image)
    number_of_steps(dt)
    check_gamma(gamma)
    if queries < 1:
        raise UsageError(f"{queries} queries cannot be averaged: use at least 1.")

    def path(*key: int) -> BrownianPath:
        return BrownianPath(image.shape, dt, (seed, *key))

    ode_features = forward_ode(image, dt)
    with np.errstate(over="ignore", invalid="ignore"):
        features = forward_sde(image, chosen, gamma, path(_FORWARD))
        total = features
        for query in range(1, queries):
            total = total + forward_sde(image, chosen, gamma, path(_QUERY, query))
        recovered: dict[Attacker, Array] = {
            "ode": reverse_ode(ode_features, dt),
            "paper": reverse_sde(features, chosen, gamma, path(_BACKWARD)),
            "noise_free": reverse_ode(features, dt),
            "averaged": reverse_ode(total / queries, dt),
            "known_noise": invert_sde(features, chosen, gamma, path(_FORWARD)),
        }
    return ReversalResult(
        strategy=chosen,
        gamma=gamma,
        dt=dt,
        seed=seed,
        queries=queries,
        original=image,
        ode_features=ode_features,
        sde_features=features,
        recoveries={name: _recovery(found, image, gamma, dt) for name, found in recovered.items()},
        blind=_recovery(blind_guess(image), image, gamma, dt),
    )


def _recovery(image: Array, original: Array, gamma: float, dt: float) -> Recovery:
    """Measure ``image`` against ``original``; refuse what left the range in which its square can be measured."""
    if not np.abs(image).max() < 1e150:
        raise UsageError(
            f"The simulation overflowed with gamma = {gamma:g} and dt = {dt:g}: use a smaller gamma or a smaller dt."
        )
    return Recovery(image, relative_l2(image, original), psnr(image, original))


def relative_l2(image: Array, original: Array) -> float:
    """Compute ``|image - original| / |original|`` in the Euclidean norm."""
    return float(np.linalg.norm(image - original) / np.linalg.norm(original))


def psnr(image: Array, original: Array) -> float:
    """Compute the peak signal-to-noise ratio in dB for a peak of 1; infinite for a perfect copy."""
    mean_square = float(np.mean((image - original) ** 2))
    return math.inf if mean_square == 0 else -10.0 * math.log10(mean_square)


def blind_guess(image: Array) -> Array:
    """Return the best guess of one colour: what an attacker gets who sees nothing but the average colour."""
    return np.broadcast_to(image.mean(axis=(0, 1), keepdims=True), image.shape)
