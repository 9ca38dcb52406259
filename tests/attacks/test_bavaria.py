"""BaVarIA against Bayes' rule by integration, and compared with LiRA with few and with many shadow models."""

import numpy as np
import pytest
from scipy.stats import invgamma, norm

from resperturb.attacks.bavaria import Prior, _log_predictive, bavaria, fit_prior
from resperturb.attacks.lira import lira_online
from resperturb.attacks.moments import Moments
from resperturb.bounds.metrics import auc
from resperturb.errors import UsageError


def moments_of(values: np.ndarray) -> Moments:
    """Of [models, rows] or [models, rows, dimensions]."""
    values = values[:, :, None] if values.ndim == 2 else values
    found = Moments.empty(values.shape[1], values.shape[2])
    for model in values:
        found.add(model, np.ones(values.shape[1], dtype=bool))
    return found


def test_the_prediction_is_the_integral_over_the_posterior() -> None:
    seen, prior = np.array([0.3, 1.1, 0.2]), Prior(*(np.array([x]) for x in (0.5, 0.7, 1.3, 4.0)))

    mean = np.linspace(-15, 15, 1501)[:, None]
    variance = np.geomspace(1e-3, 1e3, 1501)[None]
    about = norm.pdf(mean, 0.5, np.sqrt(variance / 0.7)) * invgamma.pdf(variance, 2.0, scale=2.0 * 1.3)

    def joint(*extra: float) -> float:
        likely = np.prod([norm.pdf(value, mean, np.sqrt(variance)) for value in (*seen, *extra)], axis=0)
        return float((likely * about * variance).sum())  # the grid is even in the logarithm of the variance

    expected = np.log(joint(1.7) / joint())
    found = _log_predictive(np.array([[1.7]]), moments_of(seen[:, None]), prior)[0]
    assert found == pytest.approx(expected, abs=1e-3)


def test_the_prior_is_found_again() -> None:
    rng, rows = np.random.default_rng(0), 20_000
    variance = invgamma.rvs(3.0, scale=3.0 * 2.0, size=rows, random_state=rng)
    means = rng.normal(1.0, 2.0, rows)
    prior = fit_prior(moments_of(rng.normal(means, np.sqrt(variance), (5, rows))))
    assert prior.freedom[0] == pytest.approx(6.0, rel=0.1)
    assert prior.variance[0] == pytest.approx(2.0, rel=0.05)
    assert prior.mean[0] == pytest.approx(1.0, abs=0.06)


def test_records_of_one_variance_get_one() -> None:
    rng = np.random.default_rng(1)
    prior = fit_prior(moments_of(rng.normal(0, 3, (4, 5000))))
    assert prior.freedom[0] > 50
    assert prior.variance[0] == pytest.approx(9.0, rel=0.05)


@pytest.mark.parametrize(("shadows", "beats"), [(4, ("record", "global")), (64, ("global",))])
def test_it_is_no_weaker_than_lira_with_few_shadows_and_with_many(shadows: int, beats: tuple[str, ...]) -> None:
    rng, rows = np.random.default_rng(2), 4000
    difficulty, lift = rng.normal(0, 3, rows), np.abs(rng.normal(0, 1.5, rows))
    deviation = np.sqrt(1 / rng.gamma(3, 1 / 3, rows))

    def model(member: np.ndarray) -> np.ndarray:
        return (difficulty + lift * member + rng.normal(0, deviation))[:, None]

    inside, outside = Moments.empty(rows, 1), Moments.empty(rows, 1)
    for _ in range(shadows // 2):
        member = rng.random(rows) < 0.5
        for chosen in (member, ~member):
            answers = model(chosen)
            inside.add(answers, chosen)
            outside.add(answers, ~chosen)
    target = rng.random(rows) < 0.5
    answers = model(target)
    found = bavaria(answers, inside, outside)
    for variance in beats:
        other = lira_online(answers, inside, outside, variance)  # type: ignore[arg-type]
        assert auc(found[target], found[~target]) > auc(other[target], other[~target])
    by_record = lira_online(answers, inside, outside, "record")
    assert auc(found[target], found[~target]) > auc(by_record[target], by_record[~target]) - 0.005


def test_one_signal_seen_twice_counts_once() -> None:
    rng, rows = np.random.default_rng(3), 400
    ins, outs, target = rng.normal(1, 1, (6, rows)), rng.normal(0, 1, (6, rows)), rng.normal(0, 1, rows)
    single = bavaria(target[:, None], moments_of(ins), moments_of(outs))

    def twice(values: np.ndarray) -> np.ndarray:
        return np.stack([values, values + rng.normal(0, 1e-3, values.shape)], axis=-1)

    double = bavaria(twice(target), moments_of(twice(ins)), moments_of(twice(outs)))
    # The second adds what its own noise says, which is nothing.
    assert np.corrcoef(single, double)[0, 1] > 0.6
    assert np.std(double) < 2 * np.std(single)


def test_no_variance_no_attack() -> None:
    one = moments_of(np.zeros((1, 5)))
    with pytest.raises(UsageError, match="train more shadows"):
        bavaria(np.zeros((5, 1)), one, one)
