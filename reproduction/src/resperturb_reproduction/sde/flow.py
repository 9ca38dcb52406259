"""Run an image forward through the ODE or an SDE, and back again.

The equations are ``dx = F(x) dt`` and, with noise, ``dx = F(x) dt + gamma dB`` (additive) or
``dx = F(x) dt + gamma x dB`` (multiplicative, elementwise), for t from 0 to 1.

The paper writes a step's noise as ``N(0, sqrt(dt) I)``. We read sqrt(dt) as the standard deviation: a Brownian
increment has variance dt, and with sqrt(dt) as the variance the noise at t = 1 would grow without limit as dt
shrinks, so there would be no SDE to converge to.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from resperturb.errors import UsageError
from resperturb_reproduction.sde.field import Array, undo_step, velocity

Strategy = Literal["additive", "multiplicative"]

FEWEST_STEPS, MOST_STEPS = 2, 10_000


def number_of_steps(dt: float) -> int:
    """Count the steps of length ``dt`` from 0 to 1; refuse a ``dt`` that does not divide 1.

    >>> number_of_steps(0.01)
    100
    """
    if math.isfinite(dt) and 1 / MOST_STEPS <= dt <= 1 / FEWEST_STEPS:
        steps = round(1 / dt)
        if math.isclose(steps * dt, 1.0, rel_tol=1e-9):
            return steps
    raise UsageError(
        f"dt = {dt:g} does not cut the time from 0 to 1 into whole steps: "
        f"use 1/n for a whole n from {FEWEST_STEPS} to {MOST_STEPS}, such as 0.01."
    )


def check_gamma(gamma: float) -> float:
    """Return ``gamma`` if it is a noise coefficient: finite and not negative."""
    if not (math.isfinite(gamma) and gamma >= 0):
        raise UsageError(f"gamma = {gamma:g} is no noise coefficient: use a finite number that is not negative.")
    return gamma


@dataclass(frozen=True)
class BrownianPath:
    """The increments of one Brownian path on [0, 1], drawn again from the key whenever they are needed.

    Nothing is stored, so a path of many steps over a large image costs no memory, and can be walked backwards.
    """

    shape: tuple[int, ...]
    dt: float
    key: tuple[int, ...]

    def increment(self, step: int) -> Array:
        """Draw B((step + 1) dt) - B(step dt): independent normals of variance dt."""
        normal = np.random.default_rng([*self.key, step]).standard_normal(self.shape)
        return normal * math.sqrt(self.dt)

    def forward(self) -> Iterator[Array]:
        """Draw the increments from t = 0 to t = 1."""
        return map(self.increment, range(number_of_steps(self.dt)))

    def backward(self) -> Iterator[Array]:
        """Draw the same increments from t = 1 to t = 0."""
        return map(self.increment, reversed(range(number_of_steps(self.dt))))


def euler_maruyama(
    x: Array,
    drift: Callable[[Array], Array],
    dt: float,
    strategy: Strategy,
    gamma: float,
    increments: Iterable[Array],
) -> Array:
    """Take a step ``x <- x + dt drift(x) + gamma dB``, or ``+ gamma x dB``, for each increment.

    >>> euler_maruyama(np.ones(1), lambda x: x, 0.1, "multiplicative", 2.0, [np.full(1, 0.5)]).tolist()
    [2.1]
    """
    for increment in increments:
        noise = gamma * increment if strategy == "additive" else gamma * x * increment
        x = x + dt * drift(x) + noise
    return x


def forward_ode(image: Array, dt: float) -> Array:
    """Compute the features x(1) of the ODE by Euler's method."""
    for _ in range(number_of_steps(dt)):
        image = image + dt * velocity(image)
    return image


def reverse_ode(features: Array, dt: float) -> Array:
    """Reverse as the paper does: ``x(t) = x(t + dt) - dt F(x(t + dt))``, from t = 1 to t = 0.

    It undoes the Euler step up to ``dt^2 F(F(x))``, so the image comes back up to about ``dt F(F(x))``.
    """
    for _ in range(number_of_steps(dt)):
        features = features - dt * velocity(features)
    return features


def forward_sde(image: Array, strategy: Strategy, gamma: float, path: BrownianPath) -> Array:
    """Compute the features x(1) of the SDE along one path of the noise, by Euler-Maruyama."""
    return euler_maruyama(image, velocity, path.dt, strategy, gamma, path.forward())


def reverse_sde(features: Array, strategy: Strategy, gamma: float, fresh: BrownianPath) -> Array:
    """Reverse as the paper does: turn the drift round and add *fresh* noise of the same size.

    It is printed for the additive strategy only; the multiplicative one follows by the same rule, with the noise
    multiplied by the current image.
    """
    return euler_maruyama(features, velocity, -fresh.dt, strategy, gamma, fresh.forward())


def invert_sde(features: Array, strategy: Strategy, gamma: float, path: BrownianPath) -> Array:
    """Undo Euler-Maruyama knowing its noise, up to rounding: solve every step for the image it started from."""
    x = features
    for increment in path.backward():
        noise = gamma * increment
        x = undo_step(x - noise, 1.0, path.dt) if strategy == "additive" else undo_step(x, 1.0 + noise, path.dt)
    return x
