"""The paper's theorems as printed: where their conditions begin to hold, and the table of docs/theory.md."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from resperturb_reproduction.theorems import NoisyQuery, rdp_epsilon, rdp_rho, theorem1, theorem2
from scipy.optimize import minimize_scalar

from resperturb.errors import UsageError
from resperturb.privacy import additive_guarantee, epsilon_for_delta, training_length
from resperturb.privacy.guarantee import number

SETTING = {"gamma": 0.5, "input_std": 0.25, "radius": 30, "bound": 30, "delta": 1e-5}
PAGE = (Path(__file__).parents[2] / "docs" / "theory.md").read_text()

noises = st.floats(-3, 6).map(lambda x: 10**x)
sizes = st.floats(-3, 3).map(lambda x: 10**x)
deltas = st.floats(-300, -0.1).map(lambda x: 10**x)
epochs = st.floats(0.01, 1000)


def conditions_hold(
    epsilon: float,
    lam: float,
    *,
    gamma: float,
    input_std: float,
    radius: float,
    bound: float,
    epochs: float,
    delta: float,
) -> bool:
    """Theorem 1's two conditions, as the paper prints them."""
    alpha = math.log(1 / delta) / ((1 - lam) * epsilon) + 1
    scale = math.sqrt(2 * epochs * alpha / (lam * epsilon))
    return input_std >= radius * scale and gamma >= bound * scale


@given(noises, noises, sizes, sizes, epochs, deltas, st.floats(0.01, 0.99))
def test_theorem1_at_a_given_lambda_is_where_the_printed_conditions_begin_to_hold(
    gamma: float, input_std: float, radius: float, bound: float, epochs: float, delta: float, lam: float
) -> None:
    setting = {"gamma": gamma, "input_std": input_std, "radius": radius, "bound": bound}
    setting |= {"epochs": epochs, "delta": delta}
    epsilon = theorem1(**setting, lam=lam).epsilon
    assert conditions_hold(epsilon * (1 + 1e-9), lam, **setting)
    assert not conditions_hold(epsilon * (1 - 1e-9), lam, **setting)


@given(noises, noises, sizes, sizes, epochs, deltas)
def test_the_best_lambda_is_the_best_by_brute_force(
    gamma: float, input_std: float, radius: float, bound: float, epochs: float, delta: float
) -> None:
    setting = {"gamma": gamma, "input_std": input_std, "radius": radius, "bound": bound}
    setting |= {"epochs": epochs, "delta": delta}
    best = theorem1(**setting)

    def at(logit: float) -> float:
        return math.log(theorem1(**setting, lam=1 / (1 + math.exp(-logit))).epsilon)

    brute = math.exp(minimize_scalar(at, bounds=(-20, 20), method="bounded", options={"xatol": 1e-9}).fun)
    assert best.epsilon == pytest.approx(brute, rel=1e-6)
    assert theorem1(**setting, lam=best.lam).epsilon == pytest.approx(best.epsilon, rel=1e-9)


def test_the_budgets_of_the_layers_are_the_printed_ones() -> None:
    result = theorem1(epochs=100, **SETTING, lam=0.25)
    first, second, last = result.layers(2)
    assert first == pytest.approx(result.epsilon)
    assert second == pytest.approx((0.25 / 2 + 0.75) * result.epsilon)
    assert last == pytest.approx((0.25 / 3 + 0.75) * result.epsilon)


@given(noises, sizes, st.integers(1, 1000), deltas)
def test_at_whole_epochs_the_exact_bound_is_never_above_the_theorem(
    input_std: float, radius: float, epochs: int, delta: float
) -> None:
    exact = additive_guarantee(input_std=input_std, radius=radius, length=training_length(epochs=epochs), delta=delta)
    if not exact.not_met:  # with tails paid for, epsilon is that of a delta of at least a half
        printed = theorem1(
            gamma=input_std, input_std=input_std, radius=radius, bound=radius, epochs=epochs, delta=delta / 2
        )
        assert exact.epsilon <= printed.epsilon * (1 + 1e-9)


def table() -> list[list[str]]:
    """The table of the paper's settings in docs/theory.md."""
    lines = PAGE.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("|") and "gamma condition alone" in line)
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


@pytest.mark.parametrize("row", table(), ids=lambda row: " ".join(row[:3]))
def test_the_table_of_the_paper_s_settings(row: list[str]) -> None:
    _, gamma, training, theorem, blocks, exact, _ = row
    length = int(training.split()[0].replace(",", ""))
    run = (
        training_length(epochs=length)
        if "epochs" in training
        else training_length(steps=length, batch_size=128, records=12500)
    )
    noise = {"input_std": float(gamma) / 2, "radius": 30, "delta": 1e-5}
    printed = theorem1(**noise, gamma=float(gamma), bound=30, epochs=run.epochs)
    found = [printed.epsilon, printed.from_blocks, additive_guarantee(**noise, length=run).epsilon]
    assert [theorem, blocks, exact] == [number(value) for value in found]


queries = st.builds(
    NoisyQuery, gamma=sizes, output_std=sizes, bound=sizes, floor=sizes, weight_norm=sizes, blocks=st.integers(1, 50)
)


@given(queries, deltas)
def test_theorem2_is_the_best_lambda_of_the_printed_conditions(query: NoisyQuery, delta: float) -> None:
    def least_epsilon(logit: float) -> float:
        """From alpha 2 M worst^2 = lambda epsilon, with alpha as printed; both conditions have this form."""
        lam = 1 / (1 + math.exp(-logit))
        worst = max(query.bound / (query.floor * query.gamma), query.weight_norm / query.output_std)
        linear = 2 * query.blocks * worst**2
        constant = linear * math.log(1 / delta) / (1 - lam)
        return math.log((linear + math.sqrt(linear**2 + 4 * lam * constant)) / (2 * lam))

    brute = minimize_scalar(least_epsilon, bounds=(-20, 20), method="bounded", options={"xatol": 1e-9}).fun
    assert theorem2(query, delta) == pytest.approx(math.exp(brute), rel=1e-6)


def test_a_query_gives_away_what_its_worst_layers_do() -> None:
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


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match="blocks"):
        NoisyQuery(8, 4, 1, 0.5, 2, 0)
    with pytest.raises(UsageError, match="lambda"):
        theorem1(epochs=100, **SETTING, lam=1.0)


@given(st.floats(-6, 7), st.floats(-300, -0.1))
def test_the_rdp_conversion_is_the_minimum_over_the_order_and_inverts(log_rho: float, log_delta: float) -> None:
    rho, delta = 10**log_rho, 10**log_delta

    def converted(log_excess: float) -> float:  # of the order over 1
        return rho * (1 + math.exp(log_excess)) + math.log(1 / delta) / math.exp(log_excess)

    brute = minimize_scalar(converted, bounds=(-15, 15), method="bounded", options={"xatol": 1e-10}).fun
    assert rdp_epsilon(rho, delta) == pytest.approx(brute, rel=1e-6)
    assert rdp_rho(rdp_epsilon(rho, delta), delta) == pytest.approx(rho, rel=1e-6)
    assert epsilon_for_delta(delta, math.sqrt(2 * rho)) <= rdp_epsilon(rho, delta)


def test_the_epochs_of_the_printed_budgets() -> None:
    for printed, gamma, words in ((1100, 0.5, "0.0311 epochs"), (3000, 4.5, "lasts 7.45")):
        epochs = rdp_rho(printed, 1e-5) / (2 * (30 / (gamma / 2)) ** 2)
        assert f"{epochs:.3g}" in words
        assert words in " ".join(PAGE.split())
