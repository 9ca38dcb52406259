import math
from dataclasses import replace

import dp_accounting
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from resperturb.errors import UsageError
from resperturb.privacy.multiplicative import (
    NoisyQuery,
    calibrate_multiplicative,
    multiplicative_guarantee,
    queries_afforded,
    theorem2,
    theorem2_noise,
)

QUERY = NoisyQuery(gamma=8, output_std=4, bound=1, floor=0.5, weight_norm=2, blocks=3)

positive = st.floats(-3, 3).map(lambda x: 10**x)
deltas = st.floats(-300, -0.1).map(lambda x: 10**x)
answers_ = st.builds(
    NoisyQuery,
    gamma=positive,
    output_std=positive,
    bound=positive,
    floor=positive,
    weight_norm=positive,
    blocks=st.integers(1, 50),
)


@given(answers_, deltas)
def test_theorem2_is_the_best_lambda_of_the_printed_conditions(query, delta):
    def least_epsilon(logit):
        """From alpha 2 M worst^2 = lambda epsilon, with alpha as printed; both conditions have this form."""
        lam = 1 / (1 + math.exp(-logit))
        worst = max(query.bound / (query.floor * query.gamma), query.weight_norm / query.output_std)
        linear = 2 * query.blocks * worst**2
        constant = linear * math.log(1 / delta) / (1 - lam)
        return math.log((linear + math.sqrt(linear**2 + 4 * lam * constant)) / (2 * lam))

    brute = minimize_scalar(least_epsilon, bounds=(-20, 20), method="bounded", options={"xatol": 1e-9}).fun
    assert theorem2(query, delta) == pytest.approx(math.exp(brute), rel=1e-6)


@given(st.floats(-3, 5).map(lambda x: 10**x), deltas, positive, positive, positive, st.integers(1, 50))
def test_theorem2_noise_gives_the_epsilon_back(epsilon, delta, bound, floor, weight_norm, blocks):
    setting = {"bound": bound, "floor": floor, "weight_norm": weight_norm, "blocks": blocks}
    gamma, output_std = theorem2_noise(epsilon=epsilon, delta=delta, **setting)
    assert theorem2(NoisyQuery(gamma, output_std, **setting), delta) == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.parametrize("blocks", [1, 3, 10])
def test_the_printed_theorem_leaves_one_of_its_layers_uncounted(blocks):
    """Where both conditions bind, the divergence of all layers is (M + 1)/M times what the theorem allows."""
    gamma, output_std = theorem2_noise(epsilon=2, delta=1e-5, bound=1, floor=0.5, weight_norm=2, blocks=blocks)
    query = NoisyQuery(gamma, output_std, 1, 0.5, 2, blocks)
    allowed = blocks * query.block_mu**2 / 2
    assert query.mu**2 / 2 == pytest.approx(allowed * (blocks + 1) / blocks)
    assert multiplicative_guarantee(query, delta=1e-5).epsilon_rdp > 2


def test_a_query_gives_away_what_its_worst_layers_do():
    """Two models as far apart as the bounds allow; the mean privacy loss of the whole path must be mu^2/2."""
    rng = np.random.default_rng(0)
    query, trials = NoisyQuery(gamma=3, output_std=5, bound=0.4, floor=0.5, weight_norm=2, blocks=3), 50_000
    direction = np.array([0.6, 0.8])
    features = np.full((trials, 2), 0.01)  # below the floor: the least noise there is
    loss = np.zeros(trials)
    for _ in range(query.blocks):
        scale = query.gamma * np.where(features < 0, -1, 1) * np.maximum(np.abs(features), query.floor)
        noise = scale * rng.standard_normal(features.shape)
        moved = noise + 2 * query.bound * direction  # what the noise of the other model would have had to be
        loss += ((moved**2 - noise**2) / (2 * scale**2)).sum(1)
        features = features * 0.01  # any function of the past; kept below the floor
    size = np.linalg.norm(features, axis=1)
    noise = query.output_std * size * rng.standard_normal(trials)
    moved = noise + 2 * query.weight_norm * size
    loss += (moved**2 - noise**2) / (2 * (query.output_std * size) ** 2)
    error = loss.std() / math.sqrt(trials)
    assert abs(loss.mean() - query.mu**2 / 2) < 4 * error
    assert loss.std() == pytest.approx(query.mu, rel=0.02)


