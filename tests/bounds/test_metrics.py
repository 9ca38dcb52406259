import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from resperturb.bounds import (
    attack_metrics,
    auc,
    balanced_accuracy,
    binomial_interval,
    roc_curve,
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
def test_the_true_positive_rate_is_the_best_that_any_threshold_allows(members, nonmembers, rate):
    [found] = attack_metrics(members, nonmembers, rates=[rate]).tpr_at_fpr
    curve = roc_curve(members, nonmembers)
    assert found.tpr == curve.tpr[curve.fpr <= rate + 1e-12].max()


def test_a_rate_that_is_a_whole_number_of_records_allows_that_many():
    # 0.29 * 100 is a little below 29 in floating point, and 29 non-members score 71 or more.
    [found] = attack_metrics(np.full(10, 71.0), np.arange(100.0), rates=[0.29]).tpr_at_fpr
    assert found.tpr == 1


def test_constant_scores_show_nothing():
    found = attack_metrics([1.0] * 5, [1.0] * 9)
    assert [(at.tpr, at.tied) for at in found.tpr_at_fpr] == [(0, True)] * 4
    assert found.auc == found.balanced_accuracy == 0.5


def test_one_record_on_each_side_is_enough():
    [at_zero, *_] = attack_metrics([2.0], [1.0]).tpr_at_fpr
    assert at_zero.tpr == 1
    assert at_zero.interval.low == pytest.approx(0.025)


@given(tied_scores, tied_scores)
def test_balanced_accuracy_is_best_over_all_thresholds(members, nonmembers):
    values = [*members, *nonmembers]
    best = max(balanced_accuracy(members, nonmembers, threshold=t) for t in values)
    assert balanced_accuracy(members, nonmembers) == pytest.approx(max(best, 0.5))


def test_the_binomial_interval_covers_at_least_as_often_as_it_says():
    rng = np.random.default_rng(1)
    for rate in (0.003, 0.1, 0.5):
        drawn = rng.binomial(40, rate, 2000)
        ends = {int(k): binomial_interval(int(k), 40, 0.9) for k in np.unique(drawn)}
        covered = sum(ends[int(k)].low <= rate <= ends[int(k)].high for k in drawn)
        assert covered >= 0.9 * 2000 - 3 * np.sqrt(2000 * 0.09)


def test_more_confidence_gives_a_wider_interval():
    rng = np.random.default_rng(4)
    members, nonmembers = rng.normal(1, 1, 50), rng.normal(0, 1, 60)
    narrow, wide = (attack_metrics(members, nonmembers, confidence=c).auc_interval for c in (0.5, 0.99))
    assert wide.low < narrow.low < auc(members, nonmembers) < narrow.high < wide.high


@pytest.mark.parametrize("wrong", [{"rates": [1.5]}, {"rates": [-0.1]}, {"confidence": 1.0}, {"confidence": 0}])
def test_impossible_requests_are_refused(wrong):
    with pytest.raises(UsageError):
        attack_metrics([1.0], [0.0], **wrong)


@pytest.mark.parametrize("metric", [auc, roc_curve, balanced_accuracy, attack_metrics])
def test_every_metric_refuses_nan(metric):
    with pytest.raises(UsageError, match="nonmembers: 1 of 2"):
        metric([1.0], [0.0, np.nan])
