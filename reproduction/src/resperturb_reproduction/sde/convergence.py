"""Does the scheme converge as theory says? Measured on linear equations with known solutions.

- strong error, ``E |X_dt(1) - X(1)|`` along the same path: order 1 for additive noise, 1/2 for multiplicative;
- weak error, ``|E X_dt(1) - E X(1)|``: order 1 for both;
- Euler for the ODE of the picture, against ``exp(F) x``: order 1.

The same `euler_maruyama` that moves the image runs here. Additive: ``dX = -X dt + dB``, whose exact solution is
drawn together with the Brownian increments. Multiplicative: geometric Brownian motion ``dX = X dt + 3/4 X dB``,
whose solution is ``exp((1 - 9/32) t + 3/4 B(t))``. Both start at 1.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from resperturb.errors import UsageError
from resperturb_reproduction.sde.field import Array, velocity
from resperturb_reproduction.sde.flow import Strategy, euler, euler_maruyama, exact_ode
from resperturb_reproduction.sde.images import check_image

OU_RATE, OU_NOISE = 1.0, 1.0
GBM_RATE, GBM_NOISE = 1.0, 0.75
STEPS = (16, 32, 64, 128, 256)
_BATCHES = 20


@dataclass(frozen=True, eq=False)
class Convergence:
    """One error curve: the error at each step size, its standard error, and the fitted slope in log-log.

    ``theory`` is the order the scheme should have. The standard errors are those of the Monte Carlo estimate;
    they are 0 for a curve without chance.
    """

    name: str
    theory: float
    dts: Array
    errors: Array
    standard_errors: Array
    slope: float
    slope_standard_error: float

    def summary(self) -> dict[str, Any]:
        """The curve as plain numbers."""
        return {
            "name": self.name,
            "theory": self.theory,
            "slope": self.slope,
            "slope_standard_error": self.slope_standard_error,
            "dt": self.dts.tolist(),
            "error": self.errors.tolist(),
            "standard_error": self.standard_errors.tolist(),
        }


@dataclass(frozen=True, eq=False)
class ConvergenceStudy:
    """The strong curves (with Euler on the image among them) and the weak curves."""

    strong: tuple[Convergence, ...]
    weak: tuple[Convergence, ...]
    paths: int
    seed: int

    def summary(self) -> dict[str, Any]:
        """Everything as plain numbers."""
        return {
            "paths": self.paths,
            "seed": self.seed,
            "strong": [curve.summary() for curve in self.strong],
            "weak": [curve.summary() for curve in self.weak],
        }


def study_convergence(image: Array, paths: int = 20_000, seed: int = 0) -> ConvergenceStudy:
    """Measure every curve: both test equations, and Euler on ``image``.

    >>> study = study_convergence(np.eye(8)[:, :, None], paths=2000)
    >>> [(curve.name, curve.theory) for curve in study.strong]
    [('additive', 1.0), ('multiplicative', 0.5), ('ODE of the image', 1.0)]
    """
    additive = path_errors("additive", paths, seed)
    multiplicative = path_errors("multiplicative", paths, seed)
    return ConvergenceStudy(
        strong=(
            strong_convergence("additive", additive, theory=1.0),
            strong_convergence("multiplicative", multiplicative, theory=0.5),
            ode_convergence(image),
        ),
        weak=(
            weak_convergence("additive", additive, theory=1.0),
            weak_convergence("multiplicative", multiplicative, theory=1.0),
        ),
        paths=paths,
        seed=seed,
    )


def path_errors(strategy: Strategy, paths: int = 20_000, seed: int = 0) -> Array:
    """``X_dt(1) - X(1)`` of the test equation, one row per step size of ``STEPS``, one column per path.

    >>> path_errors("additive", paths=40).shape
    (5, 40)
    """
    if paths < 2 * _BATCHES:
        raise UsageError(f"{paths} paths are too few to estimate a spread: use at least {2 * _BATCHES}.")
    finest = max(STEPS)
    h = 1.0 / finest
    rng = np.random.default_rng([seed, finest])
    increments = rng.standard_normal((finest, paths)) * math.sqrt(h)
    start: Array = np.ones(paths)
    if strategy == "additive":
        rate, noise = -OU_RATE, OU_NOISE
        exact = _ornstein_uhlenbeck(increments, h, rng)
    else:
        rate, noise = GBM_RATE, GBM_NOISE
        exact = np.exp(GBM_RATE - GBM_NOISE**2 / 2 + GBM_NOISE * increments.sum(axis=0))
    rows = []
    for steps in STEPS:
        coarse = increments.reshape(steps, finest // steps, paths).sum(axis=1)
        reached = euler_maruyama(start, lambda x: rate * x, 1.0 / steps, strategy, noise, coarse)
        rows.append(reached - exact)
    return np.array(rows)


def strong_convergence(name: str, errors: Array, theory: float) -> Convergence:
    """The mean of ``|X_dt(1) - X(1)|`` at each step size, from the rows of `path_errors`.

    >>> halved = np.outer([16.0, 8.0, 4.0, 2.0, 1.0], np.ones(40))
    >>> round(strong_convergence("made up", halved, theory=1.0).slope, 6)
    1.0
    """
    return _curve(name, theory, np.abs(errors))


def weak_convergence(name: str, errors: Array, theory: float) -> Convergence:
    """``|E X_dt(1) - E X(1)|`` at each step size; coupled paths keep its sampling error small."""
    return _curve(name, theory, errors)


def ode_convergence(image: Array) -> Convergence:
    """The relative L2 error of Euler on the ODE of the image against the exact flow ``exp(F) x``.

    >>> round(ode_convergence(np.ones((3, 4, 1))).slope, 1)
    1.0
    """
    image = check_image(image)
    exact = exact_ode(image)
    errors = [
        float(np.linalg.norm(euler(image, velocity, 1.0 / steps, steps) - exact) / np.linalg.norm(exact))
        for steps in STEPS
    ]
    dts = 1.0 / np.array(STEPS)
    values = np.array(errors)
    return Convergence("ODE of the image", 1.0, dts, values, np.zeros(len(STEPS)), _slope(dts, values), 0.0)


def _ornstein_uhlenbeck(increments: Array, h: float, rng: np.random.Generator) -> Array:
    """The exact X(1) for these Brownian increments.

    Over one step the solution needs ``V = integral of exp(-rate (h - s)) dB(s)``, which is normal together with the
    increment: given the increment, V has a known mean and a small variance of its own.
    """
    variance = -math.expm1(-2 * OU_RATE * h) / (2 * OU_RATE)
    covariance = -math.expm1(-OU_RATE * h) / OU_RATE
    own = math.sqrt(variance - covariance**2 / h)
    x: Array = np.ones(increments.shape[1])
    for increment in increments:
        integral = covariance / h * increment + own * rng.standard_normal(increment.shape)
        x = math.exp(-OU_RATE * h) * x + OU_NOISE * integral
    return x


def _curve(name: str, theory: float, samples: Array) -> Convergence:
    """The absolute mean of each row; the slope's spread comes from leaving out one batch of paths at a time."""
    dts = 1.0 / np.array(STEPS)
    batches = np.stack([part.mean(axis=1) for part in np.array_split(samples, _BATCHES, axis=1)])
    weights = np.array([part.shape[1] for part in np.array_split(samples, _BATCHES, axis=1)], dtype=float)
    total = (weights[:, None] * batches).sum(axis=0)
    left_out = (total - weights[:, None] * batches) / (weights.sum() - weights)[:, None]
    slopes = np.array([_slope(dts, np.abs(means)) for means in left_out])
    return Convergence(
        name=name,
        theory=theory,
        dts=dts,
        errors=np.abs(samples.mean(axis=1)),
        standard_errors=samples.std(axis=1, ddof=1) / math.sqrt(samples.shape[1]),
        slope=_slope(dts, np.abs(samples.mean(axis=1))),
        slope_standard_error=float(math.sqrt((_BATCHES - 1) * np.mean((slopes - slopes.mean()) ** 2))),
    )


def _slope(dts: Array, errors: Array) -> float:
    slope, _ = np.polyfit(np.log(dts), np.log(errors), deg=1)
    return float(slope)
