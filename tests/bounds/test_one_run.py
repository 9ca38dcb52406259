import itertools

import numpy as np
import pytest
from scipy.stats import binom, norm

from resperturb.bounds import Guesses, one_run
from resperturb.bounds.fdp import one_run_fdp
from resperturb.bounds.one_run import reaches
from resperturb.errors import UsageError


@pytest.mark.parametrize("rate", [0.5, 0.8, 0.99])
def test_how_probably_a_walk_reaches_a_bar_is_counted_exactly(rate):
    made, least = np.array([2, 3, 6, 9]), np.array([3, 3, 5, 7])
    expected = 0.0
    for steps in itertools.product([0, 1], repeat=9):
        sums = np.cumsum(steps)
        if (sums[made - 1] >= least).any():
            expected += rate ** sums[-1] * (1 - rate) ** (9 - sums[-1])
    assert reaches(made, least, rate) == pytest.approx(expected, rel=1e-10)


def test_a_walk_of_many_steps_is_a_binomial_at_a_single_bar():
    assert reaches(np.array([50_000]), np.array([25_300]), 0.5) == pytest.approx(
        binom.sf(25_299, 50_000, 0.5), rel=1e-8
    )


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("mu", [0.5, 2.0])
def test_the_lemma_of_the_failure_term_is_tight_for_a_gaussian_mechanism(mu, epsilon):
    # How much the posterior of a coin exceeds p, on average, against delta / (2 (1 + e^epsilon)).
    y, p = np.linspace(-12, 14, 400_001), 1 / (1 + np.exp(-epsilon))
    inside, outside = norm.pdf(y, mu), norm.pdf(y)
    both = (inside + outside) / 2
    q = inside / (2 * both)
    excess = np.trapezoid(both * np.maximum(q - p, 0), y)
    delta = norm.sf(epsilon / mu - mu / 2) - np.exp(epsilon) * norm.sf(epsilon / mu + mu / 2)
    assert excess == pytest.approx(delta / (2 * (1 + np.exp(epsilon))), rel=1e-4)


def test_guesses_given_in_advance_are_tested_by_the_binomial():
    members, nonmembers = np.arange(200) + 150.0, np.arange(200) + 0.0
    bound = one_run(members, nonmembers, guesses=(80, 80), delta=0.0, confidence=0.9)
    p = 1 / (1 + np.exp(-bound.epsilon))
    assert binom.sf(bound.counts.correct - 1, 160, p) == pytest.approx(0.1, abs=1e-5)
    assert one_run(members, nonmembers, guesses=(80, 80), delta=1e-4, confidence=0.9).epsilon < bound.epsilon


def test_a_delta_that_explains_many_right_guesses_is_paid_once():
    # 5,000 canaries at delta 1e-3 may be right 5/2 times more often than by chance in the mean.
    rng = np.random.default_rng(0)
    member = rng.random(5000) < 0.5
    scores = rng.normal(2.0 * member, 1)
    found = one_run(scores[member], scores[~member], delta=1e-3)
    assert found.epsilon > 3


def exposed(rng):
    """1,000 canaries, 5% of which reveal their membership."""
    member = rng.random(1000) < 0.5
    scores = rng.normal(size=1000) + 8.0 * (member & (rng.random(1000) < 0.05))
    return scores[member], scores[~member]


def responses(rng):
    """Randomised response with epsilon 2 for 1,000 canaries."""
    member = rng.random(1000) < 0.5
    scores = np.where(rng.random(1000) < 1 / (1 + np.exp(-2.0)), member, ~member).astype(float)
    return scores[member], scores[~member]


def strong(rng):
    """100 canaries of a Gaussian mechanism with mu = 3."""
    member = rng.random(100) < 0.5
    scores = rng.normal(3.0 * member, 1)
    return scores[member], scores[~member]


@pytest.mark.parametrize(("draw", "at_least"), [(exposed, 1.1), (responses, 1.75), (strong, 2.4)])
def test_it_shows_more_than_numbers_of_guesses_with_a_correction(draw, at_least):
    rng = np.random.default_rng(0)
    audits = [draw(rng) for _ in range(12)]
    assert np.mean([one_run(*audit).epsilon for audit in audits]) > at_least


def test_guesses_are_the_highest_and_the_lowest_scores():
    members, nonmembers = [9.0, 8.0, 1.0, 5.0], [7.0, 0.0, -1.0, 4.0]
    assert one_run(members, nonmembers, guesses=(3, 2)).counts == Guesses(3, 2, correct=4, canaries=8)


def test_equal_scores_are_guessed_together_or_not_at_all():
    members, nonmembers = [9.0, 5.0, 5.0, 1.0], [5.0, 0.0, -1.0, 1.0]
    assert one_run(members, nonmembers, guesses=(3, 3)).counts == Guesses(1, 2, correct=3, canaries=8)
    assert one_run(members, nonmembers, guesses=(4, 4)).counts == Guesses(4, 4, correct=6, canaries=8)


def test_neither_the_order_of_the_arrays_nor_the_scale_of_the_scores_changes_anything():
    rng = np.random.default_rng(2)
    members, nonmembers = rng.integers(0, 3, 80) + 0.5, rng.integers(0, 2, 70) + 0.5
    found = one_run(members, nonmembers)
    assert found.epsilon > 0
    assert one_run(members[::-1], rng.permutation(nonmembers)) == found
    assert one_run(np.exp(members), np.exp(nonmembers)) == found


def test_each_end_of_the_scores_is_used():
    rng = np.random.default_rng(0)
    telling, rest = rng.normal(50, 1, 100), rng.normal(0, 1, 700)
    only_members_stand_out = one_run(np.concatenate([telling, rest[:300]]), rest[300:])
    only_others_stand_out = one_run(rest[300:], np.concatenate([-telling, rest[:300]]))
    assert only_members_stand_out.counts.guessed_in > only_members_stand_out.counts.guessed_out
    assert only_others_stand_out.counts.guessed_out > only_others_stand_out.counts.guessed_in
    assert min(only_members_stand_out.epsilon, only_others_stand_out.epsilon) > 1


def test_sizes_that_fair_coins_do_not_give_hold_no_claim():
    bound = one_run(np.ones(400), np.zeros(100))
    assert bound.epsilon == 0
    assert one_run([1.0], np.linspace(-1, 0.5, 20)).epsilon == 0
    assert "400 canaries in and 100 out" in bound.unmet[0]
    likely = one_run(np.ones(270), np.zeros(230))
    assert likely.epsilon > 1
    assert not likely.unmet


@pytest.mark.parametrize("guesses", [(0, 0), (-1, 5), (30, 30)])
def test_impossible_guesses_are_refused(guesses):
    with pytest.raises(UsageError, match="guesses"):
        one_run(np.ones(20), np.zeros(20), guesses=guesses)


def test_its_deprecated_name_gives_the_same_whatever_the_curve():
    members, nonmembers = np.arange(200) + 150.0, np.arange(200) + 0.0
    for curve in ("approximate", "gaussian"):
        with pytest.warns(DeprecationWarning, match="use one_run"):
            assert one_run_fdp(members, nonmembers, curve=curve) == one_run(members, nonmembers)
