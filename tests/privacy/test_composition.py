import math

import dp_accounting
import pytest

from resperturb.errors import UsageError
from resperturb.privacy.accounting import Ledger, Sampled, Selected, account, quick_bound, tpr_from_budget
from resperturb.privacy.additive import additive_guarantee
from resperturb.privacy.composition import compose, select_best
from resperturb.privacy.dpsgd import dpsgd_guarantee
from resperturb.privacy.gaussian import epsilon_for_delta
from resperturb.privacy.length import training_length
from resperturb.privacy.multiplicative import NoisyQuery, multiplicative_guarantee

RUN = training_length(steps=20, batch_size=50, records=1000)
ADDITIVE = additive_guarantee(gamma=400, radius=30, length=training_length(epochs=4), delta=1e-5)
DPSGD = dpsgd_guarantee(noise_multiplier=1.5, length=RUN, delta=1e-5)
ANSWERS = multiplicative_guarantee(NoisyQuery(80, 40, 1, 0.5, 2, 3), delta=1e-5)
SWAP, ADD = dp_accounting.NeighboringRelation.REPLACE_ONE, dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE


def dpsgd_event(steps=20):
    sampled = dp_accounting.PoissonSampledDpEvent(0.05, dp_accounting.GaussianDpEvent(1.5))
    return dp_accounting.SelfComposedDpEvent(sampled, steps)


def pld_epsilon(relation, *events, delta=1e-5):
    accountant = dp_accounting.pld.PLDAccountant(relation, 3e-4)
    return accountant.compose(dp_accounting.ComposedDpEvent(list(events))).get_epsilon(delta)


def test_one_budget_composed_with_nothing_is_itself():
    assert compose([ADDITIVE], delta=1e-5).epsilon == ADDITIVE.epsilon


def test_two_trainings_are_one_of_twice_the_length():
    twice = additive_guarantee(gamma=400, radius=30, length=training_length(epochs=8), delta=1e-5)
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
    assert together.method == "pld"
    assert any("dpsgd was converted" in a.statement for a in together.assumptions)
    assert "NOT its label" in together.protects
    assert together.compares == ADDITIVE.compares  # the narrower of both
    assert together.epsilon > compose([DPSGD], delta=1e-5).epsilon


def test_a_guarantee_for_any_two_data_sets_fits_either_relation():
    with_dpsgd = compose([ANSWERS, DPSGD], delta=1e-5)
    assert with_dpsgd.neighbours == "add_remove"
    answers = dp_accounting.GaussianDpEvent(1 / ANSWERS.ledger.mu)
    assert with_dpsgd.epsilon == pytest.approx(pld_epsilon(ADD, answers, dpsgd_event()), rel=2e-3)
    assert not any("converted" in a.statement for a in with_dpsgd.assumptions)
    with_additive = compose([ANSWERS, ADDITIVE], delta=1e-5)
    assert with_additive.neighbours == "swap"
    assert with_additive.epsilon == pytest.approx(
        epsilon_for_delta(1e-5, math.hypot(ANSWERS.ledger.mu, ADDITIVE.ledger.mu))
    )
    assert compose([ANSWERS, ANSWERS], delta=1e-5).neighbours == "any"


def test_a_sampled_release_of_everything_counts_double_for_a_swap():
    everything = Ledger("add_remove", sampled=(Sampled(4.0, 1.0, 1),))
    assert account(everything, 1e-5).epsilon == pytest.approx(epsilon_for_delta(1e-5, 0.25), rel=1e-3)
    assert account(everything.as_swap(), 1e-5).epsilon == pytest.approx(epsilon_for_delta(1e-5, 0.5), rel=1e-3)


