import math

import dp_accounting
import pytest

from resperturb.errors import UsageError
from resperturb.privacy.dpsgd import calibrate_dpsgd, dpsgd_guarantee
from resperturb.privacy.gaussian import epsilon_for_delta
from resperturb.privacy.length import training_length

RUN = training_length(steps=50, batch_size=50, records=1000)


def test_agrees_with_dp_accounting_at_its_own_settings():
    event = dp_accounting.PoissonSampledDpEvent(0.05, dp_accounting.GaussianDpEvent(1.2))
    budget = dpsgd_guarantee(noise_multiplier=1.2, length=RUN, delta=1e-5)
    pld = dp_accounting.pld.PLDAccountant().compose(event, 50).get_epsilon(1e-5)
    rdp = dp_accounting.rdp.RdpAccountant().compose(event, 50).get_epsilon(1e-5)
    assert budget.epsilon == budget.details["epsilon_pld"] == pytest.approx(pld, rel=1e-3)
    assert budget.details["epsilon_rdp"] == pytest.approx(rdp, rel=1e-2)
    assert budget.details["epsilon_pld"] < budget.details["epsilon_rdp"]


def test_a_batch_of_everything_is_the_plain_gaussian_mechanism():
    run = training_length(steps=25, batch_size=1000, records=1000)
    budget = dpsgd_guarantee(noise_multiplier=10.0, length=run, delta=1e-6)
    assert budget.epsilon == pytest.approx(epsilon_for_delta(1e-6, 0.5), rel=1e-3)


def test_monotone_in_every_argument():
    def at(noise=1.0, steps=20, batch_size=50, records=1000, delta=1e-5):
        run = training_length(steps=steps, batch_size=batch_size, records=records)
        budget = dpsgd_guarantee(noise_multiplier=noise, length=run, delta=delta)
        assert 0 <= budget.epsilon <= budget.details["epsilon_rdp"]
        return budget.epsilon

    assert at(noise=2.0) < at() < at(noise=0.7)
    assert at(steps=10) < at() < at(steps=40)
    assert at(batch_size=25) < at() < at(batch_size=100)
    assert at(records=2000) < at() < at(records=500)
    assert at(delta=1e-4) < at() < at(delta=1e-6)


@pytest.mark.parametrize("delta", [1e-300, 1e-5, 0.5])
@pytest.mark.parametrize("noise", [0.0, 1e-6, 0.05, 1e3, 1e7])
def test_extremes_are_neither_nan_nor_negative(noise, delta):
    budget = dpsgd_guarantee(noise_multiplier=noise, length=RUN, delta=delta)
    assert budget.epsilon >= 0
    assert (budget.epsilon == math.inf) == (noise == 0)
    assert 0 <= budget.max_tpr <= 1


def test_where_distributions_cannot_be_trusted_they_are_not_used():
    tiny_delta = dpsgd_guarantee(noise_multiplier=4.0, length=RUN, delta=9e-13)
    assert tiny_delta.details["epsilon_pld"] is None
    assert tiny_delta.epsilon > dpsgd_guarantee(noise_multiplier=4.0, length=RUN, delta=2e-12).epsilon
    assert "not computed" in str(tiny_delta)


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_calibration_gives_at_most_the_target_epsilon_and_hardly_less(epsilon):
    run = training_length(steps=20, batch_size=50, records=1000)
    found = calibrate_dpsgd(epsilon=epsilon, delta=1e-5, length=run)
    again = dpsgd_guarantee(noise_multiplier=found.details["noise_multiplier"], length=run, delta=1e-5)
    assert again.epsilon <= epsilon
    assert again.epsilon == pytest.approx(epsilon, rel=1e-3)


def test_a_budget_names_its_relation_and_its_sampling():
    budget = dpsgd_guarantee(noise_multiplier=1.0, length=RUN, delta=1e-5)
    assert budget.neighbours == "add_remove"
    assert "label" in budget.protects
    assert any("Poisson" in a.statement for a in budget.assumptions)


def test_impossible_arguments_are_refused():
    with pytest.raises(UsageError, match="batch size and the number of records"):
        dpsgd_guarantee(noise_multiplier=1.0, length=training_length(epochs=1), delta=1e-5)
    with pytest.raises(UsageError, match="noise multiplier"):
        dpsgd_guarantee(noise_multiplier=-1.0, length=RUN, delta=1e-5)
    with pytest.raises(UsageError, match="epsilon"):
        calibrate_dpsgd(epsilon=-1.0, delta=1e-5, length=RUN)


def test_missing_tails_are_paid_for_in_delta_or_nothing_is_claimed():
    near = dpsgd_guarantee(noise_multiplier=0.5, length=RUN, delta=1e-5)
    assert 10 < near.claimed_epsilon < 25
    assert not near.not_met
    far = dpsgd_guarantee(noise_multiplier=0.3, length=RUN, delta=1e-5)
    assert far.claimed_epsilon == math.inf
    assert "tails that computed noise does not have" in far.words
    with pytest.raises(UsageError, match="tails that computed noise does not have. Ask for less"):
        calibrate_dpsgd(epsilon=60.0, delta=1e-5, length=RUN)
