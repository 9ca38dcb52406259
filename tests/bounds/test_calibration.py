"""The bounds hold at their confidence on mechanisms whose epsilon is known."""

from functools import partial

import numpy as np
import pytest
from scipy.stats import binom

from resperturb.bounds import Given, clopper_pearson, gdp, one_run
from resperturb.privacy.gaussian import epsilon_for_delta

BY_RATES = {
    "default": clopper_pearson,
    "given": partial(clopper_pearson, thresholds=Given(1.0)),
    "gdp": gdp,
    "gdp given": partial(gdp, thresholds=Given(1.0)),
}
ONE_RUN = {
    "one run": one_run,
    "one run, given": partial(one_run, guesses=(30, 30)),
}


def most_errors(trials: int, alpha: float) -> float:
    """More errors than this happen by chance in one of a thousand runs of a valid bound."""
    return binom.isf(1e-3, trials, alpha)


def by_coins(rng: np.random.Generator, canaries: int) -> np.ndarray:
    return rng.random(canaries) < 0.5


@pytest.mark.parametrize("decimals", [12, 0], ids=["distinct", "tied"])
@pytest.mark.parametrize("name", BY_RATES)
def test_scores_without_signal_show_nothing_at_the_stated_rate(name, decimals):
    rng, trials = np.random.default_rng(0), 1000 if decimals else 300
    claims = 0
    for _ in range(trials):
        members, nonmembers = rng.normal(size=120).round(decimals), rng.normal(size=90).round(decimals)
        claims += BY_RATES[name](members, nonmembers).epsilon > 0
    assert claims <= most_errors(trials, 0.05)


@pytest.mark.parametrize("decimals", [12, 0], ids=["distinct", "tied"])
@pytest.mark.parametrize("name", ONE_RUN)
def test_canaries_without_signal_show_nothing_at_the_stated_rate(name, decimals):
    rng, trials = np.random.default_rng(1), 1000
    claims = 0
    for _ in range(trials):
        scores, member = rng.normal(size=200).round(decimals), by_coins(rng, 200)
        claims += ONE_RUN[name](scores[member], scores[~member]).epsilon > 0
    assert claims <= most_errors(trials, 0.05)


