import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from resperturb_reproduction.sde.field import source_pixels, velocity
from resperturb_reproduction.sde.flow import (
    BrownianPath,
    check_gamma,
    euler_maruyama,
    forward_ode,
    forward_sde,
    invert_sde,
    number_of_steps,
    reverse_ode,
    reverse_sde,
)

from resperturb.errors import UsageError

ROWS, COLS, DT, STEPS = 5, 6, 0.05, 20
PIXELS = ROWS * COLS
# F treats the channels alike and separately, so channels are independent repetitions of one experiment.
REPETITIONS = 4000


@pytest.fixture(scope="module")
def field():
    matrix = np.zeros((PIXELS, PIXELS))
    matrix[np.arange(PIXELS), source_pixels(ROWS, COLS)] = 1.0
    return matrix


@pytest.fixture(scope="module")
def image():
    return np.random.default_rng(1).random((ROWS, COLS, 1))


def repeated(image):
    return np.repeat(image, REPETITIONS, axis=2)


def spread_around(mean, values):
    """The total variance over the pixels around ``mean``, and the standard error of that estimate."""
    squares = ((values.reshape(PIXELS, REPETITIONS) - mean[:, None]) ** 2).sum(axis=0)
    return squares.mean(), squares.std(ddof=1) / math.sqrt(REPETITIONS)


def accumulated(first, step, gamma):
    """The covariance of ``x <- step x + gamma dB`` after STEPS steps from the covariance ``first``."""
    covariance = first
    for _ in range(STEPS):
        covariance = step @ covariance @ step.T + gamma**2 * DT * np.eye(PIXELS)
    return covariance


def test_euler_and_its_reversal_are_matrix_powers(field, image):
    forward = np.linalg.matrix_power(np.eye(PIXELS) + DT * field, STEPS)
    backward = np.linalg.matrix_power(np.eye(PIXELS) - DT * field, STEPS)
    features = forward_ode(image, DT)
    assert np.allclose(features.ravel(), forward @ image.ravel())
    assert np.allclose(reverse_ode(features, DT).ravel(), backward @ forward @ image.ravel())


def test_the_papers_reversal_misses_by_dt_times_f_of_f(image):
    for dt in (0.01, 0.001):
        missed = reverse_ode(forward_ode(image, dt), dt) - image
        assert np.abs(missed + dt * velocity(velocity(image))).max() < dt**2


def test_additive_features_have_the_variance_of_a_brownian_motion_not_of_its_root(field, image):
    gamma = 0.7
    step = np.eye(PIXELS) + DT * field
    features = forward_sde(repeated(image), "additive", gamma, BrownianPath((ROWS, COLS, REPETITIONS), DT, (3,)))
    mean = np.linalg.matrix_power(step, STEPS) @ image.ravel()
    measured, error = spread_around(mean, features)
    assert abs(measured - np.trace(accumulated(np.zeros_like(step), step, gamma))) < 4 * error


def test_the_papers_reversal_adds_its_own_variance_to_the_attackers(field, image):
    gamma = 0.7
    forth, back = np.eye(PIXELS) + DT * field, np.eye(PIXELS) - DT * field
    shape = (ROWS, COLS, REPETITIONS)
    features = forward_sde(repeated(image), "additive", gamma, BrownianPath(shape, DT, (4, 0)))
    recovered = reverse_sde(features, "additive", gamma, BrownianPath(shape, DT, (4, 1)))
    mean = np.linalg.matrix_power(back, STEPS) @ np.linalg.matrix_power(forth, STEPS) @ image.ravel()

    in_features = accumulated(np.zeros_like(forth), forth, gamma)
    reversal = np.linalg.matrix_power(back, STEPS)
    without = np.trace(reversal @ in_features @ reversal.T)
    with_fresh_noise = np.trace(accumulated(in_features, back, gamma))
    assert with_fresh_noise > 1.5 * without

    measured, error = spread_around(mean, recovered)
    assert abs(measured - with_fresh_noise) < 4 * error
    measured, error = spread_around(mean, reverse_ode(features, DT))
    assert abs(measured - without) < 4 * error


