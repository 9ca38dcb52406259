import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from resperturb.auditing import (
    auc,
    auc_interval,
    balanced_accuracy,
    binomial_interval,
    precision_recall,
    roc_curve,
    tpr_at_fpr,
)
from resperturb.errors import UsageError

# Few distinct values, so that ties are the rule, and both infinities.
tied_scores = st.lists(st.sampled_from([-np.inf, -1.0, 0.0, 0.5, 2.0, np.inf]), min_size=1, max_size=12)


@given(tied_scores, tied_scores)
def test_auc_counts_pairs_and_half_of_the_ties(members, nonmembers):
    wins = [(m > n) + (m == n) / 2 for m in members for n in nonmembers]
    assert auc(members, nonmembers) == pytest.approx(np.mean(wins), abs=1e-12)


def test_auc_agrees_with_scikit_learn():
    rng = np.random.default_rng(0)
    members, nonmembers = rng.normal(0.5, 1, 300).round(1), rng.normal(0, 1, 200).round(1)
    labels = np.repeat([1, 0], [300, 200])
    expected = roc_auc_score(labels, np.concatenate([members, nonmembers]))
    assert auc(members, nonmembers) == pytest.approx(expected, abs=1e-12)


@given(tied_scores, tied_scores)
def test_the_roc_curve_holds_the_rates_of_every_threshold(members, nonmembers):
    curve = roc_curve(members, nonmembers)
    assert (curve.fpr[0], curve.tpr[0], curve.fpr[-1], curve.tpr[-1]) == (0, 0, 1, 1)
    for fpr, tpr, threshold in zip(curve.fpr[1:], curve.tpr[1:], curve.thresholds[1:], strict=True):
        assert fpr == np.mean(np.array(nonmembers) >= threshold)
        assert tpr == np.mean(np.array(members) >= threshold)
    assert np.trapezoid(curve.tpr, curve.fpr) == pytest.approx(auc(members, nonmembers), abs=1e-12)


@given(tied_scores, tied_scores, st.sampled_from([0.0, 0.1, 0.29, 0.5, 1.0]))
def test_tpr_at_fpr_is_the_best_that_any_threshold_allows(members, nonmembers, rate):
    [found] = tpr_at_fpr(members, nonmembers, [rate], resamples=2)
    curve = roc_curve(members, nonmembers)
    assert found.tpr == curve.tpr[curve.fpr <= rate + 1e-12].max()
    if found.threshold is None:
        assert found.true_positives == found.false_positives == 0
    else:
        assert found.true_positives == sum(m >= found.threshold for m in members)
        assert found.false_positives == sum(n >= found.threshold for n in nonmembers)


def test_a_rate_that_is_a_whole_number_of_records_allows_that_many():
    # 0.29 * 100 is a little below 29 in floating point.
    [found] = tpr_at_fpr(np.full(10, 50.0), np.arange(100), [0.29], resamples=2)
    assert found.false_positives == 29


def test_constant_scores_show_nothing():
    found = tpr_at_fpr([1.0] * 5, [1.0] * 9)
    assert [at.tpr for at in found] == [0, 0, 0, 0]
    assert [at.threshold for at in found] == [None] * 4
    assert auc([1.0] * 5, [1.0] * 9) == balanced_accuracy([1.0] * 5, [1.0] * 9) == 0.5


def test_one_record_on_each_side_is_enough():
    [at_zero, *_] = tpr_at_fpr([2.0], [1.0])
    assert at_zero.tpr == 1
    assert at_zero.clopper_pearson.low == pytest.approx(0.025)
    assert auc_interval([2.0], [1.0]) == (1.0, 1.0)


@given(tied_scores, tied_scores)
def test_balanced_accuracy_is_best_over_all_thresholds(members, nonmembers):
    values = [*members, *nonmembers]
    best = max(balanced_accuracy(members, nonmembers, threshold=t) for t in values)
    assert balanced_accuracy(members, nonmembers) == pytest.approx(max(best, 0.5))


def test_precision_and_recall_count_what_is_accepted():
    [at_two, at_nine] = precision_recall([1, 2, 3], [2, 2, 0], thresholds=[2, 9])
    assert at_two == (0.5, pytest.approx(2 / 3))
    assert np.isnan(at_nine[0])
    assert at_nine[1] == 0


def test_the_binomial_interval_covers_at_least_as_often_as_it_says():
    rng = np.random.default_rng(1)
    for rate in (0.003, 0.1, 0.5):
        drawn = rng.binomial(40, rate, 2000)
        ends = {int(k): binomial_interval(int(k), 40, 0.9) for k in np.unique(drawn)}
        covered = sum(ends[int(k)].low <= rate <= ends[int(k)].high for k in drawn)
        assert covered >= 0.9 * 2000 - 3 * np.sqrt(2000 * 0.09)


def test_the_bootstrap_covers_the_auc_and_the_true_positive_rate_about_as_often_as_it_says():
    rng = np.random.default_rng(2)
    true_auc, true_tpr = norm.cdf(1 / np.sqrt(2)), norm.sf(norm.isf(0.1) - 1)
    hits = np.zeros(2)
    for trial in range(80):
        members, nonmembers = rng.normal(1, 1, 150), rng.normal(0, 1, 150)
        ends = auc_interval(members, nonmembers, confidence=0.9, resamples=100, seed=trial)
        [at] = tpr_at_fpr(members, nonmembers, [0.1], confidence=0.9, resamples=100, seed=trial)
        hits += [ends.low <= true_auc <= ends.high, at.bootstrap.low <= true_tpr <= at.bootstrap.high]
    # Three standard errors of 80 trials are 0.10; the bootstrap itself is off by a few hundredths.
    assert np.all(np.abs(hits / 80 - 0.9) < 0.14)


def test_the_bootstrap_repeats_with_its_seed_and_changes_with_it():
    rng = np.random.default_rng(3)
    members, nonmembers = rng.normal(1, 1, 50), rng.normal(0, 1, 60)
    first, again, other = (auc_interval(members, nonmembers, seed=seed, resamples=50) for seed in (1, 1, 2))
    assert first == again != other


def test_more_confidence_gives_a_wider_interval():
    rng = np.random.default_rng(4)
    members, nonmembers = rng.normal(1, 1, 50), rng.normal(0, 1, 60)
    narrow, wide = (auc_interval(members, nonmembers, confidence=c) for c in (0.5, 0.99))
    assert wide.low < narrow.low < auc(members, nonmembers) < narrow.high < wide.high


@pytest.mark.parametrize(
    "wrong", [{"rates": [1.5]}, {"rates": [-0.1]}, {"confidence": 1.0}, {"confidence": 0}, {"resamples": 0}]
)
def test_impossible_requests_are_refused(wrong):
    with pytest.raises(UsageError):
        tpr_at_fpr([1.0], [0.0], **wrong)


@pytest.mark.parametrize("metric", [auc, roc_curve, balanced_accuracy, tpr_at_fpr, auc_interval])
def test_every_metric_refuses_nan(metric):
    with pytest.raises(UsageError, match="nonmembers: 1 of 2"):
        metric([1.0], [0.0, np.nan])
