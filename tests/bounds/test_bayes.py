import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import beta, binom

from resperturb.bounds import Bonferroni, Confusion, Given, Split, bayesian, clopper_pearson
from resperturb.bounds.bayes import UNIFORM, _posterior, _quantile
from resperturb.errors import UsageError

JEFFREYS = 0.5


@pytest.mark.parametrize("counts", [Confusion(60, 5, 100, 90), Confusion(3, 0, 50, 1000), Confusion(49, 20, 50, 40)])
@pytest.mark.parametrize("prior", [UNIFORM, JEFFREYS])
@pytest.mark.parametrize("direction", ["accept", "reject"])
def test_the_posterior_is_the_double_integral_it_claims_to_be(counts, prior, direction):
    tp, fp, members, nonmembers = counts
    tpr, fpr = beta(tp + prior, members - tp + prior), beta(fp + prior, nonmembers - fp + prior)
    epsilon, delta = 0.9, 0.01

    def integrand(rate):
        if direction == "accept":
            return fpr.pdf(rate) * tpr.cdf(min(1, np.exp(epsilon) * rate + delta))
        # 1 - FPR <= exp(epsilon) (1 - TPR) + delta, solved for the FPR at a given TPR.
        return tpr.pdf(rate) * fpr.sf(max(0, 1 - delta - np.exp(epsilon) * (1 - rate)))

    inner = (fpr if direction == "accept" else tpr).ppf([1e-9, 0.01, 0.5, 0.99, 1 - 1e-9])
    expected, _ = quad(integrand, 0, 1, points=inner, limit=500)
    assert _posterior(counts, delta, prior, direction)(epsilon) == pytest.approx(expected, abs=2e-5)


def _error_rate(size: int, tpr: float, fpr: float, epsilon: float, prior: float, alpha: float) -> float:
    """How often, exactly, the accepting bound at a fixed threshold lies above ``epsilon``."""
    hits, false_positives = binom(size, tpr), binom(size, fpr)
    total = 0.0
    for fp in range(size + 1):
        if false_positives.pmf(fp) < 1e-7:
            continue
        # More hits claim more, so there is a first count at which the truth is refuted.
        low, high = 0, size + 1
        while low < high:
            tp = (low + high) // 2
            refuted = _posterior(Confusion(tp, fp, size, size), 0.0, prior, "accept")(epsilon) <= alpha
            low, high = (low, tp) if refuted else (tp + 1, high)
        total += false_positives.pmf(fp) * hits.sf(low - 1)
    return total


@pytest.mark.parametrize(("tpr", "epsilon"), [(0.05, 0.0), (0.3, 1.0), (0.9, 2.0), (0.9, 3.0)])
def test_the_uniform_prior_errs_no_more_often_than_stated(tpr, epsilon):
    assert _error_rate(50, tpr, tpr * np.exp(-epsilon), epsilon, UNIFORM, 0.05) <= 0.05


def test_jeffreys_prior_claims_too_much_where_no_non_member_is_accused():
    # Why it is not the default.
    assert _error_rate(50, 0.9, 0.9 * np.exp(-3.0), 3.0, JEFFREYS, 0.05) > 0.09


def test_the_larger_of_both_directions_claims_too_much_for_randomised_response():
    # Why the direction is chosen beforehand: both inequalities are tight at once.
    rng, epsilon, size = np.random.default_rng(1), 2.0, 400
    right = 1 / (1 + np.exp(-epsilon))
    drawn = zip(rng.binomial(size, right, 400), rng.binomial(size, 1 - right, 400), strict=True)
    counts = [Confusion(int(tp), int(fp), size, size) for tp, fp in drawn]
    joint = np.mean([_posterior(c, 0.0, UNIFORM, "accept", "reject")(epsilon) < 0.05 for c in counts])
    single = np.mean([_posterior(c, 0.0, UNIFORM, "accept")(epsilon) < 0.05 for c in counts])
    assert joint > 0.10
    assert single <= binom.isf(1e-3, 400, 0.05) / 400


def test_the_bound_is_the_quantile_of_its_posterior_in_the_better_direction():
    members, nonmembers = np.repeat([1.0, 0.0], [60, 40]), np.repeat([1.0, 0.0], [5, 95])
    bound = bayesian(members, nonmembers, delta=0.01, confidence=0.9, thresholds=Given(1.0))
    below = _posterior(Confusion(60, 5, 100, 100), 0.01, UNIFORM, "accept")
    assert bound.direction == "accept"
    assert below(bound.epsilon) == pytest.approx(0.05, abs=1e-6)
    assert _quantile(0.05, below) == pytest.approx(bound.epsilon)
    assert any("Beta(1, 1)" in line for line in bound.assumptions)


def test_belief_says_more_than_clopper_pearson_on_the_same_split():
    rng = np.random.default_rng(2)
    members, nonmembers = rng.normal(2, 1, 500), rng.normal(0, 1, 500)
    same = {"thresholds": Split(seed=4)}
    assert bayesian(members, nonmembers, **same).epsilon > clopper_pearson(members, nonmembers, **same).epsilon > 1


def test_a_threshold_from_the_same_scores_is_refused():
    with pytest.raises(UsageError, match="other scores"):
        bayesian([1.0], [0.0], thresholds=Bonferroni())


@pytest.mark.parametrize("prior", [0.0, -1.0, np.inf])
def test_impossible_priors_are_refused(prior):
    with pytest.raises(UsageError, match="prior"):
        bayesian([1.0], [0.0], prior=prior)
