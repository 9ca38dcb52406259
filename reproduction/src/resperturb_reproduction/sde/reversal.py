"""Measure how well an image is recovered from its features: by four attackers on the SDE, and from the ODE.

The paper's backward scheme adds noise of its own, which makes the SDE look harder to reverse than it is. The same
features therefore also go to attackers who leave the noise out, average several queries, or know the noise.
"""

import math
from collections.abc import Mapping, Sequence
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

# Gamma = 1 on an image with values 0..255 is gamma = 1/255 on [0, 1]; the sweep starts there.
SWEEP_GAMMAS = (1 / 255, 0.01, 0.03, 0.1, 0.3, 1.0, 2.0)
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


@dataclass(frozen=True, eq=False)
class GammaSweep:
    """The reversal errors over gamma: for each attacker one row a gamma, one column a repetition.

    ``paper`` and ``noise_free`` have a column for each seed. The others have one: the ODE has no noise, the
    average takes all seeds together, and the known noise is tried on the first seed (what is left is rounding).
    """

    strategy: Strategy
    dt: float
    gammas: tuple[float, ...]
    seeds: tuple[int, ...]
    relative_l2: Mapping[Attacker, Array]
    psnr: Mapping[Attacker, Array]
    blind: Recovery

    def summary(self) -> dict[str, Any]:
        """Return mean, least and largest error over the seeds for every attacker and gamma."""
        return {
            "strategy": self.strategy,
            "dt": self.dt,
            "seeds": self.seeds,
            "queries_averaged": len(self.seeds),
            "gammas": self.gammas,
            "relative_l2": {name: _spread(values) for name, values in self.relative_l2.items()},
            "psnr_db": {name: _spread(values) for name, values in self.psnr.items()},
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
    image, chosen = _checked(image, strategy, (gamma,), dt)
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


def sweep_gamma(
    image: Array,
    strategy: str,
    gammas: Sequence[float] = SWEEP_GAMMAS,
    dt: float = 0.01,
    seeds: Sequence[int] = range(QUERIES),
) -> GammaSweep:
    """Measure the reversal errors over ``gammas``, once for each seed; the seeds' features are also averaged.

    All gammas share a seed's noise, so the curves differ by gamma and not by luck.

    >>> sweep = sweep_gamma(np.full((6, 7, 3), 0.5), "additive", gammas=(0.1, 1.0), seeds=(0, 1))
    >>> sweep.relative_l2["paper"].shape, sweep.relative_l2["averaged"].shape
    ((2, 2), (2, 1))
    """
    image, chosen = _checked(image, strategy, gammas, dt)
    if not gammas or not seeds:
        raise UsageError("A sweep needs at least one gamma and at least one seed.")
    stack = np.array(gammas, dtype=float).reshape(-1, 1, 1, 1)
    images = np.broadcast_to(image, (len(gammas), *image.shape))

    found: dict[Attacker, list[list[Recovery]]] = {name: [] for name in ATTACKERS}

    def measure(attacker: Attacker, recovered: Array) -> None:
        found[attacker].append([_recovery(one, image, max(gammas), dt) for one in recovered])

    total: Array = np.zeros(images.shape)
    with np.errstate(over="ignore", invalid="ignore"):
        for number, seed in enumerate(seeds):
            forward = BrownianPath(image.shape, dt, (seed, _FORWARD))
            features = forward_sde(images, chosen, stack, forward)
            total = total + features
            measure("paper", reverse_sde(features, chosen, stack, BrownianPath(image.shape, dt, (seed, _BACKWARD))))
            measure("noise_free", reverse_ode(features, dt))
            if number == 0:
                measure("known_noise", invert_sde(features, chosen, stack, forward))
        measure("averaged", reverse_ode(total / len(seeds), dt))
    measure("ode", np.broadcast_to(reverse_ode(forward_ode(image, dt), dt), images.shape))

    def table(measured: str) -> Mapping[Attacker, Array]:
        return {name: np.array([[getattr(r, measured) for r in c] for c in rows]).T for name, rows in found.items()}

    return GammaSweep(
        strategy=chosen,
        dt=dt,
        gammas=tuple(float(gamma) for gamma in gammas),
        seeds=tuple(seeds),
        relative_l2=table("relative_l2"),
        psnr=table("psnr"),
        blind=_recovery(blind_guess(image), image, 0.0, dt),
    )


def _checked(image: Array, strategy: str, gammas: Sequence[float], dt: float) -> tuple[Array, Strategy]:
    if strategy not in get_args(Strategy):
        raise UsageError(f"Unknown strategy '{strategy}': use additive or multiplicative.")
    number_of_steps(dt)
    for gamma in gammas:
        check_gamma(gamma)
    return check_image(image), strategy  # type: ignore[return-value]


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


def _spread(values: Array) -> dict[str, list[float]]:
    return {
        "mean": values.mean(axis=1).tolist(),
        "least": values.min(axis=1).tolist(),
        "largest": values.max(axis=1).tolist(),
    }
