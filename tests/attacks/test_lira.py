"""LiRA against scipy's densities, and against the known result for normal models."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from resperturb.attacks.lira import lira_offline, lira_online, separation
from resperturb.attacks.moments import Moments
from resperturb.bounds.metrics import auc
from resperturb.errors import UsageError

ROWS = 40


def moments(shift: float, dimensions: int = 1, models: int = 6, seed: int = 0) -> tuple[Moments, np.ndarray]:
    values = np.random.default_rng(seed).normal(shift, 1.5, (models, ROWS, dimensions))
    found = Moments.empty(ROWS, dimensions)
    for model in values:
        found.add(model, np.ones(ROWS, dtype=bool))
    return found, values


def test_online_is_the_log_ratio_of_the_two_normal_densities() -> None:
    inside, ins = moments(1.0, seed=1)
    outside, outs = moments(0.0, seed=2)
    target = np.random.default_rng(3).normal(size=(ROWS, 1))
    for variance in ("record", "global"):
        scores = lira_online(target, inside, outside, variance)  # type: ignore[arg-type]
        for row in range(ROWS):
            logs = []
            for values in (ins, outs):
                own = values[:, row, 0]
                every = (values - values.mean(axis=0))[:, :, 0]
                spread = own.var(ddof=1) if variance == "record" else (every**2).sum() / (5 * ROWS)
                logs.append(norm.logpdf(target[row, 0], own.mean(), np.sqrt(spread)))
            assert scores[row] == pytest.approx(logs[0] - logs[1], rel=1e-4, abs=1e-4)


def test_several_dimensions_use_the_whole_covariance_if_it_is_global() -> None:
    inside, ins = moments(1.0, dimensions=2, seed=1)
    outside, outs = moments(0.0, dimensions=2, seed=2)
    target = np.random.default_rng(3).normal(size=(ROWS, 2))
    scores = lira_online(target, inside, outside, "global")
    expected = np.zeros(ROWS)
    for sign, values in ((1, ins), (-1, outs)):
        away = (values - values.mean(axis=0)).reshape(-1, 2)
        covariance = away.T @ away / (5 * ROWS)
        for row in range(ROWS):
            density = multivariate_normal(values[:, row].mean(axis=0), covariance)
            expected[row] += sign * density.logpdf(target[row])
    assert np.allclose(scores, expected, atol=1e-4)


def test_offline_by_the_tail_is_how_improbable_so_much_confidence_is() -> None:
    outside, outs = moments(0.0)
    target = np.linspace(-3, 30, ROWS)[:, None]
    scores = lira_offline(target, outside)
    mean, deviation = outs[:, :, 0].mean(axis=0), outs[:, :, 0].std(axis=0, ddof=1)
    assert np.allclose(scores, -norm.logsf(target[:, 0], mean, deviation))
    assert np.isfinite(scores).all()


def test_offline_by_the_density_measures_deviation_in_either_direction() -> None:
    outside, _ = moments(0.0)
    near, high, low = (lira_offline(outside.mean + away, outside, form="density") for away in (0.0, 9.0, -9.0))
    assert np.allclose(high, low)
    assert (high > near).all()


def test_members_are_found_as_well_as_two_normals_can_be_distinguished() -> None:
    rng = np.random.default_rng(0)
    rows, distance = 4000, 1.5
    difficulty = rng.normal(0, 5, rows)
    inside, outside = Moments.empty(rows, 1), Moments.empty(rows, 1)
    everybody = np.ones(rows, dtype=bool)
    for _ in range(64):
        inside.add((difficulty + distance + rng.normal(size=rows))[:, None], everybody)
        outside.add((difficulty + rng.normal(size=rows))[:, None], everybody)
    member = rng.random(rows) < 0.5
    target = (difficulty + distance * member + rng.normal(size=rows))[:, None]
    best = norm.cdf(distance / np.sqrt(2))
    for scores in (
        lira_online(target, inside, outside),
        lira_online(target, inside, outside, "global"),
        lira_offline(target, outside),
    ):
        # The standard error of this AUC is about 0.006; 64 models cost a little.
        assert auc(scores[member], scores[~member]) == pytest.approx(best, abs=0.025)
    assert auc(target[member, 0], target[~member, 0]) < 0.65


def test_the_most_exposed_are_those_whose_mean_is_raised_most() -> None:
    inside, outside = Moments.empty(ROWS, 1), Moments.empty(ROWS, 1)
    rng = np.random.default_rng(0)
    shift = np.arange(ROWS, dtype=float)[:, None] - ROWS / 2  # that being in lowers it is chance
    for _ in range(8):
        inside.add(shift + rng.normal(0, 0.1, (ROWS, 1)), np.ones(ROWS, dtype=bool))
        outside.add(rng.normal(0, 0.1, (ROWS, 1)), np.ones(ROWS, dtype=bool))
    assert np.argsort(separation(inside, outside)).tolist() == list(range(ROWS))


def test_too_few_models_are_refused() -> None:
    one, _ = moments(0.0, models=1)
    with pytest.raises(UsageError, match="train more shadows"):
        lira_offline(np.zeros((ROWS, 1)), one)
    with pytest.raises(UsageError, match="density form"):
        lira_offline(np.zeros((ROWS, 2)), moments(0.0, dimensions=2)[0])


def test_a_model_with_constant_predictions_has_finite_scores() -> None:
    constant = Moments.empty(ROWS, 1)
    for _ in range(4):
        constant.add(np.full((ROWS, 1), 2.0), np.ones(ROWS, dtype=bool))
    assert np.isfinite(lira_online(np.full((ROWS, 1), 3.0), constant, constant)).all()
