"""Lower bounds on epsilon from many canaries in a single training run.

Each canary is put into the training data with probability 1/2, independently. The attacker sees one model, guesses
that some canaries with the highest scores are in and some with the lowest are out, and abstains on the rest. Too many
right guesses refute a privacy claim. The canaries may influence each other through the model: that the *coins* are
independent is all that is used. How many to guess is given in advance, or searched over a grid fixed by the number of
canaries alone, with Bonferroni's correction.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtr, betaincc, expit, ndtr, ndtri

from resperturb.bounds.rates import check_gaussian_delta
from resperturb.bounds.registry import register_bound
from resperturb.bounds.result import GAUSSIAN_CURVE, RANDOM_INCLUSION, Guesses, LowerBound
from resperturb.bounds.scores import CanaryScores, Scores, check_probability, pooled_ranks
from resperturb.errors import UsageError

# Fair coins give sizes so uneven in one audit of a thousand. Were more unevenness let through, guessing the more
# frequent side would be rewarded in an audit whose sizes were fixed without coins.
_IMPLAUSIBLE = 1e-3

# The largest parameter refuted by so many correct guesses: canaries, guesses, correct, allowed error.
Refuted = Callable[[int, int, int, float], float]


def one_run(
    members: ArrayLike,
    nonmembers: ArrayLike,
    *,
    delta: float = 1e-5,
    confidence: float = 0.95,
    guesses: tuple[int, int] | None = None,
) -> LowerBound:
    """Bound epsilon from one run by the number of right guesses (Steinke, Nasr and Jagielski, 2023).

    Under (epsilon, delta)-DP, r guesses about m canaries are right at least v times with probability at most
    ``f(v) + 2 m delta max_i (f(v - i) - f(v))/i``, where ``f(v) = P[Binomial(r, e^epsilon/(1 + e^epsilon)) >= v]``.
    Arguments are those of every bound (:class:`~resperturb.bounds.CanaryScores`), and ``guesses``: how many canaries
    to call in and out, fixed in advance; None searches a grid.

    >>> canaries = np.linspace(-1, 1, 500)
    >>> bound = one_run(canaries + 1.5, canaries, guesses=(100, 100))
    >>> bound.counts
    Guesses(guessed_in=100, guessed_out=100, correct=200, canaries=1000)
    >>> round(bound.epsilon, 2)
    4.17
    """
    check_probability("delta", delta, zero=True)

    def refuted(canaries: int, guessed: int, correct: int, alpha: float) -> float:
        return _refuted_epsilon(canaries, guessed, correct, alpha, delta)

    return _bound("one_run", members, nonmembers, delta, confidence, guesses, refuted, ())


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
    experiments: it assumes that the curve is Gaussian, and claims too much where it is not. Other arguments are those
    of :func:`one_run`.

    >>> canaries = np.linspace(-1, 1, 500)
    >>> round(one_run_fdp(canaries + 1.5, canaries, guesses=(100, 100)).epsilon, 2)
    4.19
    >>> bound = one_run_fdp(canaries + 1.5, canaries, guesses=(100, 100), curve="gaussian")
    >>> round(bound.mu, 2), round(bound.epsilon, 2)
    (1.54, 7.26)
    """
    if curve == "approximate":
        check_probability("delta", delta, zero=True)

        def refuted(canaries: int, guessed: int, correct: int, alpha: float) -> float:
            return _refuted_curve(canaries, guessed, correct, alpha, delta)

        return _bound("one_run_fdp", members, nonmembers, delta, confidence, guesses, refuted, ())
    if curve != "gaussian":
        raise UsageError(f"curve must be 'gaussian' or 'approximate', not {curve!r}.")
    from resperturb.privacy.gaussian import epsilon_for_delta

    check_gaussian_delta(delta)
    assumed = (GAUSSIAN_CURVE,)
    bound = _bound("one_run_fdp", members, nonmembers, delta, confidence, guesses, _refuted_curve, assumed)
    return replace(bound, epsilon=epsilon_for_delta(delta, bound.epsilon), mu=bound.epsilon)


@register_bound("one_run", "Steinke, Nasr and Jagielski 2023 (arXiv:2305.08846)", design="coins")
def _one_run(scores: CanaryScores, delta: float, confidence: float) -> LowerBound:
    return one_run(scores.members, scores.nonmembers, delta=delta, confidence=confidence)


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