def test_a_vacuous_part_makes_the_whole_vacuous_and_finite():
    vacuous = additive_guarantee(gamma=0.5, radius=30, length=training_length(epochs=100), delta=1e-5)
    whole = compose([vacuous, DPSGD], delta=1e-5)
    assert vacuous.epsilon <= whole.epsilon < 1.001 * vacuous.epsilon
    none = additive_guarantee(gamma=0, radius=30, length=training_length(epochs=1), delta=1e-5)
    assert compose([none, DPSGD], delta=1e-5).epsilon == math.inf
    assert select_best(none, mean_runs=3, delta=1e-5).epsilon == math.inf


@pytest.mark.parametrize("shape", [0.0, 1.0, math.inf])
def test_the_best_of_a_search_is_what_dp_accounting_says(shape):
    repeated = dp_accounting.dp_event.RepeatAndSelectDpEvent(dpsgd_event(), 10.0, shape)
    expected = dp_accounting.rdp.RdpAccountant().compose(repeated).get_epsilon(1e-5)
    best = select_best(DPSGD, mean_runs=10, delta=1e-5, shape=shape)
    assert best.epsilon == pytest.approx(expected, rel=1e-2)
    assert best.neighbours == "add_remove"


def test_a_search_compares_what_its_runs_do():
    for once in (ADDITIVE, DPSGD):
        assert select_best(once, mean_runs=3, delta=1e-5).compares == once.compares


def test_a_search_costs_more_the_longer_it_is_and_counts_swaps_right():
    few, many = (select_best(ADDITIVE, mean_runs=runs, delta=1e-5) for runs in (3, 100))
    assert ADDITIVE.epsilon < few.epsilon < many.epsilon
    gaussian = dp_accounting.GaussianDpEvent(1 / ADDITIVE.ledger.mu)  # the RDP accountant takes noise per shift
    repeated = dp_accounting.dp_event.RepeatAndSelectDpEvent(gaussian, 3.0, 1.0)
    expected = dp_accounting.rdp.RdpAccountant().compose(repeated).get_epsilon(1e-5)
    assert few.epsilon == pytest.approx(expected, rel=1e-2)


def test_a_search_can_be_composed_further():
    best = select_best(DPSGD, mean_runs=5, delta=1e-5)
    both = compose([best, DPSGD], delta=1e-5)
    assert both.epsilon > best.epsilon
    assert both.neighbours == "add_remove"
    assert compose([best, ADDITIVE], delta=1e-5).neighbours == "swap"


def test_a_search_in_a_mixture_is_counted_for_a_swap_as_well():
    everything = Ledger("add_remove", sampled=(Sampled(4.0, 1.0, 1),))
    search = Ledger("add_remove", selected=(Selected(everything, 3.0, 1.0),))
    for_a_swap = Ledger("swap", selected=(Selected(Ledger("swap", mu=0.5), 3.0, 1.0),))
    assert account(search.as_swap(), 1e-5).epsilon == pytest.approx(account(for_a_swap, 1e-5).epsilon)


def test_rounding_in_the_divergence_is_never_taken_for_perfect_privacy():
    """Left alone, dp-accounting finds a negative divergence here and answers an epsilon of zero."""
    assert quick_bound(Ledger("add_remove", sampled=(Sampled(1e6, 1e-9, 1),)), 1e-100) > 0


def test_the_attack_allowed_never_beats_the_budget_and_never_chance():
    for budget in (ADDITIVE, DPSGD, ANSWERS, compose([ADDITIVE, DPSGD], delta=1e-5)):
        assert 1e-3 <= budget.max_tpr <= tpr_from_budget(budget.epsilon, budget.delta, 1e-3)


def test_what_cannot_be_is_refused():
    with pytest.raises(UsageError, match="nothing to compose"):
        compose([], delta=1e-5)
    with pytest.raises(UsageError, match="delta"):
        compose([ADDITIVE], delta=1.0)
    with pytest.raises(UsageError, match="runs"):
        select_best(ADDITIVE, mean_runs=0.5, delta=1e-5)
    with pytest.raises(UsageError, match="shape"):
        select_best(ADDITIVE, mean_runs=2, delta=1e-5, shape=-1)
