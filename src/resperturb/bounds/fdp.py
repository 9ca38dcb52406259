"""A lower bound on epsilon from many canaries in a single training run, by a whole privacy curve.

The attacker guesses as in :mod:`resperturb.bounds.one_run`. The number of guesses is given in advance, or searched
over a grid fixed by the number of canaries alone, with Bonferroni's correction.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from resperturb.bounds.arrays import Bools
from resperturb.bounds.one_run import check_guesses, uneven
from resperturb.bounds.rates import check_gaussian_delta
from resperturb.bounds.registry import register_bound
from resperturb.bounds.result import GAUSSIAN_CURVE, RANDOM_INCLUSION, Guesses, LowerBound
from resperturb.bounds.scores import CanaryScores, check_probability
from resperturb.errors import UsageError


def one_run_fdp(
    members: ArrayLike,
    nonmembers: ArrayLike,
    *,
    delta: float = 1e-5,
    confidence: float = 0.95,
    guesses: tuple[int, int] | None = None,
    curve: str = "approximate",
) -> LowerBound:
    """Bound epsilon from one run by a whole privacy curve (Mahloujifar, Melis and Chaudhuri, 2024).

    ``curve="approximate"`` refutes (epsilon, delta)-DP itself and assumes nothing about the mechanism's curve.
    ``curve="gaussian"`` refutes mu-GDP and gives the exact epsilon of the largest refuted mu, as in the paper's
    experiments: it assumes that the curve is Gaussian, and claims too much where it is not. Equal scores at a cut
    count as wrong guesses first.

    Args:
        guesses: Numbers of canaries called in and out, fixed in advance; None tries several and corrects for it.
        curve: ``"approximate"`` or ``"gaussian"``.

    Returns:
        The bound, with its method, counts and assumptions.

    >>> canaries = np.linspace(-1, 1, 500)
    >>> round(one_run_fdp(canaries + 1.5, canaries, guesses=(100, 100)).epsilon, 2)
    4.19
    >>> bound = one_run_fdp(canaries + 1.5, canaries, guesses=(100, 100), curve="gaussian")
    >>> round(bound.mu, 2), round(bound.epsilon, 2)
    (1.54, 7.26)
    """
    alpha = 1 - check_probability("confidence", confidence)
    if curve == "approximate":
        check_probability("delta", delta, zero=True)
    elif curve == "gaussian":
        check_gaussian_delta(delta)
    else:
        raise UsageError(f"curve must be 'gaussian' or 'approximate', not {curve!r}.")
    scores = CanaryScores(members, nonmembers)
    canaries, unmet = scores.members.size + scores.nonmembers.size, uneven(scores)
    grid = guess_grid(canaries) if guesses is None else [check_guesses(guesses, canaries)]
    assumed = delta if curve == "approximate" else None
    best, best_value = Guesses(*grid[0], _right(scores, *grid[0]), canaries), 0.0
    for top, bottom in [] if unmet else grid:
        right = _right(scores, top, bottom)
        value = _refuted_curve(canaries, top + bottom, right, alpha / len(grid), assumed)
        if value > best_value:
            best, best_value = Guesses(top, bottom, right, canaries), value
    bound = LowerBound(
        epsilon=best_value,
        delta=delta,
        confidence=confidence,
        method="one_run_fdp",
        selection="numbers of guesses given in advance"
        if guesses is not None
        else f"best of {len(grid)} numbers of guesses fixed by the number of canaries, Bonferroni-corrected",
        threshold=None,
        direction=None,
        counts=best,
        assumptions=(RANDOM_INCLUSION,) if curve == "approximate" else (RANDOM_INCLUSION, GAUSSIAN_CURVE),
        unmet=unmet,
    )
    if curve == "approximate":
        return bound
    from resperturb.privacy.gaussian import epsilon_for_delta

    return replace(bound, epsilon=epsilon_for_delta(delta, best_value), mu=best_value)


@register_bound("one_run_fdp", "Mahloujifar, Melis and Chaudhuri 2024 (arXiv:2410.22235)", design="coins")
def _one_run_fdp(scores: CanaryScores, delta: float, confidence: float) -> LowerBound:
    return one_run_fdp(scores.members, scores.nonmembers, delta=delta, confidence=confidence)


def guess_grid(canaries: int) -> list[tuple[int, int]]:
    """Return the numbers of *in* and *out* guesses that are tried, from the number of canaries alone.

    All canaries, half of them, a quarter, down to about ten; guessed in, guessed out, or half and half.

    >>> guess_grid(20)
    [(10, 10), (10, 0), (0, 10), (5, 5)]
    """
    grid, size = [(canaries - canaries // 2, canaries // 2)], canaries // 2
    while size >= 8:
        grid += [(size, 0), (0, size), (size - size // 2, size // 2)]
        size //= 2
    return grid


def _right(scores: CanaryScores, top: int, bottom: int) -> int:
    """Count the right guesses; of equal scores at either cut, the wrong ones come first."""
    both = np.concatenate([scores.members, scores.nonmembers])
    member: Bools = np.arange(both.size) < scores.members.size
    highest, lowest = np.lexsort((member, -both))[:top], np.lexsort((~member, both))[:bottom]
    return int(member[highest].sum() + (~member[lowest]).sum())


@lru_cache(maxsize=4096)
def _refuted_curve(canaries: int, guessed: int, correct: int, alpha: float, delta: float | None = None) -> float:
    """The largest mu refuted, or with a delta the largest epsilon."""

    def refuted(parameter: float) -> bool:
        inverse = gaussian_inverse(parameter) if delta is None else approximate_inverse(parameter, delta)
        return curve_refuted(inverse, canaries, guessed, correct, alpha)

    return _largest(refuted)


def curve_refuted(inverse: Callable[[float], float], canaries: int, guessed: int, correct: int, alpha: float) -> bool:
    """Say whether a privacy curve f makes this number of correct guesses less probable than ``alpha``.

    ``inverse`` is the inverse of ``1 - f``. Let p_i be the probability of exactly i right among g guesses about m
    canaries. Flip the coin of a canary chosen at random: the output hardly changes, but a right guess becomes wrong.
    So for every j

        sum over i >= j of (i/m) p_i  <=  1 - f( sum over i >= j - 1 of ((g - i)/m) p_i ).

    Call the left sum r(j) and the argument on the right h(j - 1); then h(j - 1) >= inverse(r(j)), and always
    r(0) + h(0) = g/m. Starting from probability alpha on ``correct`` right guesses, the least r and h are followed
    down to 0; if they outgrow g/m, no such mechanism exists.
    """
    r, h = alpha * correct / canaries, alpha * (guessed - correct) / canaries
    for j in range(correct, 0, -1):
        least = inverse(r)
        if least <= h:
            return False
        r, h = r + (j - 1) / (guessed - j + 1) * (least - h), least
        if r + h > guessed / canaries:
            return True
    return False


def gaussian_inverse(mu: float) -> Callable[[float], float]:
    """Return the inverse of ``1 - f`` for mu-GDP.

    >>> round(gaussian_inverse(1.0)(0.5), 4)
    0.1587
    """
    return lambda r: float(ndtr(ndtri(r) - mu))


def approximate_inverse(epsilon: float, delta: float) -> Callable[[float], float]:
    """Return the inverse of ``1 - f`` for (epsilon, delta)-DP.

    >>> approximate_inverse(0.0, 0.25)(0.5)
    0.25
    """
    growth = float(np.exp(epsilon))
    return lambda r: max(0.0, (r - delta) / growth, 1 - delta - growth * (1 - r))


def _largest(refuted: Callable[[float], bool]) -> float:
    """A parameter, 0 or up to 1e-9 below the largest, that is refuted."""
    if not refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while refuted(high):
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
