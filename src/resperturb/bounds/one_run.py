"""A lower bound on epsilon from many canaries in a single training run.

Each canary is put into the training data with probability 1/2, independently. The attacker sees one model and guesses
in the order of its confidence: the highest scores are *in*, the lowest *out*. Too many right guesses refute a privacy
claim. The canaries may influence each other through the model: that the *coins* are independent is all that is used.

Proof, for an (epsilon, delta)-DP training, m canaries and p = e^epsilon/(1 + e^epsilon). Take canaries in a fixed
order. Given the output y and the coins before, let q be the probability that coin i is as guessed; q may exceed p.
With P and Q the laws of the output where coin i is as guessed and where it is not (later coins averaged),

    E (q - p)+  =  integral (P - e^epsilon Q)+ / (2 (1 + e^epsilon))  <=  delta / (2 (1 + e^epsilon)).

Draw independent uniforms U_i and let the guess be right where U_i < q. Then it is right at most where U_i < p, or
where p <= U_i < q. The first events are independent of y and of each other, so in any order that y decides they are
a binomial random walk W. The second, summed over all canaries and both ways to guess, number G with
E G <= m delta (1 - p), whatever their dependence. So for every number of guesses at once, right guesses <= W + G, and
by Markov's inequality G < g except with probability m delta (1 - p)/g. This failure term is paid once. What is left
of the error tests W: no more right guesses than a walk, less g - 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtr, betaincinv, expit, gammaln, xlog1py, xlogy

from resperturb.bounds.arrays import Floats, Ints
from resperturb.bounds.registry import register_bound
from resperturb.bounds.result import RANDOM_INCLUSION, Guesses, LowerBound
from resperturb.bounds.scores import CanaryScores, check_probability
from resperturb.errors import UsageError

# Fair coins give sizes so uneven in one audit of a thousand. Less uneven ones that were fixed without coins can still
# be rewarded, for guessing the more frequent side: that coins decided is an assumption.
_IMPLAUSIBLE = 1e-3
# The largest share of the error that goes to the failure term.
_FAILURES = 0.7
# Where the failure term matters, epsilon is tested in steps of this size, upwards until one is not refuted.
_STEP = 0.1
_FEWEST_GUESSES, _GROWTH = 6, 1.25
_TOLERANCE = 1e-6


def one_run(
    members: ArrayLike,
    nonmembers: ArrayLike,
    *,
    delta: float = 1e-5,
    confidence: float = 0.95,
    guesses: tuple[int, int] | None = None,
) -> LowerBound:
    """Bound epsilon from one run by the number of right guesses (after Steinke, Nasr and Jagielski, 2023).

    All numbers of guesses are tested together, by the exact distribution of a random walk. It guesses at both ends of
    the scores, at the top alone and at the bottom alone, each with a third of the error. Equal scores are guessed
    together or not at all. The failure term of ``delta`` is smaller than in the paper; the module has the proof.

    Args:
        members: Scores of canaries that were trained on; higher means rather a member.
        nonmembers: Scores of canaries that were not.
        delta: Delta of the lower bound.
        confidence: Probability that the bound holds.
        guesses: Numbers of canaries called in and out, fixed in advance; None tests all numbers.

    Returns:
        The bound, with its method, counts and assumptions.

    >>> canaries = np.linspace(-1, 1, 500)
    >>> bound = one_run(canaries + 1.5, canaries, guesses=(100, 100))
    >>> bound.counts
    Guesses(guessed_in=100, guessed_out=100, correct=200, canaries=1000)
    >>> round(bound.epsilon, 2)
    4.19
    """
    check_probability("delta", delta, zero=True)
    alpha = 1 - check_probability("confidence", confidence)
    scores = CanaryScores(members, nonmembers)
    canaries = scores.members.size + scores.nonmembers.size
    unmet = uneven(scores)
    if guesses is None:
        walks = [_walk(scores, canaries, canaries), _walk(scores, canaries, 0), _walk(scores, 0, canaries)]
    else:
        walks = [_walk(scores, *check_guesses(guesses, canaries)).last()]
    epsilon, best = (0.0, Guesses(0, 0, 0, canaries)) if unmet else _largest(walks, canaries, delta, alpha)
    return LowerBound(
        epsilon=epsilon,
        delta=delta,
        confidence=confidence,
        method="one_run",
        selection="guesses in the order of confidence, all numbers of guesses tested together"
        if guesses is None
        else "numbers of guesses given in advance",
        threshold=None,
        direction=None,
        counts=best,
        assumptions=(RANDOM_INCLUSION,),
        unmet=unmet,
    )


@register_bound("one_run", "after Steinke, Nasr and Jagielski 2023 (arXiv:2305.08846)", design="coins")
def _one_run(scores: CanaryScores, delta: float, confidence: float) -> LowerBound:
    return one_run(scores.members, scores.nonmembers, delta=delta, confidence=confidence)


def check_guesses(guesses: tuple[int, int], canaries: int) -> tuple[int, int]:
    """Return both numbers of guesses if the number of canaries allows them."""
    top, bottom = guesses
    if top < 0 or bottom < 0 or not 1 <= top + bottom <= canaries:
        raise UsageError(f"guesses must be two counts that add up to between 1 and {canaries}, not {guesses}.")
    return top, bottom


def chance_of_sizes(ins: int, outs: int) -> float:
    """Return how probably fair coins give sizes at least as uneven as these.

    >>> chance_of_sizes(1, 3)
    0.625
    """
    return min(1.0, float(2 * bdtr(min(ins, outs), ins + outs, 0.5)))


def uneven(scores: CanaryScores) -> tuple[str, ...]:
    """Say that fair coins do not give canaries of these sizes, if they do not.

    >>> uneven(CanaryScores([1.0] * 40, [0.0] * 60))
    ()
    """
    ins, outs = scores.members.size, scores.nonmembers.size
    if chance_of_sizes(ins, outs) >= _IMPLAUSIBLE:
        return ()
    return (f"{ins} canaries in and {outs} out are not what fair coins give, so nothing is claimed.",)


@dataclass(frozen=True, eq=False)
class _Walk:
    """Guesses in one order: after ``made`` guesses, ``inside`` of them *in*, ``right`` were right."""

    inside: Ints
    made: Ints
    right: Ints

    def at(self, some: Ints) -> "_Walk":
        return _Walk(self.inside[some], self.made[some], self.right[some])

    def last(self) -> "_Walk":
        return self.at(np.arange(len(self.made))[-1:])

    def strongest(self, excess: int, level: float) -> tuple[int, float]:
        """Where the lower limit of the rate of right guesses is largest, each at ``level``, and the limit."""
        right = np.maximum(self.right - excess, 0)
        limits = np.where(right > 0, betaincinv(np.maximum(right, 1), self.made - right + 1.0, level), 0.0)
        where = int(np.argmax(limits)) if limits.size else -1
        return where, float(limits[where]) if limits.size else 0.0

    def bars(self, excess: int, alpha: float) -> Ints | None:
        """The fewest right guesses, at each number, whose limit is as large as the largest; None if that is 0."""
        from scipy.stats import binom

        limit = self.strongest(excess, alpha / 8)[1] * (1 - 1e-9)
        return np.asarray(binom.isf(alpha / 8, self.made, limit), dtype=np.int64) + 1 if limit > 0 else None


def _walk(scores: CanaryScores, top: int, bottom: int) -> _Walk:
    """Guess at most ``top`` canaries *in* and ``bottom`` *out*, the most confident first; keep a few numbers of them.

    A canary's confidence is how few lie as far out as it does: of equal scores all are guessed, or none. Neither the
    order nor the numbers kept depend on membership.
    """
    values, where = np.unique(np.concatenate([scores.members, scores.nonmembers]), return_inverse=True)
    ins, size = np.bincount(where[: scores.members.size], minlength=values.size), np.bincount(where)
    above, below = np.cumsum(size[::-1])[::-1], np.cumsum(size)
    never = above[0] + 1
    rank_in, rank_out = np.where(above <= top, above, never), np.where(below <= bottom, below, never)
    as_in, rank = rank_in < rank_out, np.minimum(rank_in, rank_out)
    order = np.lexsort((~as_in, rank))
    order = order[(rank_in != rank_out)[order]]
    made = np.cumsum(size[order])
    walk = _Walk(np.cumsum((size * as_in)[order]), made, np.cumsum(np.where(as_in, ins, size - ins)[order]))
    return walk.at(_checkpoints(made))


def _checkpoints(made: Ints) -> Ints:
    """Of all numbers of guesses those nearest below a geometric series, and the last."""
    if not made.size:
        return made
    steps = [float(_FEWEST_GUESSES)]
    while steps[-1] < made[-1]:
        steps.append(max(steps[-1] + 1, steps[-1] * _GROWTH))
    found = np.searchsorted(made, np.minimum(steps, made[-1]), side="right") - 1
    return np.unique(found[found >= 0])


def reaches(made: Ints, least: Ints, rate: float) -> float:
    """Return how probably a walk has at least ``least`` successes after ``made`` steps, at any of these numbers.

    >>> reaches(np.array([1, 2]), np.array([1, 2]), 0.5)
    0.5
    >>> reaches(np.array([2, 4]), np.array([2, 3]), 0.5)
    0.375
    """
    below, first, before, reached = np.ones(1), 0, 0, 0.0
    for steps, bar in zip((made - np.append(0, made[:-1])).tolist(), least.tolist(), strict=True):
        offset, mass = _binomial(steps, rate)
        below, first = np.convolve(below, mass), first + offset
        before += steps
        stopped = max(0, bar - first)
        reached += float(below[stopped:].sum())
        below = below[:stopped]
        kept = np.flatnonzero(below > 1e-18)
        if not kept.size:
            break
        below, first = below[kept[0] : kept[-1] + 1], first + int(kept[0])
    return reached


def _binomial(trials: int, rate: float) -> tuple[int, Floats]:
    """The probabilities of a binomial within nine standard deviations, and the first count that has one."""
    spread = 9 * np.sqrt(trials * rate * (1 - rate)) + 10
    low, high = max(0, int(trials * rate - spread)), min(trials, int(trials * rate + spread))
    k = np.arange(low, high + 1)
    logs = (
        gammaln(trials + 1) - gammaln(k + 1) - gammaln(trials - k + 1) + xlogy(k, rate) + xlog1py(trials - k, -rate)
    )
    return low, np.exp(logs)


def _largest(walks: Sequence[_Walk], canaries: int, delta: float, alpha: float) -> tuple[float, Guesses]:
    """The largest epsilon refuted, and the guesses that refute it.

    Every epsilon has a test of its own, and all smaller ones are refuted too: within a step tests are nested, and
    steps are taken upwards until one does not refute. So the result exceeds the true epsilon only if its test errs.
    """

    def allowance(epsilon: float) -> tuple[int, float]:
        mean = canaries * delta * float(expit(-epsilon))
        failures = max(1, ceil(mean / (_FAILURES * alpha)))
        return failures - 1, (alpha - mean / failures) / len(walks)

    @cache
    def bars(walk: _Walk, allowed: tuple[int, float]) -> Ints | None:
        return walk.bars(*allowed)

    def refuting(epsilon: float, allowed: tuple[int, float]) -> _Walk | None:
        for walk in walks:
            least = bars(walk, allowed)
            if least is not None and reaches(walk.made, least, float(expit(epsilon))) <= allowed[1]:
                return walk
        return None

    low, found, allowed = 0.0, refuting(0.0, allowance(0.0)), allowance(0.0)
    if found is None:
        return 0.0, _described(walks[0], canaries, *allowed)
    step = _STEP if canaries * delta > 0.1 * alpha else 1.0
    while further := refuting(low + step, allowed):
        low, found = low + step, further
        allowed = allowance(low)
    high = low + step
    while high - low > _TOLERANCE:
        middle = (low + high) / 2
        if further := refuting(middle, allowed):
            low, found = middle, further
        else:
            high = middle
    return low, _described(found, canaries, *allowed)


def _described(walk: _Walk, canaries: int, excess: int, alpha: float) -> Guesses:
    where, _ = walk.strongest(excess, alpha / 8)
    if not walk.made.size:
        return Guesses(0, 0, 0, canaries)
    inside, made, right = (int(each[where]) for each in (walk.inside, walk.made, walk.right))
    return Guesses(inside, made - inside, right, canaries)