def test_multiplicative_features_have_the_right_second_moment(field, image):
    gamma = 0.5
    step = np.eye(PIXELS) + DT * field
    moment = np.outer(image.ravel(), image.ravel())
    for _ in range(STEPS):
        moment = step @ moment @ step.T + gamma**2 * DT * np.diag(np.diag(moment))
    features = forward_sde(
        repeated(image), "multiplicative", gamma, BrownianPath((ROWS, COLS, REPETITIONS), DT, (6,))
    )
    measured, error = spread_around(np.zeros(PIXELS), features)
    assert abs(measured - np.trace(moment)) < 4 * error
    # The noise must be seen above the sampling error, or the line above says nothing about it.
    still = np.linalg.matrix_power(step, STEPS) @ image.ravel()
    assert np.trace(moment) - still @ still > 20 * error


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from(["additive", "multiplicative"]),
    st.floats(0, 2),
    st.integers(0, 2**32),
    st.integers(2, 12),
    st.integers(2, 12),
)
def test_who_knows_the_noise_gets_the_image_back(strategy, gamma, seed, rows, cols):
    image = np.random.default_rng(seed).random((rows, cols, 3))
    path = BrownianPath(image.shape, 0.02, (seed,))
    features = forward_sde(image, strategy, gamma, path)
    assert np.allclose(invert_sde(features, strategy, gamma, path), image, atol=1e-6)


def test_another_noise_does_not_give_the_image_back(image):
    features = forward_sde(image, "additive", 1.0, BrownianPath(image.shape, 0.02, (0,)))
    assert np.abs(invert_sde(features, "additive", 1.0, BrownianPath(image.shape, 0.02, (1,))) - image).max() > 0.1


@pytest.mark.parametrize("strategy", ["additive", "multiplicative"])
def test_without_noise_the_sde_is_the_ode(image, strategy):
    path = BrownianPath(image.shape, DT, (0,))
    assert np.array_equal(forward_sde(image, strategy, 0.0, path), forward_ode(image, DT))
    assert np.array_equal(reverse_sde(image, strategy, 0.0, path), reverse_ode(image, DT))


@pytest.mark.parametrize(("strategy", "order"), [("additive", 1.0), ("multiplicative", 0.5)])
def test_the_flow_of_the_image_converges_at_the_order_of_its_noise(image, strategy, order):
    shape = (ROWS, COLS, 60)
    start = np.repeat(image, 60, axis=2)
    fine = np.array(list(BrownianPath(shape, 1 / 1024, (7,)).forward()))
    errors = []
    counts = (1024, 8, 16, 32, 64)
    reference, *coarse = (
        euler_maruyama(start, velocity, 1 / n, strategy, 1.0, fine.reshape(n, 1024 // n, *shape).sum(axis=1))
        for n in counts
    )
    errors = [np.abs(reached - reference).mean() for reached in coarse]
    slope = -np.polyfit(np.log(counts[1:]), np.log(errors), 1)[0]
    assert abs(slope - order) < 0.1


def test_a_path_runs_backwards_through_the_same_increments_and_keys_are_independent():
    path = BrownianPath((50, 40, 3), 0.25, (0, 1))
    forward, backward = list(path.forward()), list(path.backward())
    assert len(forward) == 4
    assert all(np.array_equal(a, b) for a, b in zip(forward, reversed(backward), strict=True))
    other = BrownianPath((50, 40, 3), 0.25, (0, 2)).increment(0)
    for unrelated in (other, forward[1]):
        correlation = np.corrcoef(forward[0].ravel(), unrelated.ravel())[0, 1]
        assert abs(correlation) < 4 / math.sqrt(6000)
    assert abs(forward[0].var() - 0.25) < 4 * 0.25 * math.sqrt(2 / 6000)


@pytest.mark.parametrize(("dt", "steps"), [(0.01, 100), (1 / 3, 3), (0.5, 2), (1e-4, 10_000)])
def test_dt_that_divides_one(dt, steps):
    assert number_of_steps(dt) == steps


@pytest.mark.parametrize("dt", [0.03, 0.0, -0.01, 1.0, 2.0, 1e-5, math.nan, math.inf])
def test_dt_that_does_not(dt):
    with pytest.raises(UsageError, match="dt = "):
        number_of_steps(dt)


@pytest.mark.parametrize("gamma", [-0.1, math.nan, math.inf])
def test_gamma_must_be_a_noise_coefficient(gamma):
    with pytest.raises(UsageError, match="gamma"):
        check_gamma(gamma)
