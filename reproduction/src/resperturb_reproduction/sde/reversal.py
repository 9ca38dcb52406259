"""How well can an image be recovered from its features? Four attackers on the SDE, and the ODE beside them.

The paper's backward scheme adds noise of its own, which makes the SDE look harder to reverse than it is. So the
same features also go to attackers who do not: one who leaves the noise out, one who asks several times and
averages, and one who knows the noise.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from resperturb.errors import UsageError
from resperturb_reproduction.sde.field import Array
from resperturb_reproduction.sde.flow import (
    BrownianPath,
    Strategy,
    check_finite,
    check_gamma,
    check_strategy,
    forward_ode,
    forward_sde,
    invert_sde,
    number_of_steps,
    reverse_ode,
    reverse_sde,
)
from resperturb_reproduction.sde.images import check_image

Attacker = Literal["ode", "paper", "noise_free", "averaged", "known_noise"]

ATTACKERS: Mapping[Attacker, str] = MappingProxyType(
    {
        "ode": "ODE features, the paper's reversal",
        "paper": "SDE features, the paper's reversal (adds fresh noise)",
        "noise_free": "SDE features, reversed without adding noise",
        "averaged": "SDE features averaged over queries, reversed without adding noise",
        "known_noise": "SDE features, the noise path is known",
    }
)

# Gamma = 1 on an image with values 0..255 is gamma = 1/255 on [0, 1]; the sweep starts there.
SWEEP_GAMMAS = (1 / 255, 0.01, 0.03, 0.1, 0.3, 1.0, 2.0)
QUERIES = 8

# The second entry of a path's key keeps the streams of one seed apart.
_FORWARD, _BACKWARD, _QUERY = 0, 1, 2


@dataclass(frozen=True, eq=False)
class Recovery:
    """What an attacker made of the features, and how far it is from the original.

    ``relative_l2`` is ``|recovered - original| / |original|``; ``psnr`` is in dB with a peak of 1. Both are
    measured on the values as they are, not clipped to [0, 1].
    """

    image: Array
    relative_l2: float
    psnr: float

    @classmethod
    def of(cls, image: Array, original: Array) -> "Recovery":
        """Measure ``image`` against ``original``.

        >>> found = Recovery.of(np.full((1, 1, 1), 0.4), np.full((1, 1, 1), 0.5))
        >>> round(found.relative_l2, 3), round(found.psnr, 3)
        (0.2, 20.0)
        """
        return cls(image, relative_l2(image, original), psnr(image, original))


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
        """The numbers and the settings they were measured with, without the images."""
        rows, cols, channels = self.original.shape
        return {
            "strategy": self.strategy,
            "gamma": self.gamma,
            "dt": self.dt,
            "seed": self.seed,
            "queries_averaged": self.queries,
            "image": {"rows": rows, "cols": cols, "channels": channels, "scale": "[0, 1]"},
            "errors": {
                name: {"relative_l2": found.relative_l2, "psnr_db": found.psnr, "what": ATTACKERS[name]}
                for name, found in self.recoveries.items()
            },
            "blind_guess": {"relative_l2": self.blind.relative_l2, "psnr_db": self.blind.psnr},
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
    blind_relative_l2: float
    blind_psnr: float

    def summary(self) -> dict[str, Any]:
        """Mean, least and largest error over the seeds for every attacker and gamma."""
        return {
            "strategy": self.strategy,
            "dt": self.dt,
            "seeds": self.seeds,
            "queries_averaged": len(self.seeds),
            "gammas": self.gammas,
            "relative_l2": {name: _spread(values) for name, values in self.relative_l2.items()},
            "psnr_db": {name: _spread(values) for name, values in self.psnr.items()},
            "blind_guess": {"relative_l2": self.blind_relative_l2, "psnr_db": self.blind_psnr},
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
    image, chosen, gamma = check_image(image), check_strategy(strategy), check_gamma(gamma)
    number_of_steps(dt)
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
    for found in recovered.values():
        check_finite(found, gamma, dt)
    return ReversalResult(
        strategy=chosen,
        gamma=gamma,
        dt=dt,
        seed=seed,
        queries=queries,
        original=image,
        ode_features=ode_features,
        sde_features=features,
        recoveries=MappingProxyType({name: Recovery.of(found, image) for name, found in recovered.items()}),
        blind=Recovery.of(blind_guess(image), image),
    )


def sweep_gamma(
    image: Array,
    strategy: str,
    gammas: Sequence[float] = SWEEP_GAMMAS,
    dt: float = 0.01,
    seeds: Sequence[int] = range(QUERIES),
) -> GammaSweep:
    """The reversal errors over ``gammas``, once for each seed; the seeds' features are also averaged.

    All gammas share a seed's noise, so the curves differ by gamma and not by luck.

    >>> sweep = sweep_gamma(np.full((6, 7, 3), 0.5), "additive", gammas=(0.1, 1.0), seeds=(0, 1))
    >>> sweep.relative_l2["paper"].shape, sweep.relative_l2["averaged"].shape
    ((2, 2), (2, 1))
    """
    image, chosen = check_image(image), check_strategy(strategy)
    number_of_steps(dt)
    if not gammas or not seeds:
        raise UsageError("A sweep needs at least one gamma and at least one seed.")
    stack = np.array([check_gamma(gamma) for gamma in gammas]).reshape(-1, 1, 1, 1)
    images = np.broadcast_to(image, (len(gammas), *image.shape))

    errors: dict[Attacker, list[list[tuple[float, float]]]] = {name: [] for name in ATTACKERS}

    def measure(attacker: Attacker, recovered: Array) -> None:
        check_finite(recovered, max(gammas), dt)
        errors[attacker].append([(relative_l2(one, image), psnr(one, image)) for one in recovered])

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
    tables = {name: np.array(columns).transpose(2, 1, 0) for name, columns in errors.items()}

    blind = Recovery.of(blind_guess(image), image)
    return GammaSweep(
        strategy=chosen,
        dt=dt,
        gammas=tuple(float(gamma) for gamma in gammas),
        seeds=tuple(int(seed) for seed in seeds),
        relative_l2=MappingProxyType({name: table[0] for name, table in tables.items()}),
        psnr=MappingProxyType({name: table[1] for name, table in tables.items()}),
        blind_relative_l2=blind.relative_l2,
        blind_psnr=blind.psnr,
    )


def relative_l2(image: Array, original: Array) -> float:
    """``|image - original| / |original|`` in the Euclidean norm.

    >>> relative_l2(np.array([0.0, 4.0]), np.array([3.0, 4.0]))
    0.6
    """
    return float(np.linalg.norm(image - original) / np.linalg.norm(original))


def psnr(image: Array, original: Array) -> float:
    """Peak signal-to-noise ratio in dB for a peak of 1; infinite for a perfect copy.

    >>> round(psnr(np.array([0.1]), np.array([0.0])), 6)
    20.0
    """
    mean_square = float(np.mean((image - original) ** 2))
    return math.inf if mean_square == 0 else -10.0 * math.log10(mean_square)


def blind_guess(image: Array) -> Array:
    """The best guess of one colour: what an attacker gets who sees nothing but the average colour.

    >>> blind_guess(np.array([[[0.0], [1.0]]])).ravel().tolist()
    [0.5, 0.5]
    """
    return np.broadcast_to(image.mean(axis=(0, 1), keepdims=True), image.shape)


def _spread(values: Array) -> dict[str, list[float]]:
    return {
        "mean": values.mean(axis=1).tolist(),
        "least": values.min(axis=1).tolist(),
        "largest": values.max(axis=1).tolist(),
    }