def _bound(
    method: str,
    members: ArrayLike,
    nonmembers: ArrayLike,
    delta: float,
    confidence: float,
    guesses: tuple[int, int] | None,
    refuted: Refuted,
    assumptions: tuple[str, ...],
) -> LowerBound:
    alpha = 1 - check_probability("confidence", confidence)
    scores = CanaryScores(members, nonmembers)
    ins, outs = scores.members, scores.nonmembers
    canaries = ins.size + outs.size
    grid = guess_grid(canaries) if guesses is None else [_checked(guesses, canaries)]
    member = _members_by_score(ins, outs)
    best, best_value = Guesses(*grid[0], _correct(member, *grid[0]), canaries), 0.0
    uneven = 2 * bdtr(min(ins.size, outs.size), canaries, 0.5) < _IMPLAUSIBLE
    # Equal scores hold no guess; sizes that fair coins do not give hold no claim.
    for top, bottom in [] if uneven or np.all(np.concatenate([ins, outs]) == ins[0]) else grid:
        correct = _correct(member, top, bottom)
        value = refuted(canaries, top + bottom, correct, alpha / len(grid))
        if value > best_value:
            best, best_value = Guesses(top, bottom, correct, canaries), value
    contradiction = f"{ins.size} canaries in and {outs.size} out are not what fair coins give, so nothing is claimed."
    return LowerBound(
        epsilon=best_value,
        delta=delta,
        confidence=confidence,
        method=method,
        selection="numbers of guesses given in advance"
        if guesses is not None
        else f"best of {len(grid)} numbers of guesses fixed by the number of canaries, Bonferroni-corrected",
        threshold=None,
        direction=None,
        counts=best,
        assumptions=(RANDOM_INCLUSION, *assumptions),
        unmet=(contradiction,) if uneven else (),
    )


def _members_by_score(ins: Scores, outs: Scores) -> NDArray[np.bool_]:
    """Whether each canary is a member, lowest score first; ties in an order of chance."""
    member = np.zeros(ins.size + outs.size, dtype=np.bool_)
    member[pooled_ranks(ins, outs)[0]] = True
    return member


def _correct(member: NDArray[np.bool_], top: int, bottom: int) -> int:
    return int(member[member.size - top :].sum() + bottom - member[:bottom].sum())


def _checked(guesses: tuple[int, int], canaries: int) -> tuple[int, int]:
    top, bottom = guesses
    if top < 0 or bottom < 0 or not 1 <= top + bottom <= canaries:
        raise UsageError(f"guesses must be two counts that add up to between 1 and {canaries}, not {guesses}.")
    return top, bottom


def p_value(canaries: int, guessed: int, correct: int, epsilon: float, delta: float) -> float:
    """Return the most probable that (epsilon, delta)-DP can make so many correct guesses.

    >>> p_value(canaries=10, guessed=10, correct=10, epsilon=0.0, delta=0.0) == 2.0**-10
    True
    >>> round(p_value(canaries=1000, guessed=100, correct=90, epsilon=1.0, delta=1e-4), 6)
    0.008167
    """

    def tail(right: NDArray[np.int64]) -> NDArray[np.float64]:
        # The complement 1 - q keeps its digits for a large epsilon.
        some = betaincc(guessed - right + 1.0, np.maximum(right, 1.0), expit(-epsilon))
        return np.where(right > 0, some, 1.0)

    exact = float(tail(np.array(correct)))
    if delta == 0 or correct == 0:
        return exact
    # The slope (f(v - i) - f(v))/i is a running mean of terms that rise and then fall, so it has one peak.
    low, high = 1, correct
    while True:
        steps = np.unique(np.linspace(low, high, 65).astype(np.int64))
        slopes = (tail(correct - steps) - exact) / steps
        peak = int(np.argmax(slopes))
        if high - low <= 64:
            return min(1.0, exact + 2 * canaries * delta * max(0.0, float(slopes[peak])))
        low, high = int(steps[max(peak - 1, 0)]), int(steps[min(peak + 1, steps.size - 1)])


@lru_cache(maxsize=4096)
def _refuted_epsilon(canaries: int, guessed: int, correct: int, alpha: float, delta: float) -> float:
    # A larger epsilon allows all that a smaller one does, so refuting it refutes them both, p monotone or not.
    return _largest(lambda epsilon: p_value(canaries, guessed, correct, epsilon, delta) <= alpha)


@lru_cache(maxsize=4096)
def _refuted_curve(canaries: int, guessed: int, correct: int, alpha: float, delta: float | None = None) -> float:
    """The largest mu refuted, or with a delta the largest epsilon."""

    def refuted(parameter: float) -> bool:
        inverse = gaussian_inverse(parameter) if delta is None else approximate_inverse(parameter, delta)
        return curve_refuted(inverse, canaries, guessed, correct, alpha)

    return _largest(refuted)


def curve_refuted(inverse: Callable[[float], float], canaries: int, guessed: int, correct: int, alpha: float) -> bool:
    """Say whether a privacy curve f makes so many correct guesses less probable than ``alpha``.

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
