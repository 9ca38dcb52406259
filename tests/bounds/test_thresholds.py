import numpy as np
import pytest
from scipy.stats import binom

from resperturb.bounds import Bonferroni, Given, MultiSplit, Split, clopper_pearson
from resperturb.bounds.intervals import upper_limit
from resperturb.bounds.thresholds import _candidates, _limits, count_grid
from resperturb.errors import UsageError

NOISE = np.random.default_rng(0).normal(size=(2, 400))


def test_the_grid_of_counts_depends_on_the_number_of_scores_alone_and_is_fine():
    grid = count_grid(50_000)
    assert grid[0] == 0
    assert grid[-1] < 50_000
    assert np.all(np.diff(grid) <= np.maximum(1, np.sqrt(grid * (1 - grid / 50_000))[:-1]))


@pytest.mark.parametrize("decimals", [8, 0])
def test_simultaneous_limits_hold_at_all_thresholds_together(decimals):
    # Rates beyond every observed threshold, against their limits: one failure anywhere counts. At 0 decimals
    # scores tie, and the rates jump.
    rng = np.random.default_rng(1)
    size, alpha, trials = 60, 0.3, 1000
    limits = _limits(size, alpha, True)
    failures = 0
    for _ in range(trials):
        drawn = rng.uniform(0, 10, size).round(decimals)
        thresholds = np.unique(drawn)
        counts = size - np.searchsorted(np.sort(drawn), thresholds)
        # P[round(U) >= t] for U uniform on [0, 10].
        rates = np.clip(1 - (thresholds - 0.5 * 10.0**-decimals) / 10, 0, 1)
        failures += bool(np.any(rates > limits[counts]))
    assert failures <= binom.isf(1e-3, trials, alpha)
    assert failures > 0


def test_limits_of_single_counts_fail_somewhere_far_too_often():
    # Why the correction is there: the same check without it.
    rng = np.random.default_rng(2)
    size, alpha = 60, 0.3
    limits = upper_limit(np.arange(size + 1), size, alpha)
    drawn = np.sort(rng.uniform(size=(500, size)), axis=1)
    rates, counts = 1 - drawn, size - np.arange(size)
    assert np.mean(np.any(rates > limits[counts], axis=1)) > 2 * alpha


@pytest.mark.parametrize("direction", ["accept", "reject"])
def test_the_bonferroni_bound_is_the_best_of_all_thresholds_at_these_limits(direction):
    # A third of the members stand out; mirrored, a third of the others do.
    members, nonmembers = NOISE[0] + np.where(np.arange(400) % 3, 0.0, 5.0), NOISE[1]
    if direction == "reject":
        members, nonmembers = -nonmembers, -members
    bound = clopper_pearson(members, nonmembers, delta=1e-3, thresholds=Bonferroni())
    limits = _limits(400, 0.025, True)
    best = 0.0
    for threshold in np.concatenate([members, nonmembers]):
        fpr = limits[np.sum(nonmembers >= threshold)]
        fnr = limits[np.sum(members < threshold)]
        for likely, unlikely in ((1 - fnr, fpr), (1 - fpr, fnr)):
            best = max(best, np.log(max(likely - 1e-3, 1e-300) / unlikely))
    assert bound.epsilon == pytest.approx(best, abs=1e-12)
    assert bound.direction == direction
    assert bound.counts.tp == np.sum(members >= bound.threshold)
    assert bound.counts.fp == np.sum(nonmembers >= bound.threshold)


def test_a_stated_grid_pays_for_its_size():
    members, nonmembers = NOISE[0] + 1.5, NOISE[1]
    alone = clopper_pearson(members, nonmembers, thresholds=Given(2.0))
    assert clopper_pearson(members, nonmembers, thresholds=Bonferroni((2.0,))).epsilon == alone.epsilon
    among = clopper_pearson(members, nonmembers, thresholds=Bonferroni((-9.0, 2.0, 9.0)))
    paid = clopper_pearson(members, nonmembers, thresholds=Given(2.0), confidence=1 - 0.05 / 3)
    assert among.epsilon == pytest.approx(paid.epsilon)
    assert among.threshold == 2.0


def test_a_split_bounds_the_half_that_did_not_choose():
    members, nonmembers = NOISE[0] + 1.5, NOISE[1]
    bound = clopper_pearson(members, nonmembers, thresholds=Split(fraction=0.25, seed=5))
    assert (bound.counts.members, bound.counts.nonmembers) == (300, 300)
    again = clopper_pearson(members, nonmembers, thresholds=Split(fraction=0.25, seed=5))
    other = clopper_pearson(members, nonmembers, thresholds=Split(fraction=0.25, seed=6))
    assert bound == again != other


def test_many_splits_give_the_median_of_splits_at_half_the_error():
    members, nonmembers = NOISE[0] + 1.5, NOISE[1]
    rng_seed = 3
    five = clopper_pearson(members, nonmembers, thresholds=MultiSplit(splits=5, seed=rng_seed))
    spread = [
        clopper_pearson(members, nonmembers, thresholds=Split(seed=seed), confidence=0.975).epsilon
        for seed in range(40)
    ]
    assert min(spread) <= five.epsilon <= max(spread)
    one = clopper_pearson(members, nonmembers, thresholds=MultiSplit(splits=1, seed=rng_seed))
    alone = clopper_pearson(members, nonmembers, thresholds=Split(seed=rng_seed), confidence=0.975)
    assert one.epsilon == pytest.approx(alone.epsilon)


def test_too_few_scores_to_split_show_nothing_and_say_so():
    bound = clopper_pearson([1.0], np.zeros(100), thresholds=Split())
    assert (bound.epsilon, bound.threshold) == (0.0, None)
    assert "too few scores" in bound.selection


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Given(np.nan),
        lambda: Bonferroni(()),
        lambda: Bonferroni((0.0, np.nan)),
        lambda: Split(fraction=1.0),
        lambda: MultiSplit(fraction=0.0),
        lambda: MultiSplit(splits=0),
    ],
)
def test_impossible_strategies_are_refused(wrong):
    with pytest.raises(UsageError):
        wrong()


def test_no_threshold_beats_the_candidates_at_any_count_of_the_grid():
    members, nonmembers = NOISE[0] + 1.0, NOISE[1]
    _, tp, fp = _candidates(members, nonmembers)
    every = np.concatenate([members, nonmembers])
    all_tp = np.array([np.sum(members >= t) for t in every])
    all_fp = np.array([np.sum(nonmembers >= t) for t in every])
    for count in count_grid(400):
        if np.any(all_fp <= count):
            assert tp[fp <= count].max() == all_tp[all_fp <= count].max()
        assert fp[400 - tp <= count].min() == all_fp[400 - all_tp <= count].min()
