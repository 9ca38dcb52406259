import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.special import ndtr, ndtri
from scipy.stats import binom, norm

from resperturb.bounds import Guesses, one_run_fdp
from resperturb.bounds.fdp import approximate_inverse, curve_refuted, gaussian_inverse, guess_grid
from resperturb.errors import UsageError
from resperturb.privacy.gaussian import epsilon_for_delta


def _most_probable_tail(tangents, canaries: int, guessed: int, correct: int) -> float:
    """The largest P[at least ``correct`` right] that the curve allows, by linear programming.

    ``1 - f`` is concave: the least of its tangents (slope, intercept).
    """
    i = np.arange(guessed + 1)
    rows, limits = [], []
    for j in range(1, guessed + 1):
        left = np.where(i >= j, i, 0) / canaries
        right = np.where(i >= j - 1, guessed - i, 0) / canaries
        for slope, intercept in tangents:
            rows.append(left - slope * right)
            limits.append(intercept)
    found = linprog(-(i >= correct).astype(float), A_ub=rows, b_ub=limits, A_eq=[np.ones(guessed + 1)], b_eq=[1.0])
    assert found.status == 0
    return -found.fun


def _largest_unrefuted(inverse, canaries: int, guessed: int, correct: int) -> float:
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if curve_refuted(inverse, canaries, guessed, correct, middle) else (middle, high)
    return high


@pytest.mark.parametrize(("canaries", "guessed", "correct"), [(20, 20, 14), (20, 20, 18), (40, 12, 12), (60, 20, 16)])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-3), (1.0, 1e-2), (2.0, 0.0)])
def test_the_recursion_finds_the_optimum_of_the_linear_program(canaries, guessed, correct, epsilon, delta):
    growth = np.exp(epsilon)
    tangents = [(0.0, 1.0), (growth, delta), (1 / growth, 1 - (1 - delta) / growth)]
    expected = _most_probable_tail(tangents, canaries, guessed, correct)
    found = _largest_unrefuted(approximate_inverse(epsilon, delta), canaries, guessed, correct)
    assert found == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("mu", [0.5, 1.5])
def test_the_recursion_finds_the_optimum_for_a_gaussian_curve(mu):
    z = np.linspace(-6, 6, 300)
    slopes = norm.pdf(z + mu) / norm.pdf(z)
    tangents = list(zip(slopes, ndtr(z + mu) - slopes * ndtr(z), strict=True))
    expected = _most_probable_tail(tangents, 40, 12, 11)
    # The tangents are slightly looser than the curve they touch.
    assert _largest_unrefuted(gaussian_inverse(mu), 40, 12, 11) == pytest.approx(expected, abs=2e-4)


@given(st.floats(1e-6, 1 - 1e-6), st.floats(0, 3), st.sampled_from([0.0, 1e-3, 0.1]))
def test_the_inverses_undo_the_curves(rate, parameter, delta):
    curve = min(1, np.exp(parameter) * rate + delta, 1 - (1 - delta - rate) * np.exp(-parameter))
    back = approximate_inverse(parameter, delta)(curve)
    assert back <= rate + 1e-9
    if curve < 1:
        assert back == pytest.approx(rate, abs=1e-9)
    gaussian = float(ndtr(ndtri(rate) + parameter))
    if gaussian < 1 - 1e-9:
        assert gaussian_inverse(parameter)(gaussian) == pytest.approx(rate, rel=1e-4)


@pytest.mark.parametrize(("correct", "looseness"), [(8, 1.1), (9, 1.03), (10, 1.000001)])
def test_without_any_privacy_loss_the_f_dp_test_is_close_to_the_binomial_one(correct, looseness):
    # At mu = 0 every guess is a fair coin, so no bound on the tail may lie below the binomial.
    exact = binom.sf(correct - 1, 10, 0.5)
    assert exact * (1 - 1e-9) <= _largest_unrefuted(gaussian_inverse(0.0), 10, 10, correct) <= exact * looseness


def test_the_grid_of_guesses_depends_on_the_number_of_canaries_alone():
    for canaries in (1, 2, 9, 100, 12_345):
        grid = guess_grid(canaries)
        assert grid == guess_grid(canaries)
        assert len(set(grid)) == len(grid)
        assert all(1 <= top + bottom <= canaries and top >= 0 and bottom >= 0 for top, bottom in grid)


def test_of_equal_scores_at_a_cut_the_wrong_guesses_count_first():
    members, nonmembers = [9.0, 5.0, 5.0, 1.0], [5.0, 0.0, -1.0, 4.0]
    assert one_run_fdp(members, nonmembers, guesses=(2, 0)).counts == Guesses(2, 0, correct=1, canaries=8)
    assert one_run_fdp(members, nonmembers, guesses=(3, 2)).counts == Guesses(3, 2, correct=4, canaries=8)


def test_the_gaussian_and_the_approximate_curve_answer_their_own_question():
    members, nonmembers = np.arange(200) + 150.0, np.arange(200) + 0.0
    gaussian = one_run_fdp(members, nonmembers, delta=1e-5, curve="gaussian")
    approximate = one_run_fdp(members, nonmembers, delta=1e-5)
    assert gaussian.epsilon == pytest.approx(epsilon_for_delta(1e-5, gaussian.mu))
    assert gaussian.epsilon > approximate.epsilon > 1
    assert any("Gaussian" in line for line in gaussian.assumptions)
    assert not any("Gaussian" in line for line in approximate.assumptions)
    assert approximate.mu is None
    assert all("probability 1/2" in bound.assumptions[0] for bound in (gaussian, approximate))


def test_the_approximate_curve_is_defined_without_delta():
    members, nonmembers = np.arange(200) + 150.0, np.arange(200) + 0.0
    assert one_run_fdp(members, nonmembers, delta=0.0).epsilon > 1


def test_an_unknown_curve_is_refused():
    with pytest.raises(UsageError, match="curve must be"):
        one_run_fdp([1.0], [0.0], curve="laplace")
