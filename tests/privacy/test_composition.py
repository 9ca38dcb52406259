import math

import dp_accounting
import pytest

from resperturb.errors import UsageError
from resperturb.privacy.accounting import Ledger, Sampled, account, quick_bound, tpr_from_budget
from resperturb.privacy.additive import additive_guarantee
from resperturb.privacy.composition import compose
from resperturb.privacy.dpsgd import dpsgd_guarantee
from resperturb.privacy.gaussian import epsilon_for_delta
from resperturb.privacy.length import training_length

RUN = training_length(steps=20, batch_size=50, records=1000)
ADDITIVE = additive_guarantee(input_std=200, radius=30, length=training_length(epochs=4), delta=1e-5)
DPSGD = dpsgd_guarantee(noise_multiplier=1.5, length=RUN, delta=1e-5)
SWAP = dp_accounting.NeighboringRelation.REPLACE_ONE


def dpsgd_event(steps=20):
    sampled = dp_accounting.PoissonSampledDpEvent(0.05, dp_accounting.GaussianDpEvent(1.5))
    return dp_accounting.SelfComposedDpEvent(sampled, steps)


def pld_epsilon(relation, *events, delta=1e-5):
    accountant = dp_accounting.pld.PLDAccountant(relation, 3e-4)
    return accountant.compose(dp_accounting.ComposedDpEvent(list(events))).get_epsilon(delta)


def test_one_budget_composed_with_nothing_is_itself():
    assert compose([ADDITIVE], delta=1e-5).epsilon == ADDITIVE.epsilon


def test_two_trainings_are_one_of_twice_the_length():
    twice = additive_guarantee(input_std=200, radius=30, length=training_length(epochs=8), delta=1e-5)
    assert compose([ADDITIVE, ADDITIVE], delta=1e-5).epsilon == pytest.approx(twice.epsilon)
    longer = dpsgd_guarantee(
        noise_multiplier=1.5, length=training_length(steps=40, batch_size=50, records=1000), delta=1e-5
    )
    assert compose([DPSGD, DPSGD], delta=1e-5).epsilon == pytest.approx(longer.epsilon, rel=1e-3)


def test_a_mixture_of_relations_is_counted_for_a_swap_and_says_so():
    together = compose([ADDITIVE, DPSGD], delta=1e-5)
    noised_images = dp_accounting.GaussianDpEvent(200 / 30 / math.sqrt(4))
    assert together.epsilon == pytest.approx(pld_epsilon(SWAP, noised_images, dpsgd_event()), rel=2e-3)
    assert together.neighbours == "swap"
    assert together.details["method"] == "pld"
    assert any("dpsgd was converted" in a.statement for a in together.assumptions)
    assert "NOT its label" in together.protects
    assert together.compares == ADDITIVE.compares  # the narrower of both
    assert together.epsilon > compose([DPSGD], delta=1e-5).epsilon


def test_a_sampled_release_of_everything_counts_double_for_a_swap():
    everything = Ledger("add_remove", sampled=(Sampled(4.0, 1.0, 1),))
    assert account(everything, 1e-5).epsilon == pytest.approx(epsilon_for_delta(1e-5, 0.25), rel=1e-3)
    assert account(everything.as_swap(), 1e-5).epsilon == pytest.approx(epsilon_for_delta(1e-5, 0.5), rel=1e-3)


def test_a_vacuous_part_makes_the_whole_vacuous_and_finite():
    vacuous = additive_guarantee(input_std=0.25, radius=30, length=training_length(epochs=100), delta=1e-5)
    whole = compose([vacuous, DPSGD], delta=1e-5)
    assert vacuous.epsilon <= whole.epsilon < 1.001 * vacuous.epsilon
    assert whole.claimed_epsilon == math.inf
    none = additive_guarantee(input_std=0, radius=30, length=training_length(epochs=1), delta=1e-5)
    assert compose([none, DPSGD], delta=1e-5).epsilon == math.inf


def test_the_tails_of_the_whole_are_paid_for_together():
    """Each part has a guarantee, and their composition needs tails that computed noise lacks."""
    part = additive_guarantee(input_std=200, radius=30, length=training_length(epochs=100), delta=1e-5)
    assert part.claimed_epsilon < 25
    assert compose([part] * 10, delta=1e-5).claimed_epsilon == math.inf


def test_rounding_in_the_divergence_is_never_taken_for_perfect_privacy():
    """dp-accounting alone finds a negative divergence here and returns an epsilon of zero."""
    assert quick_bound(Ledger("add_remove", sampled=(Sampled(1e6, 1e-9, 1),)), 1e-100) > 0


def test_the_attack_allowed_never_beats_the_budget_and_never_chance():
    for budget in (ADDITIVE, DPSGD, compose([ADDITIVE, DPSGD], delta=1e-5)):
        assert 1e-3 <= budget.max_tpr <= tpr_from_budget(budget.epsilon, budget.delta, 1e-3)


def test_impossible_arguments_are_refused():
    with pytest.raises(UsageError, match="nothing to compose"):
        compose([], delta=1e-5)
    with pytest.raises(UsageError, match="delta"):
        compose([ADDITIVE], delta=1.0)
