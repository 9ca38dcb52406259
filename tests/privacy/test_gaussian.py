import math

import dp_accounting
import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from resperturb.errors import UsageError
from resperturb.privacy.gaussian import (
    attack_tpr,
    epsilon_for_delta,
    log_delta,
    mu_for_budget,
)

EPSILONS = (1e-6, 1e-3, 0.1, 1.0, 10.0, 1e3, 1e5, 1e7)
DELTAS = (0.5, 1e-2, 1e-5, 1e-20, 1e-300)


def reference_log_delta(epsilon, mu):
    """The textbook formula with sixty digits."""
    with mpmath.workdps(60):
        epsilon, mu, root = mpmath.mpf(epsilon), mpmath.mpf(mu), mpmath.sqrt(2)
        upper = mpmath.erfc((epsilon / mu - mu / 2) / root) / 2
        lower = mpmath.exp(epsilon) * mpmath.erfc((epsilon / mu + mu / 2) / root) / 2
        return mpmath.log(upper - lower)


@given(st.floats(-8, 4), st.floats(0, 1), st.floats(0, 60))
def test_log_delta_is_the_textbook_formula(log_mu, below, above):
    mu = 10**log_mu
    # s = epsilon/mu - mu/2 from its lowest value (epsilon = 0) to delta = exp(-1800)
    s = -below * min(mu / 2, 30) + above
    epsilon = max(0.0, mu * (s + mu / 2))
    rounding = 8 * np.finfo(float).eps * abs(epsilon / mu - mu / 2) * max(epsilon / mu, mu)
    assert abs(log_delta(epsilon, mu) - reference_log_delta(epsilon, mu)) < 1e-8 + rounding


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_largest_mu_within_a_budget_gives_the_budget_back(epsilon, delta):
    mu = mu_for_budget(epsilon, delta)
    assert float(reference_log_delta(epsilon, mu)) == pytest.approx(math.log(delta), rel=1e-10, abs=1e-10)
    assert epsilon_for_delta(delta, mu) == pytest.approx(epsilon, rel=1e-8)


@pytest.mark.parametrize("mu", [0.05, 0.5, 1.0, 3.0])
def test_agrees_with_dp_accounting(mu):
    closed_form = dp_accounting.get_epsilon_gaussian(1 / mu, 1e-6)
    assert epsilon_for_delta(1e-6, mu) == pytest.approx(closed_form, rel=1e-6)
    accountant = dp_accounting.pld.PLDAccountant(value_discretization_interval=1e-3)
    by_distribution = accountant.compose(dp_accounting.GaussianDpEvent(1 / mu)).get_epsilon(1e-6)
    assert epsilon_for_delta(1e-6, mu) == pytest.approx(by_distribution, rel=1e-3)
    assert epsilon_for_delta(1e-6, mu) <= by_distribution + 1e-9


@given(st.floats(-6, 5), st.floats(-300, -0.01), st.floats(1e-3, 2))
def test_epsilon_grows_with_mu_and_falls_with_delta(log_mu, log_delta_, step):
    mu, delta = 10**log_mu, 10**log_delta_
    epsilon = epsilon_for_delta(delta, mu)
    assert 0 <= epsilon < math.inf
    assert epsilon_for_delta(delta, mu * (1 + step)) >= epsilon * (1 - 1e-9)
    assert epsilon_for_delta(delta * 10 ** (-step), mu) >= epsilon * (1 - 1e-9)


@pytest.mark.parametrize("delta", [5e-324, 1e-300, 1e-5, 1 - 1e-9])
@pytest.mark.parametrize("mu", [0.0, 1e-320, 1e-100, 1e-12, 1.0, 1e12, 1e150, 1e200, math.inf])
def test_no_argument_gives_nan_or_a_negative_number(mu, delta):
    epsilon = epsilon_for_delta(delta, mu)
    assert epsilon >= 0
    assert not math.isnan(epsilon)
    for e in (0.0, 1e-300, 1.0, 1e7, 1e300):
        assert log_delta(e, mu) <= 0
    assert 0 <= attack_tpr(mu, 1e-3) <= 1


def test_no_noise_is_infinite_and_no_signal_is_zero():
    assert epsilon_for_delta(1e-5, math.inf) == math.inf
    assert epsilon_for_delta(1e-5, 0.0) == 0.0


@pytest.mark.parametrize("mu", [0.3, 1.0, 2.5])
def test_the_attack_allowed_is_the_tightest_over_all_epsilons(mu):
    bounds = [math.exp(e) * 1e-3 + math.exp(log_delta(e, mu)) for e in np.linspace(0, 12, 2001)]
    assert attack_tpr(mu, 1e-3) == pytest.approx(min(bounds), rel=1e-4)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, 2.0, math.nan])
def test_a_delta_outside_the_unit_interval_is_refused(delta):
    with pytest.raises(UsageError, match="delta"):
        epsilon_for_delta(delta, 1.0)
