"""One object holds the metrics of an attack: intervals cover, tests keep their level, with groups too."""

import numpy as np
import pytest
from scipy.stats import binomtest, mannwhitneyu, norm

from resperturb.bounds.attack_metrics import attack_metrics
from resperturb.bounds.intervals import binomial_interval
from resperturb.bounds.metrics import auc

TRIALS = 400


def covers(rate_wanted: float, hits: int) -> bool:
    """Return whether the number of hits is compatible with a rate of at least ``rate_wanted``."""
    return bool(binomtest(hits, TRIALS, rate_wanted, alternative="less").pvalue > 1e-3)


SIZES = [(0.0, 50, 50), (0.5, 200, 100), (1.5, 40, 60), (3.0, 60, 60)]


@pytest.mark.parametrize(("mu", "members", "nonmembers"), SIZES)
def test_the_interval_covers_the_true_area(mu: float, members: int, nonmembers: int) -> None:
    rng = np.random.default_rng(1)
    truth = norm.cdf(mu / np.sqrt(2))
    hits = 0
    for _ in range(TRIALS):
        found = attack_metrics(rng.normal(mu, 1, members), rng.normal(0, 1, nonmembers))
        hits += found.auc_interval.low <= truth <= found.auc_interval.high
    assert covers(0.93, hits), hits / TRIALS


def grouped(rng: np.random.Generator, groups: int, size: int, spread: float) -> tuple[np.ndarray, np.ndarray]:
    codes = np.repeat(np.arange(groups), size)
    return rng.normal(0, spread, groups)[codes] + rng.normal(0, 1, groups * size), codes


def test_with_groups_the_interval_covers_where_counting_records_does_not() -> None:
    rng = np.random.default_rng(2)
    with_groups = without = 0
    for _ in range(TRIALS):
        (ins, own), (outs, other) = (grouped(rng, 30, 20, 1.0) for _ in range(2))
        right = attack_metrics(ins, outs, member_groups=own, nonmember_groups=other).auc_interval
        wrong = attack_metrics(ins, outs).auc_interval
        with_groups += right.low <= 0.5 <= right.high
        without += wrong.low <= 0.5 <= wrong.high
    assert covers(0.92, with_groups), with_groups / TRIALS
    assert without / TRIALS < 0.6


PATIENTS = {
    "ten equal": lambda rng: np.full(10, 20),
    "one very large": lambda rng: rng.permutation(np.append(np.full(20, 10), 200)),
    "log-normal": lambda rng: np.ceil(rng.lognormal(2, 1.2, 30)).astype(int),
}


