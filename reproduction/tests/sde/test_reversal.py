import json
import math

import numpy as np
import pytest
from resperturb_reproduction.sde.reversal import ATTACKERS, blind_guess, psnr, relative_l2, run_reversal

from resperturb.cli.output import plain
from resperturb.errors import UsageError


@pytest.fixture(scope="module")
def image():
    rows, cols = np.mgrid[0:24, 0:30]
    return np.stack([rows / 24, cols / 30, (rows + cols) % 7 / 7], axis=2)


@pytest.mark.parametrize("strategy", ["additive", "multiplicative"])
def test_each_attacker_does_better_than_the_papers(image, strategy):
    result = run_reversal(image, strategy, gamma=1.0)
    error = {name: found.relative_l2 for name, found in result.recoveries.items()}
    assert list(error) == list(ATTACKERS)
    assert error["known_noise"] < 1e-9
    assert error["known_noise"] < error["ode"] < error["averaged"] < error["noise_free"] < error["paper"]


def test_averaging_shrinks_the_additive_noise_by_the_root_of_the_queries(image):
    result = run_reversal(image, "additive", gamma=1.0, queries=16)
    one, many = result.recoveries["noise_free"].relative_l2, result.recoveries["averaged"].relative_l2
    # 2160 values: each error is known to a few percent.
    assert many == pytest.approx(one / 4, rel=0.1)


def test_the_ode_comes_back_up_to_dt(image):
    assert run_reversal(image, "additive", dt=0.01, queries=1).recoveries["ode"].relative_l2 < 0.011
    assert run_reversal(image, "additive", dt=0.001, queries=1).recoveries["ode"].relative_l2 < 0.0011


def test_the_seed_decides_everything(image):
    first, again, other = (run_reversal(image, "additive", seed=seed, queries=2) for seed in (3, 3, 4))
    for name in ("paper", "averaged"):
        assert np.array_equal(first.recoveries[name].image, again.recoveries[name].image)
        assert not np.array_equal(first.recoveries[name].image, other.recoveries[name].image)


def test_additive_gamma_is_tied_to_the_scale_and_multiplicative_is_not(image):
    quarter = image / 4
    full = run_reversal(image, "additive", gamma=0.8, dt=0.1, queries=1).recoveries["paper"].relative_l2
    scaled = run_reversal(quarter, "additive", gamma=0.2, dt=0.1, queries=1).recoveries["paper"].relative_l2
    assert scaled == pytest.approx(full)
    full = run_reversal(image, "multiplicative", gamma=0.8, dt=0.1, queries=1).recoveries["paper"].relative_l2
    scaled = run_reversal(quarter, "multiplicative", gamma=0.8, dt=0.1, queries=1).recoveries["paper"].relative_l2
    assert scaled == pytest.approx(full)


def test_the_summary_is_json_with_its_settings(image):
    run = json.loads(json.dumps(plain(run_reversal(image, "additive", dt=0.1, queries=2).summary())))
    assert run["image"] == {"rows": 24, "cols": 30, "channels": 3, "scale": "[0, 1]"}
    assert (run["gamma"], run["dt"], run["seed"], run["queries_averaged"]) == (1.0, 0.1, 0, 2)
    assert set(run["errors"]) == set(ATTACKERS)


def test_measures():
    original = np.array([[[0.6], [0.8]]])
    assert relative_l2(original * 1.1, original) == pytest.approx(0.1)
    assert psnr(original + 0.01, original) == pytest.approx(40.0)
    assert psnr(original, original) == math.inf
    assert blind_guess(original) == pytest.approx(0.7)


def test_what_overflows_is_refused_and_not_reported(image):
    with pytest.raises(UsageError, match="overflowed with gamma = 1e\\+06"):
        run_reversal(image, "multiplicative", gamma=1e6)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (np.zeros((4, 4, 3)), "black"),
        (np.full((4, 4, 3), 200.0), r"\[0, 1\]"),
        (np.full((4, 4, 3), np.nan), r"\[0, 1\]"),
        (np.ones((4, 4)), "rows, columns, channels"),
        (np.ones((0, 4, 3)), "rows, columns, channels"),
    ],
)
def test_what_is_no_image_is_refused(wrong, message):
    with pytest.raises(UsageError, match=message):
        run_reversal(wrong, "additive")


def test_an_unknown_strategy_names_the_known_ones(image):
    with pytest.raises(UsageError, match="additive or multiplicative"):
        run_reversal(image, "both")


def test_no_queries_are_refused(image):
    with pytest.raises(UsageError, match="queries"):
        run_reversal(image, "additive", queries=0)
