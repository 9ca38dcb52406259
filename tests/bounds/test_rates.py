import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import beta, norm

from resperturb.bounds import Confusion, Given, Ranks, clopper_pearson, gdp, one_run
from resperturb.errors import UsageError
from resperturb.privacy.gaussian import log_delta

METHODS = [clopper_pearson, gdp, one_run]

tied_scores = st.lists(st.sampled_from([-np.inf, -1.0, 0.0, 0.5, 2.0, np.inf]), min_size=1, max_size=40)
SEPARATED = (np.arange(300) + 400.0, np.arange(300) + 0.0)


def test_a_given_threshold_gives_the_textbook_bound():
    members, nonmembers = np.repeat([1.0, 0.0], [60, 40]), np.repeat([1.0, 0.0], [5, 95])
    bound = clopper_pearson(members, nonmembers, delta=0.01, confidence=0.9, thresholds=Given(1.0))
    tpr, fpr = beta.ppf(0.05, 60, 41), beta.ppf(0.95, 6, 95)
    assert bound.epsilon == pytest.approx(np.log((tpr - 0.01) / fpr), abs=1e-9)
    assert bound.counts == Confusion(tp=60, fp=5, members=100, nonmembers=100)
    assert (bound.threshold, bound.direction, bound.confidence, bound.delta) == (1.0, "accept", 0.9, 0.01)


def test_few_missed_members_bound_epsilon_by_rejecting():
    members, nonmembers = np.repeat([1.0, 0.0], [95, 5]), np.repeat([1.0, 0.0], [40, 60])
    bound = clopper_pearson(members, nonmembers, delta=0.01, confidence=0.9, thresholds=Given(1.0))
    tnr, fnr = beta.ppf(0.05, 60, 41), beta.ppf(0.95, 6, 95)
    assert bound.direction == "reject"
    assert bound.epsilon == pytest.approx(np.log((tnr - 0.01) / fnr), abs=1e-9)


@given(tied_scores, tied_scores)
def test_negating_the_scores_and_swapping_the_groups_swaps_the_directions(members, nonmembers):
    # A score that both sides have is put in an order of chance, another one for other scores.
    assume(not set(members) & set(nonmembers))
    forward = clopper_pearson(members, nonmembers)
    backward = clopper_pearson(-np.array(nonmembers), -np.array(members))
    assert forward.epsilon == pytest.approx(backward.epsilon, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(tied_scores, tied_scores)
def test_every_bound_is_defined_for_ties_infinities_and_unequal_sizes(members, nonmembers):
    for method in METHODS:
        bound = method(members, nonmembers)
        assert 0 <= bound.epsilon < np.inf
        assert bound.assumptions
        json.dumps(bound.to_dict())
        if bound.threshold is None or bound.epsilon == 0:
            continue
        # What a strictly increasing map does to the scores is nothing to their order.
        ranks = np.unique(np.concatenate([members, nonmembers]), return_inverse=True)[1]
        again = method(ranks[: len(members)], ranks[len(members) :])
        assert again.epsilon == pytest.approx(bound.epsilon, abs=1e-9)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("members", "nonmembers"),
    [
        ([1.0], [0.0]),
        ([1.0] * 200, [1.0] * 200),
        ([np.inf] * 200, [np.inf] * 200),
        ([-np.inf] * 3, [-np.inf] * 500),
        ([1.0], np.linspace(-1, 0.5, 20)),
    ],
)
def test_one_canary_or_constant_scores_show_nothing(method, members, nonmembers):
    assert method(members, nonmembers).epsilon == 0


@pytest.mark.parametrize("method", METHODS)
def test_infinite_scores_separate_as_well_as_finite_ones(method):
    finite = method(np.ones(200), np.zeros(200))
    infinite = method(np.full(200, np.inf), np.full(200, -np.inf))
    assert infinite.epsilon == pytest.approx(finite.epsilon)
    assert finite.epsilon > 1


@pytest.mark.parametrize("method", METHODS)
def test_more_confidence_claims_less(method):
    sure, surer = (method(*SEPARATED, confidence=c).epsilon for c in (0.9, 0.999))
    assert 0 < surer < sure


@pytest.mark.parametrize("method", METHODS)
def test_nan_is_refused_with_the_array_and_the_count(method):
    with pytest.raises(UsageError, match="members: 1 of 2 scores are NaN"):
        method([1.0, np.nan], [0.0])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("wrong", [{"delta": -0.1}, {"delta": 1.0}, {"confidence": 0.0}, {"confidence": 1.0}])
def test_impossible_deltas_and_confidences_are_refused(method, wrong):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        method(*SEPARATED, **wrong)


def test_a_result_cannot_be_edited():
    with pytest.raises(dataclasses.FrozenInstanceError):
        clopper_pearson(*SEPARATED).epsilon = 100.0


def test_the_gaussian_bound_is_the_epsilon_of_the_largest_refuted_mu():
    members, nonmembers = np.repeat([1.0, 0.0], [60, 40]), np.repeat([1.0, 0.0], [5, 95])
    bound = gdp(members, nonmembers, delta=1e-3, confidence=0.9, thresholds=Given(1.0))
    tpr, fpr = beta.ppf(0.05, 60, 41), beta.ppf(0.95, 6, 95)
    assert bound.mu == pytest.approx(norm.ppf(tpr) - norm.ppf(fpr), abs=1e-9)
    assert log_delta(bound.epsilon, bound.mu) == pytest.approx(math.log(1e-3), rel=1e-9)
    assert any("Gaussian" in line for line in bound.assumptions)


def test_useless_thresholds_do_not_count_as_a_shift_the_other_way():
    # With ten scores nearly all limits lie above one half; their distance from it is ignorance, not a signal.
    scores = np.arange(10.0)
    assert gdp(scores, scores).epsilon == 0


def test_a_gaussian_bound_has_no_epsilon_at_delta_zero():
    with pytest.raises(UsageError, match="delta must be above 0"):
        gdp(*SEPARATED, delta=0.0)


@pytest.mark.parametrize("thresholds", [Given(350.0), Ranks()])
def test_every_choice_of_thresholds_is_described(thresholds):
    bound = clopper_pearson(*SEPARATED, thresholds=thresholds)
    assert bound.epsilon > 2
    assert bound.to_dict()["selection"] == bound.selection == thresholds.words


@pytest.mark.parametrize("wrong", [lambda: Given(np.nan), lambda: gdp(*SEPARATED, thresholds=350.0)])
def test_impossible_thresholds_are_refused(wrong):
    with pytest.raises(UsageError, match="threshold"):
        wrong()
