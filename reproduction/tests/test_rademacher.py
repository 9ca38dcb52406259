import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from resperturb_reproduction.rademacher import generalisation_bound, noise_ratio, rademacher, signed_sum
from scipy.linalg import expm

from resperturb.errors import UsageError


def enumerated(inputs, power):
    rows = np.sign(inputs) * np.abs(inputs) ** power
    signs = itertools.product((-1, 1), repeat=len(rows))
    return np.mean([np.linalg.norm(np.array(s) @ rows) for s in signs])


@settings(max_examples=25)
@given(st.integers(1, 12), st.integers(1, 3), st.floats(0.05, 0.95), st.integers(0, 2**32))
def test_the_mean_over_signs_is_the_mean_over_all_signs(records, features, power, seed):
    inputs = np.random.default_rng(seed).normal(size=(records, features))
    found = signed_sum(inputs, power)
    assert found.mean == pytest.approx(enumerated(inputs, power))
    assert (found.standard_error, found.draws) == (0.0, None)


def test_sampled_signs_agree_with_all_signs_within_their_standard_error():
    inputs = np.random.default_rng(1).normal(size=(17, 5))
    found = signed_sum(inputs, 0.5, draws=4000, seed=3)
    assert found.draws == 4000
    assert 0 < found.standard_error < 0.02 * found.mean
    assert abs(found.mean - enumerated(inputs, 0.5)) < 4 * found.standard_error


def test_images_are_flattened_and_bytes_are_numbers():
    images = np.random.default_rng(0).integers(0, 256, (6, 4, 4, 3), dtype=np.uint8)
    assert signed_sum(images, 0.5).mean == pytest.approx(signed_sum(images.reshape(6, -1).astype(float), 0.5).mean)


def test_the_complexity_is_the_supremum_over_the_class_for_one_feature():
    """F by brute force: the best weight and the best rate on a grid, for every sign vector."""
    inputs, power, time, norm = np.array([0.3, -1.2, 2.0, 0.7]), 0.5, 1.3, 0.8
    features = np.sign(inputs) * np.abs(inputs) ** power
    grid = np.linspace(-norm, norm, 81)
    best = [
        max(w * math.exp(u * time * power) * (np.array(s) @ features) for w in grid for u in grid)
        for s in itertools.product((-1, 1), repeat=4)
    ]
    found = rademacher(inputs[:, None], [], power=power, time=time, norm=norm)
    assert found.classes[0].complexity == pytest.approx(np.mean(best) / 4)


def test_the_noise_shrinks_every_feature_by_the_ratio_whatever_mixes_them():
    """The stochastic flow itself, for a U that mixes its features."""
    rng = np.random.default_rng(0)
    gamma, power, time, draws = 0.8, 0.4, 1.5, 200_000
    flow = expm(np.array([[0.3, 0.5], [0.5, 0.3]]) * time)
    start = np.array([1.0, 0.2])
    brownian = math.sqrt(time) * rng.standard_normal(draws)
    ends = np.exp(-(gamma**2) * time / 2 + gamma * brownian)[:, None] * (flow @ start)
    powers = ends**power
    found = powers.mean(0) / (flow @ start) ** power
    error = powers.std(0) / math.sqrt(draws) / (flow @ start) ** power
    assert (np.abs(found - noise_ratio(gamma, power, time)) < 4 * error).all()


def test_the_printed_value_is_only_a_lower_bound_once_features_mix():
    """The counterexample of docs/theory.md."""
    printed = rademacher([[1.0, 0.0]], [], power=1 / 3).classes[0].complexity
    mixed = expm(np.array([[0.0, 1.0], [1.0, 0.0]])) @ [1.0, 0.0]  # circulant, of norm 1
    assert printed == pytest.approx(1.396, abs=1e-3)
    assert np.linalg.norm(mixed ** (1 / 3)) == pytest.approx(1.565, abs=1e-3)


def test_complexity_ratio_and_gap_fall_in_gamma():
    inputs = np.random.default_rng(0).normal(size=(8, 3))
    result = rademacher(inputs, [0.5, 1.0, 2.0, 8.0])
    rows = result.classes
    for before, after in itertools.pairwise(rows):
        assert after.ratio < before.ratio
        assert after.complexity < before.complexity
        assert after.gap < before.gap
        assert after.complexity == pytest.approx(after.ratio * rows[0].complexity)


def test_the_gap_is_the_textbook_bound_and_the_printed_one_multiplies_by_the_loss():
    result = rademacher(np.eye(4), [1.0], loss_bound=3.0, lipschitz=2.0, delta=0.1)
    row = result.classes[1]
    slack = 3 * 3.0 * math.sqrt(math.log(2 / 0.1) / 8)
    assert row.gap == pytest.approx(2 * 2.0 * row.complexity + slack)
    assert row.gap_printed == pytest.approx(2 * 3.0 * 2.0 * row.complexity + slack)
    assert generalisation_bound(0.0, 4, 2.0, 3.0, 0.1) == pytest.approx(slack)


def test_the_verdict_is_vacuous_when_the_loss_bound_says_as_much():
    assert rademacher(np.eye(4), [1.0]).meaning.startswith("vacuous: ")
    small = np.full((5000, 1), 1e-4)
    assert rademacher(small, [1.0], draws=10).meaning.startswith("meaningful: ")


def test_extremes_are_never_nan():
    for inputs, gamma, norm in ((np.zeros((3, 2)), 1.0, 1e3), (np.eye(2), 1e200, 1.0), (np.eye(2), 1.0, 1e200)):
        result = rademacher(inputs, [gamma], norm=norm)
        assert "nan" not in str(result)
    assert rademacher(np.eye(2), [1e200]).classes[1].complexity == 0
    assert rademacher(np.zeros((3, 2)), [1.0]).classes[0].complexity == 0


@pytest.mark.parametrize(
    ("inputs", "change", "message"),
    [
        ([], {}, "one row for each record"),
        (["a", "b"], {}, "one row for each record"),
        ([[math.nan]], {}, "finite"),
        ([[1.0]], {"power": 1.0}, "power"),
        ([[1.0]], {"time": 0.0}, "time"),
        ([[1.0]], {"norm": -1.0}, "norm"),
        ([[1.0]], {"delta": 1.0}, "delta"),
        (np.eye(20), {"draws": 1}, "draws"),
    ],
)
def test_what_cannot_be_is_refused(inputs, change, message):
    with pytest.raises(UsageError, match=message):
        rademacher(inputs, [1.0], **change)
