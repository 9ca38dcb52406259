"""RMIA against its definition, record by record of the population."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from resperturb.attacks.rmia import offline_average, online_average, rmia
from resperturb.errors import UsageError


@given(seed=st.integers(0, 10_000), gamma=st.sampled_from([1.0, 2.0]))
def test_the_score_is_the_share_of_the_population_that_are_beaten(seed: int, gamma: float) -> None:
    rng = np.random.default_rng(seed)
    target, typical = rng.random(30), rng.random(30)
    others, others_typical = rng.random(50), rng.random(50)
    scores = rmia(target, typical, others, others_typical, gamma)
    for row in range(30):
        beaten = sum(
            (target[row] / typical[row]) / (p / average) >= gamma
            for p, average in zip(others, others_typical, strict=True)
        )
        assert beaten / 51 <= scores[row] < (beaten + 1) / 51


@given(seed=st.integers(0, 10_000))
def test_a_higher_ratio_never_scores_lower(seed: int) -> None:
    rng = np.random.default_rng(seed)
    target, typical = rng.random(30), rng.random(30)
    scores = rmia(target, typical, rng.random(5), rng.random(5))
    assert (np.diff(scores[np.argsort(target / typical)]) >= 0).all()


def test_records_that_beat_the_whole_population_still_differ() -> None:
    scores = rmia(np.array([0.9, 0.99]), np.array([0.01, 0.01]), np.full(3, 0.1), np.full(3, 0.9))
    assert scores[1] > scores[0] > 0.75


def test_probabilities_of_zero_do_no_harm() -> None:
    assert np.isfinite(rmia(np.zeros(2), np.zeros(2), np.zeros(2), np.zeros(2))).all()


def test_averages() -> None:
    outside = np.array([0.2, 1.0])
    assert online_average(np.array([0.8, 1.0]), outside).tolist() == pytest.approx([0.5, 1.0])
    # a = 1: members look like non-members; a = 0: members are certain.
    assert offline_average(outside, a=1.0).tolist() == pytest.approx([0.2, 1.0])
    assert offline_average(outside, a=0.0).tolist() == pytest.approx([0.6, 1.0])


def test_senseless_arguments_are_refused() -> None:
    some = np.array([0.5])
    with pytest.raises(UsageError, match="gamma"):
        rmia(some, some, some, some, gamma=0.5)
    with pytest.raises(UsageError, match="population"):
        rmia(some, some, np.array([]), np.array([]))
    with pytest.raises(UsageError, match="between 0 and 1"):
        offline_average(some, a=1.5)
