"""Tests of curves at ranks: against simulation, and stronger than limits of each rate by itself."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import beta, binom

from resperturb.bounds import Given, clopper_pearson, gdp
from resperturb.bounds.ranks import RankTest, rank_grid, rank_p_value, rank_tests
from resperturb.bounds.rates import dp_curve


@pytest.mark.parametrize(
    ("rank", "size", "beyond", "trials"), [(1, 20, 9, 30), (10, 20, 26, 30), (5, 200, 3000, 20_000)]
)
@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_the_p_value_is_the_integral_and_never_below_it(rank, size, beyond, trials, epsilon):
    curve = dp_curve(epsilon, 1e-3)

    def integrand(u: float) -> float:
        return beta.pdf(u, rank, size - rank + 1) * binom.sf(beyond - 1, trials, float(curve(np.array(u))))

    exact = quad(integrand, 0, 1, limit=2000, points=np.linspace(0, 1, 200)[1:-1])[0]
    found = rank_p_value(RankTest("accept", rank, size, beyond, trials), curve)
    assert exact * (1 - 1e-6) <= found <= 1.1 * exact + 1e-12


def test_ranks_count_the_scores_beyond_each_threshold():
    members, nonmembers = np.array([1.0, 5.0, 6.0, 7.0]), np.array([0.0, 2.0, 3.0, 5.5])
    found = {(test.direction, test.rank): test.beyond for test in rank_tests(members, nonmembers)}
    assert found == {("accept", 2): 3, ("accept", 1): 2, ("reject", 2): 3, ("reject", 1): 1}


def test_a_tie_lies_beyond_no_score():
    members, nonmembers = np.array([1.0, 2.0, 2.0, 3.0]), np.array([0.0, 1.0, 2.0, 2.0])
    found = {(test.direction, test.rank): test.beyond for test in rank_tests(members, nonmembers)}
    assert found == {("accept", 2): 1, ("accept", 1): 1, ("reject", 2): 2, ("reject", 1): 1}


def test_one_odd_record_among_equal_scores_shows_nothing():
    odd = np.eye(1, 40)[0]
    for members, nonmembers in ((odd, np.zeros(40)), (np.zeros(40), -odd)):
        for bound in (clopper_pearson, gdp):
            assert bound(members, nonmembers).epsilon == 0


def test_the_grid_depends_on_the_number_of_scores_alone_and_ends_at_one():
    for size in (1, 2, 7, 100, 12_345):
        grid = rank_grid(size)
        assert len(set(grid)) == len(grid)
        assert grid[-1] == 1
        assert all(1 <= rank <= size for rank in grid)


@pytest.mark.parametrize("size", [50, 200, 1000])
@pytest.mark.parametrize("mu", [1.0, 2.0])
def test_ranks_show_more_than_a_threshold_that_was_given(size, mu):
    # Although the threshold is a good one, and the ranks share their error among many.
    rng = np.random.default_rng(0)
    audits = [(rng.normal(mu, 1, size), rng.normal(0, 1, size)) for _ in range(20)]
    for bound in (clopper_pearson, gdp):
        ranks, given = (
            np.mean([bound(*scores, **options).epsilon for scores in audits])
            for options in ({}, {"thresholds": Given(mu)})
        )
        assert ranks > given


def test_a_bound_by_ranks_says_where_it_comes_from():
    scores = np.linspace(-1, 1, 500)
    bound = clopper_pearson(scores + 1, scores)
    above = [int((side >= bound.threshold).sum()) for side in (scores + 1, scores)]
    assert bound.direction in ("accept", "reject")
    assert abs(bound.counts.tp - above[0]) <= 1
    assert abs(bound.counts.fp - above[1]) <= 1
    assert "fixed ranks" in bound.selection