@pytest.mark.parametrize("queries", [1, 7])
def test_queries_compose_as_dp_accounting_says(queries):
    query = replace(QUERY, gamma=80, output_std=40)
    events = [dp_accounting.GaussianDpEvent(1 / query.block_mu)] * query.blocks
    event = dp_accounting.ComposedDpEvent([*events, dp_accounting.GaussianDpEvent(1 / query.output_mu)])
    accountant = dp_accounting.pld.PLDAccountant(value_discretization_interval=1e-3)
    by_distribution = accountant.compose(event, queries).get_epsilon(1e-5)
    budget = multiplicative_guarantee(query, delta=1e-5, queries=queries)
    assert budget.epsilon == pytest.approx(by_distribution, rel=5e-3)
    by_divergence = dp_accounting.rdp.RdpAccountant().compose(event, queries)
    assert budget.epsilon <= by_divergence.get_epsilon(1e-5) <= budget.epsilon_rdp


@given(answers_, deltas, st.integers(1, 1000), st.floats(1.01, 10))
def test_monotone_in_every_argument(query, delta, queries, factor):
    def at(changed=query, delta=delta, queries=queries):
        budget = multiplicative_guarantee(changed, delta=delta, queries=queries)
        assert 0 <= budget.epsilon <= budget.epsilon_rdp * (1 + 1e-9) + 1e-12
        return budget.epsilon

    base = at() * (1 - 1e-9) - 1e-12
    for name in ("gamma", "output_std", "floor"):
        assert at(replace(query, **{name: getattr(query, name) / factor})) >= base
    for name in ("bound", "weight_norm"):
        assert at(replace(query, **{name: getattr(query, name) * factor})) >= base
    assert at(replace(query, blocks=query.blocks + 1)) >= base
    assert at(delta=delta / factor) >= base
    assert at(queries=queries + 1) >= base


@given(answers_, st.floats(0.01, 100), st.floats(-12, -1).map(lambda x: 10**x))
def test_the_queries_afforded_are_the_most_that_stay_within_epsilon(query, epsilon, delta):
    afforded = queries_afforded(query, epsilon, delta)
    if afforded >= 1:
        within = multiplicative_guarantee(query, delta=delta, queries=afforded)
        assert within.epsilon <= epsilon * (1 + 1e-6)
    over = multiplicative_guarantee(query, delta=delta, queries=afforded + 1)
    assert over.epsilon > epsilon * (1 - 1e-6)


@pytest.mark.parametrize("queries", [1, 10, 1000])
@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 1e7])
def test_calibration_gives_the_epsilon_and_the_queries_back(epsilon, queries):
    found = calibrate_multiplicative(
        epsilon=epsilon, delta=1e-5, bound=1, floor=0.5, weight_norm=2, blocks=3, queries=queries
    )
    assert found.epsilon == pytest.approx(epsilon, rel=1e-7)
    assert queries_afforded(found.query, epsilon, 1e-5) == queries
    assert found.query.block_mu == pytest.approx(found.query.output_mu)


@pytest.mark.parametrize("name", ["gamma", "floor", "output_std"])
def test_without_one_of_the_noises_epsilon_is_infinite(name):
    bare = replace(QUERY, **{name: 0})
    budget = multiplicative_guarantee(bare, delta=1e-5)
    assert budget.epsilon == budget.epsilon_rdp == budget.epsilon_theorem == math.inf
    assert queries_afforded(bare, 8.0, 1e-5) == 0


def test_a_budget_is_for_any_two_data_sets_but_only_for_the_answers():
    budget = multiplicative_guarantee(QUERY, delta=1e-5, queries=10)
    assert budget.neighbours == "any"
    assert "not from anyone who holds the weights" in budget.protects
    assert any("No more than 10 draws of the noise" in a.statement for a in budget.assumptions)


def test_what_cannot_be_is_refused():
    with pytest.raises(UsageError, match="blocks"):
        replace(QUERY, blocks=0)
    with pytest.raises(UsageError, match="bound"):
        replace(QUERY, bound=-1)
    with pytest.raises(UsageError, match="queries"):
        multiplicative_guarantee(QUERY, delta=1e-5, queries=0)
    with pytest.raises(UsageError, match="floor"):
        calibrate_multiplicative(epsilon=1, delta=1e-5, bound=1, floor=0, weight_norm=1, blocks=1)
