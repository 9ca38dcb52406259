"""What the missing tails of computed noise cost."""

import math

import mpmath
import pytest

from resperturb.privacy.accounting import MOST_NUMBERS, TAIL_PROBABILITY, Ledger, exact_delta, quick_bound, tail_delta


def test_tails_add_to_delta() -> None:
    exact = 3072 * (1 + mpmath.exp(8)) * mpmath.mpf(TAIL_PROBABILITY)
    assert tail_delta(8.0, numbers=3072) == pytest.approx(float(exact), rel=1e-12)
    assert tail_delta(0.0, numbers=3072) == pytest.approx(2 * 3072 * TAIL_PROBABILITY)
    assert tail_delta(8.0) == tail_delta(8.0, MOST_NUMBERS)
    assert tail_delta(math.inf) == tail_delta(1e6) == 1.0


@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0, 4.5])
@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-9])
def test_the_rest_of_delta_pays_for_the_tails_at_the_resulting_epsilon(mu: float, delta: float) -> None:
    ledger = Ledger("swap", mu=mu)
    left, enough = exact_delta(ledger, delta)
    if enough:
        assert left + tail_delta(quick_bound(ledger, left)) <= delta
    else:
        assert left == delta / 2
        assert tail_delta(quick_bound(ledger, delta / 2)) > delta / 2


def test_no_guarantee_without_noise_and_a_free_one_where_nothing_is_released() -> None:
    assert exact_delta(Ledger("swap", mu=math.inf), 1e-5) == (5e-6, False)
    left, enough = exact_delta(Ledger("swap"), 1e-5)
    assert enough
    assert left == pytest.approx(1e-5)
