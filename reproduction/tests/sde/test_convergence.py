import numpy as np
import pytest
from resperturb_reproduction.sde.convergence import (
    STEPS,
    path_errors,
    strong_convergence,
    study_convergence,
    weak_convergence,
)
from resperturb_reproduction.sde.images import sample_image

from resperturb.errors import UsageError

# The fitted slope differs from the order by the next term of the expansion, about dt = 1/16 in size, and by chance.
BIAS = 0.03


@pytest.fixture(scope="module")
def study():
    return study_convergence(sample_image(), paths=10_000, seed=1)


def test_every_slope_is_the_order_theory_gives(study):
    orders = {"additive": 1.0, "multiplicative": 0.5, "ODE of the image": 1.0}
    assert {curve.name: curve.theory for curve in study.strong} == orders
    assert {curve.name: curve.theory for curve in study.weak} == {"additive": 1.0, "multiplicative": 1.0}
    for curve in (*study.strong, *study.weak):
        assert abs(curve.slope - curve.theory) < BIAS + 3 * curve.slope_standard_error, curve.name


def test_the_slopes_are_sharp_enough_to_tell_the_orders_apart(study):
    for curve in (*study.strong, *study.weak):
        assert BIAS + 3 * curve.slope_standard_error < 0.25, curve.name


def test_the_weak_error_is_that_of_the_known_means():
    for strategy, rate in (("additive", -1.0), ("multiplicative", 1.0)):
        curve = weak_convergence(strategy, path_errors(strategy, paths=10_000, seed=2), theory=1.0)
        known = [abs((1 + rate / n) ** n - np.exp(rate)) for n in STEPS]
        assert np.all(np.abs(curve.errors - known) < 4 * curve.standard_errors)


def test_the_spread_of_the_slope_is_that_of_repeated_studies():
    curves = [
        strong_convergence("multiplicative", path_errors("multiplicative", paths=400, seed=seed), 0.5)
        for seed in range(40)
    ]
    seen = np.std([curve.slope for curve in curves], ddof=1)
    claimed = np.mean([curve.slope_standard_error for curve in curves])
    # A spread over 40 studies is itself known to about 11 %.
    assert claimed == pytest.approx(seen, rel=0.4)


def test_too_few_paths_are_refused():
    with pytest.raises(UsageError, match="too few"):
        path_errors("additive", paths=39)
