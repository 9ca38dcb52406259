"""Gaussian differential privacy, exactly: which epsilon, delta and attack a shift of ``mu`` allows.

A mechanism is ``mu``-GDP when telling two neighbouring data sets apart from its output is at least as hard as
telling ``N(0, 1)`` from ``N(mu, 1)`` (Dong, Roth and Su, 2022). For that pair

    delta(epsilon) = Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 - epsilon/mu).

Written like this it overflows and cancels. With ``s = epsilon/mu - mu/2``, ``t = s + mu`` and the Mills ratio
``m(s) = (1 - Phi(s)) / phi(s)`` it is ``phi(s) (m(s) - m(t))``, which is computed here in logarithms: right from
epsilon 1e-6 to 1e7 and for every delta a float can hold.
"""

import math
from collections.abc import Callable

from scipy.special import erfcx, ndtr, ndtri

from resperturb.checks import between_0_and_1, positive

_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
_SQRT_HALF_PI = math.sqrt(math.pi / 2)
_SMALL_MU = 1e-4
_LARGE_S = 50.0


def log_delta(epsilon: float, mu: float) -> float:
    """Return ``log(delta)``, the smallest one at which ``mu``-GDP gives ``epsilon``.

    >>> round(log_delta(1.0, 1.0), 6)
    -2.064066
    >>> log_delta(1.0, 0.0), log_delta(1e7, math.inf)
    (-inf, 0.0)
    """
    if mu == 0:
        return -math.inf
    if math.isinf(mu):
        return 0.0
    return _log_delta_at(epsilon / mu - mu / 2, mu)


def epsilon_for_delta(delta: float, mu: float) -> float:
    """Return the smallest epsilon that ``mu``-GDP gives at ``delta``.

    Args:
        delta: Delta of the guarantee.
        mu: Parameter of Gaussian differential privacy.

    Returns:
        Epsilon; infinite when ``mu`` is.

    >>> round(epsilon_for_delta(1e-5, 1.0), 4)
    4.3772
    >>> epsilon_for_delta(1e-5, 0.0), epsilon_for_delta(1e-5, math.inf)
    (0.0, inf)
    """
    between_0_and_1("delta", delta)
    if math.isinf(mu * mu):
        return math.inf
    target = math.log(delta)
    if log_delta(0.0, mu) <= target:
        return 0.0

    def excess(s: float) -> float:
        return _log_delta_at(s, mu) - target

    # Below s = -40 delta is 1 to the last digit; exp(-s^2/2) bounds it for s >= 0.
    s = _root(excess, max(-mu / 2, -40.0), math.sqrt(-2 * target) + 1e-9)
    return max(0.0, mu * (s + mu / 2))


def mu_for_budget(epsilon: float, delta: float) -> float:
    """Return the largest ``mu`` that stays within ``(epsilon, delta)``: the inverse of ``epsilon_for_delta``.

    >>> round(mu_for_budget(4.3772, 1e-5), 4)
    1.0
    """
    positive("epsilon", epsilon)
    target = math.log(between_0_and_1("delta", delta))
    # The zero-concentrated bound rho + 2 sqrt(rho log(1/delta)) >= epsilon gives a mu that is surely small enough.
    low = math.sqrt(2.0) * (epsilon / (math.sqrt(epsilon - target) + math.sqrt(-target)))
    high = low
    while log_delta(epsilon, high) < target:
        high *= 2

    def excess(log_mu: float) -> float:
        return log_delta(epsilon, math.exp(log_mu)) - target

    return math.exp(_root(excess, math.log(low) - 1e-9, math.log(high)))


def attack_tpr(mu: float, fpr: float) -> float:
    """Return the largest true positive rate ``mu``-GDP allows an attack with false positive rate ``fpr``.

    >>> round(attack_tpr(1.0, 0.001), 4)
    0.0183
    """
    return 1.0 if math.isinf(mu) else float(ndtr(ndtri(fpr) + mu))


def _log_delta_at(s: float, mu: float) -> float:
    """``log(phi(s) (m(s) - m(s + mu)))``, by the form that keeps its digits."""
    if s >= _LARGE_S:
        drop = _mills_drop_far(s, mu)
        return -s * s / 2 - _LOG_SQRT_2PI + math.log(drop) if drop > 0 else -math.inf
    if mu < _SMALL_MU:
        return -s * s / 2 - _LOG_SQRT_2PI + math.log(_mills_drop_near(s, mu))
    if s >= 0:
        return -s * s / 2 - _LOG_SQRT_2PI + math.log(_mills(s) - _mills(s + mu))
    phi = math.exp(-s * s / 2 - _LOG_SQRT_2PI)
    return math.log(float(ndtr(-s)) - phi * _mills(s + mu))


def _mills(x: float) -> float:
    return _SQRT_HALF_PI * float(erfcx(x / math.sqrt(2)))


def _mills_drop_far(s: float, mu: float) -> float:
    """``m(s) - m(s + mu)`` for large ``s``, by the asymptotic series of ``m`` term by term."""
    shrink = math.log1p(mu / s)
    total, coefficient = 0.0, 1.0
    for power in (1, 3, 5, 7, 9, 11):
        total += coefficient * -math.expm1(-power * shrink)
        coefficient *= -power / (s * s)
    return total / s


def _mills_drop_near(s: float, mu: float) -> float:
    """``m(s) - m(s + mu)`` for small ``mu``: the Taylor series of ``int exp(-sv - v^2/2) (1 - exp(-mu v)) dv``."""
    before, moment = _mills(s), 1 - s * _mills(s)
    total, coefficient = 0.0, mu
    for order in (1, 2, 3):
        total += coefficient * moment
        before, moment = moment, order * before - s * moment
        coefficient *= -mu / (order + 1)
    return total


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """The root between two points of opposite sign; rounding may have put it exactly on one of them."""
    at_low, at_high = function(low), function(high)
    if at_low == 0 or (at_low * at_high > 0 and abs(at_low) < abs(at_high)):
        return low
    if at_high == 0 or at_low * at_high > 0:
        return high
    for _ in range(200):  # a bisection by hand, since scipy.optimize takes longer to import than a report to write
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if (function(middle) > 0) == (at_low > 0) else (low, middle)
    return (low + high) / 2