@pytest.mark.parametrize("sizes", PATIENTS)
def test_the_interval_by_patients_covers_whatever_their_sizes(sizes: str) -> None:
    rng, covered, above = np.random.default_rng(8), 0, 0
    for trial in range(3 * TRIALS):
        counts = PATIENTS[sizes](rng)
        mu, spread = (0.0, 1.0)[trial % 2], (0.0, 1.0, 2.0)[trial % 3]
        units = np.repeat(np.arange(len(counts)), counts)
        members = (rng.permutation(len(counts)) < len(counts) // 2)[units]
        scores = rng.normal(0, spread, len(counts))[units] + rng.normal(0, 1, len(units)) + mu * members
        found = attack_metrics(
            scores[members], scores[~members], member_groups=units[members], nonmember_groups=units[~members]
        )
        truth = norm.cdf(mu / np.sqrt(2 * (1 + spread**2)))
        covered += found.auc_interval.low <= truth <= found.auc_interval.high
        above += found.auc_interval.low > truth
    assert covered / (3 * TRIALS) >= 0.94
    assert binomtest(above, 3 * TRIALS, 0.025, alternative="greater").pvalue > 1e-3, above / TRIALS


@pytest.mark.parametrize("kind", ["records", "groups", "ties"])
def test_chance_is_called_a_leak_no_more_often_than_stated(kind: str) -> None:
    rng = np.random.default_rng(3)
    alarms = 0
    for _ in range(TRIALS):
        if kind == "groups":
            (ins, own), (outs, other) = (grouped(rng, 25, 10, 2.0) for _ in range(2))
            found = attack_metrics(ins, outs, member_groups=own, nonmember_groups=other)
        else:
            draw = (lambda n: rng.normal(size=n)) if kind == "records" else (lambda n: rng.integers(0, 2, n) * 1.0)
            found = attack_metrics(draw(100), draw(100))
        assert found.shows_leak == (found.p_value < 0.025)
        alarms += found.shows_leak
    assert binomtest(alarms, TRIALS, 0.025, alternative="greater").pvalue > 1e-3, alarms / TRIALS


def test_it_agrees_with_the_definitions() -> None:
    rng = np.random.default_rng(4)
    ins, outs = rng.normal(1, 1, 300), rng.normal(0, 1, 200)
    found = attack_metrics(ins, outs)
    assert found.auc == auc(ins, outs)
    assert found.p_value == mannwhitneyu(ins, outs, alternative="greater").pvalue
    for point, allowed in zip(found.tpr_at_fpr, (0, 0, 2, 20), strict=True):
        hits = int((ins > np.sort(outs)[-1 - allowed]).sum())
        assert point.tpr == hits / 300
        fixed = binomial_interval(hits, 300, 0.95)  # at a known threshold
        assert (
            point.interval == fixed
            if point.fpr == 0
            else point.interval.low < fixed.low < fixed.high < point.interval.high
        )


@pytest.mark.parametrize(("mu", "fpr", "nonmembers"), [(2.0, 0.01, 1000), (2.0, 0.1, 300), (0.5, 0.01, 150)])
def test_the_interval_of_a_rate_covers_it_though_its_threshold_is_estimated(
    mu: float, fpr: float, nonmembers: int
) -> None:
    """Clopper and Pearson's interval at a fixed threshold missed the rate of the first setting in 30% of audits."""
    rng = np.random.default_rng(7)
    truth, low, high = norm.sf(norm.isf(fpr) - mu), 0, 0
    for _ in range(TRIALS):
        point = attack_metrics(rng.normal(mu, 1, 1000), rng.normal(0, 1, nonmembers), rates=(fpr,)).tpr_at_fpr[0]
        low, high = low + (point.interval.low > truth), high + (point.interval.high < truth)
        assert point.estimate.interval(0.9).low >= point.interval.low
    assert covers(0.975, TRIALS - low)
    assert covers(0.975, TRIALS - high)


def test_units_of_one_record_each_are_records() -> None:
    rng = np.random.default_rng(5)
    ins, outs = rng.normal(0.5, 1, 80), rng.normal(0, 1, 70)
    single = attack_metrics(ins, outs, member_groups=np.arange(80), nonmember_groups=np.arange(70))
    assert single == attack_metrics(ins, outs)
    assert single.groups is None


def test_ties_at_the_top_are_called_tied_and_not_a_rate_of_zero() -> None:
    found = attack_metrics([1.0] * 90 + [0.0] * 10, [1.0] * 80 + [0.0] * 120)
    point = found.at_fpr(0.01)
    assert point is not None
    assert (point.tpr, point.tied) == (0.0, True)
    seen = attack_metrics([1.0, 2.0], [1.0] * 100).at_fpr(0.01)
    assert seen is not None
    assert (seen.tpr, seen.tied) == (0.5, False)


EXTREMES = [([1.0] * 30, [0.0] * 30), ([0.0] * 30, [1.0] * 30), ([1.0] * 5, [1.0] * 5)]


@pytest.mark.parametrize(("ins", "outs"), EXTREMES)
def test_extremes_have_intervals_too(ins: list[float], outs: list[float]) -> None:
    found = attack_metrics(ins, outs)
    assert 0 <= found.auc_interval.low <= found.auc <= found.auc_interval.high <= 1
    assert found.auc_interval.low < found.auc_interval.high


def test_an_attack_that_is_never_wrong_is_a_leak_and_its_interval_is_exact() -> None:
    found = attack_metrics(np.arange(50) + 50.0, np.arange(50.0))
    assert found.auc == 1.0
    # All of 50 independent pairs are ordered alike.
    assert found.auc_interval == pytest.approx((0.025 ** (1 / 50), 1.0))
    assert found.at(1 - 0.05 / 100).shows_leak
    by_group = attack_metrics(
        np.arange(50) + 50.0, np.arange(50.0), member_groups=np.arange(50) // 5, nonmember_groups=np.arange(50)
    )
    assert by_group.auc_interval.low == pytest.approx(0.025 ** (1 / 10))
    assert attack_metrics(np.arange(50.0), np.arange(50) + 50.0).auc_interval == pytest.approx(
        (0, 1 - 0.025 ** (1 / 50))
    )
