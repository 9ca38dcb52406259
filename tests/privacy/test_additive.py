import math

import dp_accounting
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import norm

from resperturb.errors import UsageError
from resperturb.privacy.additive import (
    additive_guarantee,
    calibrate_additive,
    exact_mu,
    theorem1,
    theorem1_noise,
)
from resperturb.privacy.gaussian import attack_tpr
from resperturb.privacy.length import training_length

SETTING = {"gamma": 0.5, "input_std": 0.25, "radius": 30, "bound": 30, "delta": 1e-5}

noises = st.floats(-3, 6).map(lambda x: 10**x)
sizes = st.floats(-3, 3).map(lambda x: 10**x)
deltas = st.floats(-300, -0.1).map(lambda x: 10**x)
epochs = st.floats(0.01, 1000)


def conditions_hold(epsilon, lam, *, gamma, input_std, radius, bound, epochs, delta):
    """Theorem 1's two conditions, as the paper prints them."""
    alpha = math.log(1 / delta) / ((1 - lam) * epsilon) + 1
    scale = math.sqrt(2 * epochs * alpha / (lam * epsilon))
    return input_std >= radius * scale and gamma >= bound * scale


@given(noises, noises, sizes, sizes, epochs, deltas, st.floats(0.01, 0.99))
def test_theorem1_at_a_given_lambda_is_where_the_printed_conditions_begin_to_hold(
    gamma, input_std, radius, bound, epochs, delta, lam
):
    setting = {"gamma": gamma, "input_std": input_std, "radius": radius, "bound": bound}
    setting |= {"epochs": epochs, "delta": delta}
    epsilon = theorem1(**setting, lam=lam).epsilon
    assert conditions_hold(epsilon * (1 + 1e-9), lam, **setting)
    assert not conditions_hold(epsilon * (1 - 1e-9), lam, **setting)


@given(noises, noises, sizes, sizes, epochs, deltas)
def test_the_best_lambda_is_the_best_by_brute_force(gamma, input_std, radius, bound, epochs, delta):
    setting = {"gamma": gamma, "input_std": input_std, "radius": radius, "bound": bound}
    setting |= {"epochs": epochs, "delta": delta}
    best = theorem1(**setting)

    def at(logit):
        return math.log(theorem1(**setting, lam=1 / (1 + math.exp(-logit))).epsilon)

    brute = math.exp(minimize_scalar(at, bounds=(-20, 20), method="bounded", options={"xatol": 1e-9}).fun)
    assert best.epsilon <= brute * (1 + 1e-9)
    assert best.epsilon == pytest.approx(brute, rel=1e-6)
    assert theorem1(**setting, lam=best.lam).epsilon == pytest.approx(best.epsilon, rel=1e-9)


def test_theorem1_reports_the_condition_that_binds():
    base = {"radius": 30, "bound": 30, "epochs": 100, "delta": 1e-5}
    assert theorem1(gamma=0.5, input_std=0.25, **base).binds == "input_std"
    assert theorem1(gamma=0.1, input_std=0.25, **base).binds == "gamma"
    assert theorem1(gamma=0.25, input_std=0.25, **base).binds == "both"
    result = theorem1(gamma=0.5, input_std=0.25, **base)
    assert result.epsilon == result.epsilon_from_input > result.epsilon_from_blocks


def test_the_budgets_of_the_layers_are_the_printed_ones():
    result = theorem1(epochs=100, **SETTING, lam=0.25)
    first, second, last = result.layers(2)
    assert first == pytest.approx(result.epsilon)
    assert second == pytest.approx((0.25 / 2 + 0.75) * result.epsilon)
    assert last == pytest.approx((0.25 / 3 + 0.75) * result.epsilon)


@given(st.floats(-6, 7).map(lambda x: 10**x), deltas, sizes, sizes, epochs, st.none() | st.floats(0.01, 0.99))
def test_theorem1_noise_gives_the_epsilon_back_and_both_conditions_bind(epsilon, delta, radius, bound, epochs, lam):
    gamma, input_std = theorem1_noise(
        epsilon=epsilon, delta=delta, radius=radius, bound=bound, epochs=epochs, lam=lam
    )
    back = theorem1(gamma=gamma, input_std=input_std, radius=radius, bound=bound, epochs=epochs, delta=delta, lam=lam)
    assert back.epsilon == pytest.approx(epsilon, rel=1e-6)
    assert back.epsilon_from_input == pytest.approx(back.epsilon_from_blocks, rel=1e-9)


@given(noises, sizes, epochs, deltas, st.floats(1.01, 10))
def test_both_bounds_are_monotone_in_every_argument(input_std, size, epochs, delta, factor):
    def at(*, gamma=2 * input_std, std=input_std, radius=size, bound=size, time=epochs, delta=delta):
        budget = additive_guarantee(
            gamma=gamma, input_std=std, radius=radius, bound=bound, length=training_length(epochs=time), delta=delta
        )
        assert budget.epsilon >= 0
        return np.array([budget.epsilon_exact, budget.epsilon_theorem])

    base = at() * (1 - 1e-9)
    tiny = 1e-12
    assert (at(std=input_std / factor) >= base - tiny).all()
    assert (at(gamma=2 * input_std / factor) >= base - tiny).all()
    assert (at(radius=size * factor) >= base - tiny).all()
    assert (at(bound=size * factor) >= base - tiny).all()
    assert (at(time=epochs * factor) >= base - tiny).all()
    assert (at(delta=delta / factor) >= base - tiny).all()