NULL_SCORES = {
    "nine in ten are one": lambda rng, size: (rng.random(size) < 0.9).astype(float),
    "one in twenty is one": lambda rng, size: (rng.random(size) < 0.05).astype(float),
    "heavy tails": lambda rng, size: rng.standard_cauchy(size),
    "constant": lambda rng, size: np.ones(size),
    "one is odd": lambda rng, size: np.eye(1, size)[0],
    "groups of ten": lambda rng, size: np.repeat(rng.normal(size=size // 10), 10),
}


@pytest.mark.parametrize("canaries", [50, 500, 5000])
@pytest.mark.parametrize("kind", NULL_SCORES)
def test_default_arguments_keep_the_stated_rate_whatever_the_scores_look_like(kind, canaries):
    # Scores that say nothing, each canary in by its own coin: independent, so that every bound must hold.
    bounds = {"one run": one_run, "rates": clopper_pearson, "Gaussian": gdp}
    rng, trials = np.random.default_rng(canaries), 400 if canaries < 1000 else 150
    claims = dict.fromkeys(bounds, 0)
    for _ in range(trials):
        scores, member = NULL_SCORES[kind](rng, canaries), by_coins(rng, canaries)
        for name, bound in bounds.items():
            claims[name] += bound(scores[member], scores[~member]).epsilon > 0
    assert max(claims.values()) <= most_errors(trials, 0.05), claims


def test_the_best_threshold_without_a_correction_claims_far_too_often():
    # What ranks are for; and the checks above would notice.
    rng, trials = np.random.default_rng(0), 100
    claims = honest = 0
    for _ in range(trials):
        members, nonmembers = rng.normal(size=300), rng.normal(size=300)
        at = partial(clopper_pearson, members, nonmembers, confidence=0.7)
        claims += any(at(thresholds=Given(threshold)).epsilon > 0 for threshold in members)
        honest += at().epsilon > 0
    assert claims > most_errors(trials, 0.3)
    assert honest <= most_errors(trials, 0.3)


def randomised_response(rng: np.random.Generator, member: np.ndarray | bool, epsilon: float, size: int) -> np.ndarray:
    """Say the truth with probability e^epsilon/(1 + e^epsilon): tight, at every threshold and in both directions."""
    truth = rng.random(size) < 1 / (1 + np.exp(-epsilon))
    return np.where(truth, member, np.logical_not(member)).astype(float)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
@pytest.mark.parametrize("name", ["default", "given"])
def test_randomised_response_is_not_overstated(name, epsilon):
    rng, trials = np.random.default_rng(2), 400
    errors = 0
    for _ in range(trials):
        members, nonmembers = (randomised_response(rng, member, epsilon, 150) for member in (True, False))
        errors += BY_RATES[name](members, nonmembers, delta=0.0, confidence=0.8).epsilon > epsilon
    assert errors <= most_errors(trials, 0.2)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
@pytest.mark.parametrize("name", ["one run", "one run, given"])
def test_randomised_response_of_many_canaries_is_not_overstated(name, epsilon):
    rng, trials = np.random.default_rng(3), 400
    errors = 0
    for _ in range(trials):
        member = by_coins(rng, 200)
        scores = randomised_response(rng, member, epsilon, 200)
        found = ONE_RUN[name](scores[member], scores[~member], delta=0.0, confidence=0.8)
        errors += found.epsilon > epsilon
    assert errors <= most_errors(trials, 0.2)


@pytest.mark.parametrize("name", BY_RATES)
def test_a_gaussian_mechanism_is_not_overstated(name):
    rng, trials, delta = np.random.default_rng(4), 400, 1e-2
    truth = epsilon_for_delta(delta, 1.0)
    errors = 0
    for _ in range(trials):
        members, nonmembers = rng.normal(1, 1, 200), rng.normal(0, 1, 150)
        errors += BY_RATES[name](members, nonmembers, delta=delta, confidence=0.8).epsilon > truth
    assert errors <= most_errors(trials, 0.2)


@pytest.mark.parametrize("name", ONE_RUN)
def test_a_gaussian_mechanism_with_many_canaries_is_not_overstated(name):
    rng, trials, delta = np.random.default_rng(5), 400, 1e-2
    truth = epsilon_for_delta(delta, 1.0)
    errors = 0
    for _ in range(trials):
        member = by_coins(rng, 200)
        scores = rng.normal(member, 1)
        errors += ONE_RUN[name](scores[member], scores[~member], delta=delta, confidence=0.8).epsilon > truth
    assert errors <= most_errors(trials, 0.2)


def test_delta_is_not_counted_as_epsilon():
    # One member in ten is simply published: (0, 0.1)-DP, no more.
    rng, trials = np.random.default_rng(6), 400
    errors = naive = 0
    for _ in range(trials):
        members, nonmembers = (rng.random(1000) < 0.1).astype(float), np.zeros(1000)
        errors += clopper_pearson(members, nonmembers, delta=0.1).epsilon > 0
        naive += clopper_pearson(members, nonmembers, delta=1e-5).epsilon > 0
    assert errors <= most_errors(trials, 0.05)
    assert naive == trials


def test_a_delta_that_reveals_all_canaries_at_once_is_not_counted_as_epsilon():
    # With probability 0.1 everything is published: still (0, 0.1)-DP, and the canaries are anything but independent.
    rng, trials = np.random.default_rng(7), 400
    errors = naive = 0
    for _ in range(trials):
        member = by_coins(rng, 100)
        scores = member.astype(float) if rng.random() < 0.1 else rng.normal(size=100)
        groups = scores[member], scores[~member]
        errors += one_run(*groups, delta=0.1).epsilon > 0
        naive += one_run(*groups, delta=1e-6).epsilon > 0
    assert errors <= most_errors(trials, 0.05)
    assert naive > most_errors(trials, 0.05)


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
@pytest.mark.parametrize("name", ["one run", "one run, given"])
def test_a_delta_that_reveals_some_canaries_now_and_then_is_not_counted_as_epsilon(name, epsilon):
    # Randomised response, and with probability 0.06 a random tenth of the canaries is published as well: (epsilon,
    # 0.006)-DP. All published canaries come at once, which the failure term must cover.
    rng, trials, canaries, delta = np.random.default_rng(15), 200, 1000, 0.006
    errors = 0
    for _ in range(trials):
        member = by_coins(rng, canaries)
        scores = randomised_response(rng, member, epsilon, canaries) + rng.normal(0, 1e-3, canaries)
        if rng.random() < 0.06:
            shown = rng.choice(canaries, canaries // 10, replace=False)
            scores[shown] = np.where(member[shown], 9.0, -9.0)
        errors += ONE_RUN[name](scores[member], scores[~member], delta=delta).epsilon > epsilon
    assert errors <= most_errors(trials, 0.05)


def test_the_bounds_come_close_with_many_samples():
    rng, epsilon = np.random.default_rng(9), 2.0
    members, nonmembers = (randomised_response(rng, member, epsilon, 50_000) for member in (True, False))
    for name in ("default", "given"):
        assert 0.95 * epsilon < BY_RATES[name](members, nonmembers, delta=0.0, confidence=0.99).epsilon <= epsilon
    member = by_coins(rng, 20_000)
    scores = randomised_response(rng, member, epsilon, 20_000)
    found = one_run(scores[member], scores[~member], delta=0.0, confidence=0.99)
    assert 0.93 * epsilon < found.epsilon <= epsilon


@pytest.mark.parametrize(("mu", "delta"), [(1.0, 0.1), (2.0, 0.05)])
def test_the_bounds_come_close_to_a_gaussian_mechanism_with_many_samples(mu, delta):
    rng, truth = np.random.default_rng(10), epsilon_for_delta(delta, mu)
    members, nonmembers = rng.normal(mu, 1, 100_000), rng.normal(0, 1, 100_000)
    for name in ("default", "gdp"):
        assert 0.85 * truth < BY_RATES[name](members, nonmembers, delta=delta).epsilon <= truth


def test_a_gaussian_curve_reaches_the_small_deltas_that_counting_cannot():
    rng, truth = np.random.default_rng(11), epsilon_for_delta(1e-5, 1.0)
    members, nonmembers = rng.normal(1, 1, 20_000), rng.normal(0, 1, 20_000)
    counted, assumed = clopper_pearson(members, nonmembers), gdp(members, nonmembers)
    assert counted.epsilon < 0.7 * truth < 0.9 * truth < assumed.epsilon <= truth


def test_canaries_are_not_revealed_independently_of_each_other():
    # With probability 0.1 a random tenth of the canaries is published, each with probability 0.01: (0, 0.01)-DP.
    # Were every canary revealed by a coin of its own, as in Xiang et al. (arXiv 2509.08704), that would be refuted.
    rng, trials, canaries, delta = np.random.default_rng(14), 400, 1000, 0.01
    errors = independent = 0
    for trial in range(trials):
        member = by_coins(rng, canaries)
        scores = rng.normal(size=canaries)
        if rng.random() < 0.1:
            shown = rng.choice(canaries, 100, replace=False)
            scores[shown] += np.where(member[shown], 100.0, -100.0)
        if trial < 50:  # ours takes longer
            errors += one_run(scores[member], scores[~member], delta=delta).epsilon > 0
        wrong = int(((scores > 0) != member).sum())
        independent += binom.cdf(wrong, round(canaries * (1 - delta)), 0.5) <= 0.05
    assert errors <= most_errors(50, 0.05)
    assert independent > most_errors(trials, 0.05)
