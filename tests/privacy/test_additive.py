import math

import dp_accounting
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import norm

from resperturb.errors import UsageError
from resperturb.privacy.accounting import tail_delta
from resperturb.privacy.additive import additive_guarantee, calibrate_additive, exact_mu
from resperturb.privacy.gaussian import attack_tpr, epsilon_for_delta
from resperturb.privacy.length import training_length

SETTING = {"input_std": 0.25, "radius": 30, "delta": 1e-5}

noises = st.floats(-3, 6).map(lambda x: 10**x)
sizes = st.floats(-3, 3).map(lambda x: 10**x)
deltas = st.floats(-9, -0.1).map(lambda x: 10**x)
epochs = st.floats(0.01, 1000)


@given(noises, sizes, epochs, st.floats(-300, -0.1).map(lambda x: 10**x), st.floats(1.01, 10))
def test_the_bound_is_monotone_in_every_argument(input_std, size, epochs, delta, factor):
    def at(*, std=input_std, radius=size, time=epochs, delta=delta):
        length = training_length(epochs=time)
        return additive_guarantee(input_std=std, radius=radius, length=length, delta=delta).epsilon

    base = at() * (1 - 1e-9) - 1e-12
    assert at() >= 0
    assert at(std=input_std / factor) >= base
    assert at(radius=size * factor) >= base
    assert at(time=epochs * factor) >= base
    assert at(delta=delta / factor) >= base


def test_a_begun_epoch_is_counted_whole():
    begun, whole = (
        additive_guarantee(input_std=5, radius=1, length=training_length(epochs=time), delta=1e-5)
        for time in (1.01, 2)
    )
    assert begun.epsilon == whole.epsilon


@pytest.mark.parametrize("input_std", [20.0, 100.0])
def test_the_exact_bound_equals_dp_accounting_for_the_noised_images(input_std):
    radius, epochs = 3.0, 7
    event = dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(input_std / radius), epochs)
    accountant = dp_accounting.pld.PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE, 1e-3)
    by_distribution = accountant.compose(event).get_epsilon(1e-5)
    setting = {"input_std": input_std, "radius": radius, "delta": 1e-5}
    budget = additive_guarantee(**setting, length=training_length(epochs=epochs))
    assert budget.epsilon == pytest.approx(by_distribution, rel=2e-3)


def test_the_best_attack_on_noised_images_succeeds_as_often_as_the_exact_bound_allows():
    """Two opposite images on the ball; the attacker sees every noised copy and uses the likelihood ratio."""
    rng = np.random.default_rng(0)
    radius, input_std, epochs, trials, fpr = 1.5, 4.0, 5, 40_000, 0.05
    image = np.array([0.9, 0.0, -1.2])
    assert np.linalg.norm(image) == pytest.approx(radius)

    def score(truth):
        copies = truth + input_std * rng.standard_normal((trials, epochs, 3))
        return copies.sum(1) @ image

    threshold = np.quantile(score(-image), 1 - fpr)
    found = (score(image) > threshold).mean()
    allowed = attack_tpr(exact_mu(radius, input_std, epochs), fpr)
    # The threshold is itself a sample quantile: its error enters through the slope of the ROC curve.
    slope = norm.pdf(norm.ppf(allowed)) / norm.pdf(norm.ppf(fpr))
    error = math.sqrt((allowed * (1 - allowed) + slope**2 * fpr * (1 - fpr)) / trials)
    assert abs(found - allowed) < 4 * error


def test_an_ensemble_noises_each_image_once_for_every_network():
    five = additive_guarantee(**SETTING, length=training_length(epochs=20), networks=5)
    one = additive_guarantee(**SETTING, length=training_length(epochs=100))
    assert five.epsilon == one.epsilon


def test_no_input_noise_is_infinite():
    for delta in (1e-5, 1e-300):
        budget = additive_guarantee(input_std=0, radius=30, length=training_length(epochs=1), delta=delta)
        assert budget.epsilon == math.inf
        assert budget.level == "vacuous"
        assert budget.words.startswith("no guarantee: Additive noise: 0 on the input")
        assert "nan" not in str(budget.to_dict())


@given(st.floats(-6, 1).map(lambda x: 10**x), deltas, sizes, st.integers(1, 1000), st.integers(1, 5))
def test_calibration_gives_the_epsilon_back(epsilon, delta, radius, epochs, networks):
    run = training_length(epochs=epochs)
    found = calibrate_additive(epsilon=epsilon, delta=delta, length=run, radius=radius, networks=networks)
    assert not found.not_met
    assert found.epsilon <= epsilon * (1 + 1e-7) + 1e-12
    assume(epsilon > 1e-5 or delta < 0.1)  # a tiny epsilon with a large delta keeps fewer digits
    assert found.epsilon == pytest.approx(epsilon, rel=1e-4)


def test_missing_tails_are_paid_for_in_delta_or_nothing_is_claimed():
    run = training_length(epochs=100)
    weak = additive_guarantee(input_std=250, radius=30, length=run, delta=1e-5)
    exact = epsilon_for_delta(1e-5, exact_mu(30, 250, 100))
    assert 0 < weak.epsilon - exact < 1e-3 * exact
    assert epsilon_for_delta(1e-5 - tail_delta(weak.epsilon), exact_mu(30, 250, 100)) <= weak.epsilon
    assert weak.claimed_epsilon == weak.epsilon
    vacuous = additive_guarantee(**SETTING, length=run)
    assert vacuous.claimed_epsilon == math.inf
    assert vacuous.words.startswith(
        "no guarantee: Noise that is Gaussian to the end of its tails would give an epsilon"
    )
    assert "2,890,000" in vacuous.words
    with pytest.raises(UsageError, match="tails that computed noise does not have; ask for a smaller epsilon"):
        calibrate_additive(epsilon=50, delta=1e-5, length=run, radius=30)


def test_a_budget_states_what_it_protects_and_assumes():
    budget = additive_guarantee(input_std=300, radius=30, length=training_length(epochs=100), delta=1e-5)
    assert "NOT its label" in budget.protects
    assert budget.neighbours == "swap"
    assert {a.status for a in budget.assumptions} == {"assumed"}
    clipped = additive_guarantee(**SETTING, length=training_length(epochs=100), radius_status="enforced")
    assert [a.status for a in clipped.assumptions if "no larger one" in a.statement] == ["enforced"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"delta": 1.0}, "delta"),
        ({"delta": 0.0}, "delta"),
        ({"radius": -1}, "radius"),
        ({"input_std": math.nan}, "input std"),
        ({"input_std": -0.1}, "input std"),
        ({"networks": 0}, "networks"),
    ],
)
def test_impossible_arguments_are_refused_in_one_sentence(change, message):
    with pytest.raises(UsageError, match=message) as caught:
        additive_guarantee(**{**SETTING, "length": training_length(epochs=1), **change})
    assert "\n" not in str(caught.value)