@given(noises, sizes, st.integers(1, 1000), deltas)
def test_at_whole_epochs_the_exact_bound_is_never_above_the_theorem(input_std, radius, epochs, delta):
    setting = {"gamma": input_std, "input_std": input_std, "radius": radius, "delta": delta}
    budget = additive_guarantee(**setting, length=training_length(epochs=epochs))
    assert budget.epsilon == budget.epsilon_exact <= budget.epsilon_theorem * (1 + 1e-9)


def test_a_begun_epoch_is_counted_whole_and_the_theorem_then_disowned():
    budget = additive_guarantee(gamma=10, radius=1, length=training_length(epochs=1.01), delta=1e-5)
    assert (
        budget.epsilon == additive_guarantee(gamma=10, radius=1, length=training_length(epochs=2), delta=1e-5).epsilon
    )
    big = additive_guarantee(gamma=0.1, radius=30, length=training_length(epochs=1.01), delta=1e-5)
    assert big.epsilon_theorem < big.epsilon
    assert "not to be claimed" in str(big)


@pytest.mark.parametrize("input_std", [20.0, 100.0])
def test_the_exact_bound_is_what_dp_accounting_finds_for_the_noised_images(input_std):
    radius, epochs = 3.0, 7
    event = dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(input_std / radius), epochs)
    accountant = dp_accounting.pld.PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE, 1e-3)
    by_distribution = accountant.compose(event).get_epsilon(1e-5)
    setting = {"gamma": 1, "input_std": input_std, "radius": radius, "delta": 1e-5}
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
    assert (five.epsilon, five.epsilon_theorem) == (one.epsilon, one.epsilon_theorem)


def test_gamma_adds_nothing_to_the_exact_bound():
    some, more = (
        additive_guarantee(**{**SETTING, "gamma": g}, length=training_length(epochs=100)) for g in (0.5, 50)
    )
    assert some.epsilon == more.epsilon
    assert some.epsilon_theorem == more.epsilon_theorem  # the input noise binds in both


def test_the_input_noise_is_half_of_gamma_and_the_bound_is_the_radius_unless_given():
    budget = additive_guarantee(gamma=0.5, radius=30, length=training_length(epochs=100), delta=1e-5)
    assert (budget.input_std, budget.bound) == (0.25, 30)
    assert budget.epsilon == additive_guarantee(**SETTING, length=training_length(epochs=100)).epsilon


@pytest.mark.parametrize(("gamma", "input_std"), [(0.0, None), (1.0, 0.0)])
def test_no_input_noise_is_infinite(gamma, input_std):
    budget = additive_guarantee(
        gamma=gamma, input_std=input_std, radius=30, length=training_length(epochs=1), delta=1e-300
    )
    assert budget.epsilon == budget.epsilon_theorem == math.inf
    assert budget.level == "vacuous"
    assert "nan" not in str(budget.to_dict())


def test_no_block_noise_voids_the_theorem_only():
    budget = additive_guarantee(gamma=0, input_std=100, radius=1, length=training_length(epochs=1), delta=1e-5)
    assert budget.epsilon_theorem == math.inf
    assert budget.epsilon < 1


@given(st.floats(-6, 7).map(lambda x: 10**x), deltas, sizes, st.integers(1, 1000), st.integers(1, 5))
def test_calibration_gives_the_epsilon_back(epsilon, delta, radius, epochs, networks):
    run = training_length(epochs=epochs)
    found = calibrate_additive(epsilon=epsilon, delta=delta, length=run, radius=radius, networks=networks)
    again = additive_guarantee(
        gamma=found.gamma, input_std=found.input_std, radius=radius, length=run, delta=delta, networks=networks
    )
    assume(epsilon > 1e-5 or delta < 0.1)  # a tiny epsilon beside a large delta keeps fewer digits
    assert again.epsilon == pytest.approx(epsilon, rel=1e-7)
    assert found.gamma == 2 * found.input_std


def test_a_budget_says_what_it_protects_and_what_it_assumes():
    budget = additive_guarantee(**SETTING, length=training_length(epochs=100))
    assert "NOT its label" in budget.protects
    assert budget.neighbours == "swap"
    assert {a.status for a in budget.assumptions} == {"assumed"}
    theorem = [a.statement for a in budget.assumptions if a.needed_by == "Theorem 1"]
    assert any("not true in general" in statement for statement in theorem)
    clipped = additive_guarantee(**SETTING, length=training_length(epochs=100), radius_status="enforced")
    assert [a.status for a in clipped.assumptions if "no larger one" in a.statement] == ["enforced"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"delta": 1.0}, "delta"),
        ({"delta": 0.0}, "delta"),
        ({"radius": -1}, "radius"),
        ({"gamma": math.nan}, "gamma"),
        ({"input_std": -0.1}, "input std"),
        ({"bound": math.inf}, "bound"),
        ({"networks": 0}, "networks"),
        ({"lam": 1.0}, "lambda"),
        ({"blocks": 0}, "blocks"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(change, message):
    with pytest.raises(UsageError, match=message) as caught:
        additive_guarantee(**{**SETTING, "length": training_length(epochs=1), **change})
    assert "\n" not in str(caught.value)
