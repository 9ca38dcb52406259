"""Statistics over targets keep their rates on simulated leave-one-out audits, end to end at default arguments."""

from functools import cache

import numpy as np
import pytest
from numpy.typing import ArrayLike
from scipy.stats import binom, rankdata, t

from resperturb.bounds import attack_metrics, one_run
from resperturb.bounds.intervals import Interval
from resperturb.bounds.result import LowerBound
from resperturb.bounds.targets import (
    TargetMetrics,
    mean_estimate,
    median_bound,
    over_targets,
    paired_difference,
    target_confidence,
)
from resperturb.errors import UsageError

AUDITS, RECORDS = 400, 150


def simulated(rng: np.random.Generator, models: int, effect: float, luck: float) -> tuple[np.ndarray, np.ndarray]:
    """Scores [K, n] of LiRA with one variance for all records, and members [K, n].

    The confidence in record i of model k is the record's difficulty (sd 2), plus the effect of membership times the
    luck of the model, plus noise of sd 1.
    """
    coins = rng.random((models // 2, RECORDS)) < 0.5
    members = np.stack([coins, ~coins], axis=1).reshape(models, RECORDS)
    strength = effect * np.exp(luck * rng.normal(size=(models, 1)))
    values = rng.normal(0, 2, RECORDS) + members * strength + rng.normal(size=(models, RECORDS))
    return scored(values, members), members


def scored(values: np.ndarray, members: np.ndarray) -> np.ndarray:
    """Score each model by the models outside its pair: the likelihood ratio of two Gaussians of one variance."""
    outside = 1 - np.kron(np.eye(len(values) // 2), np.ones((2, 2)))
    sides = []
    for inside in (members, ~members):
        count = outside @ inside
        mean = (outside @ (values * inside)) / count
        square = (outside @ (values**2 * inside)) / count
        sides.append((mean, (square - mean**2).mean(axis=1, keepdims=True)))
    (inner, spread), (outer, other) = sides
    return ((values - outer) ** 2 - (values - inner) ** 2) / (spread + other)


def areas(scores: np.ndarray, members: np.ndarray) -> np.ndarray:
    ranks = rankdata(scores, axis=1)
    ins = members.sum(axis=1)
    return ((ranks * members).sum(axis=1) - ins * (ins + 1) / 2) / (ins * (scores.shape[1] - ins))


def mean_interval(values: ArrayLike, confidence: float = 0.95) -> Interval:
    return mean_estimate(values).interval(confidence)


SETTINGS = [(0.0, 0.0), (0.5, 0.5), (1.5, 1.0)]


@cache
def audits(models: int, effect: float, luck: float) -> np.ndarray:
    """The AUC of every target in every audit, [audits, K]."""
    rng = np.random.default_rng([models, int(10 * effect), int(10 * luck)])
    return np.stack([areas(*simulated(rng, models, effect, luck)) for _ in range(AUDITS)])


def many(rate: float) -> float:
    """More events than this happen in one of a thousand series of audits at this rate."""
    return float(binom.isf(1e-3, AUDITS, rate))


@pytest.mark.parametrize("models", [6, 8, 16, 32])
@pytest.mark.parametrize(("effect", "luck"), SETTINGS)
def test_the_interval_of_the_mean_covers(models: int, effect: float, luck: float) -> None:
    found = audits(models, effect, luck)
    truth = 0.5 if effect == 0 else found.mean()
    intervals = [mean_interval(one, 0.95) for one in found]
    assert sum(not low <= truth <= high for low, high in intervals) <= 0.06 * AUDITS
    assert sum(low > truth for low, _ in intervals) <= many(0.025)


def test_counting_targets_as_independent_does_not_cover() -> None:
    # The check above would notice: the same without sqrt(2) and with K - 1 degrees of freedom.
    found = audits(16, 0.0, 0.0)
    reach = t.isf(0.025, 15) * found.std(axis=1, ddof=1) / 4
    assert (np.abs(found.mean(axis=1) - 0.5) > reach).mean() > 0.1


@pytest.mark.parametrize("models", [6, 16])
def test_without_signal_the_area_is_one_half_and_the_test_keeps_its_level(models: int) -> None:
    found = audits(models, 0.0, 0.0)
    assert found.mean() == pytest.approx(0.5, abs=4 * found.mean(axis=1).std() / AUDITS**0.5)
    assert sum(mean_estimate(one).p_value(0.5) <= 0.05 for one in found) <= many(0.05)
    strong = audits(models, 1.5, 1.0)
    assert np.mean([mean_estimate(one).p_value(0.5) <= 0.05 for one in strong]) > 0.5


def test_the_partner_gives_the_coins_of_a_target_away() -> None:
    # Why the partner is no evidence: with it the mean area of audits without signal lies below 0.5.
    rng, found = np.random.default_rng(5), []
    for _ in range(200):
        coins = rng.random((5, RECORDS)) < 0.5
        members = np.stack([coins, ~coins], axis=1).reshape(10, RECORDS)
        values = rng.normal(size=members.shape)
        total, inside = values.sum(axis=0), (values * members).sum(axis=0)
        own = np.where(members, inside - values, inside) / (5 - members)
        other = np.where(members, total - inside, total - inside - values) / (4 + members)
        found.append(areas((values - other) ** 2 - (values - own) ** 2, members).mean())
    assert np.mean(found) < 0.5 - 4 * np.std(found) / len(found) ** 0.5


def test_the_jackknife_over_pairs_agrees() -> None:
    # The oracle: leave a pair of models out, as targets and as evidence, and attack again.
    rng, models, ratios = np.random.default_rng(6), 16, []
    for _ in range(150):
        coins = rng.random((models // 2, RECORDS)) < 0.5
        members = np.stack([coins, ~coins], axis=1).reshape(models, RECORDS)
        values = rng.normal(0, 2, RECORDS) + 0.5 * members + rng.normal(size=members.shape)
        whole = areas(scored(values, members), members)
        left = []
        for pair in range(models // 2):
            keep = np.arange(models) // 2 != pair
            left.append(areas(scored(values[keep], members[keep]), members[keep]).mean())
        pairs = models // 2
        error = np.sqrt((pairs - 1) / pairs * ((np.array(left) - np.mean(left)) ** 2).sum())
        low, high = mean_interval(whole, 0.95)
        ratios.append(2 * t.isf(0.025, pairs - 1) * error / (high - low))
    assert 0.8 < np.median(ratios) < 1.6


def test_metrics_over_targets_are_means_with_intervals_by_target() -> None:
    rng = np.random.default_rng(7)
    each = [attack_metrics(rng.normal(1, 1, 100 + k), rng.normal(0, 1, 120)) for k in range(8)]
    found = over_targets(each, 0.95)
    assert found.auc == pytest.approx(np.mean([one.auc for one in each]))
    assert found.auc_interval == mean_interval([one.auc for one in each], 0.95)
    assert (found.targets, found.members, found.nonmembers, found.groups) == (8, 100, 120, None)
    point = found.at_fpr(0.1)
    assert point is not None
    rates = [one.tpr_at_fpr[3].tpr for one in each]
    assert point.tpr == pytest.approx(np.mean(rates))
    assert point.interval == mean_interval(rates, 0.95)
    assert over_targets(each[:1], 0.95) is each[0]
    assert TargetMetrics.of(each[0]).tpr["0.1"] == rates[0]


def test_targets_that_agree_exactly_keep_the_interval_of_one() -> None:
    each = [attack_metrics(np.arange(20) + 20.0, np.arange(20.0))] * 6
    found = over_targets(each, 0.95)
    assert found.auc_interval == each[0].auc_interval
    assert found.p_value == each[0].p_value
    assert found.tpr_at_fpr[0].interval == each[0].tpr_at_fpr[0].interval


def target_bounds(scores: np.ndarray, members: np.ndarray, confidence: float) -> list[LowerBound]:
    return [
        one_run(row[own], row[~own], confidence=target_confidence(confidence))
        for row, own in zip(scores, members, strict=True)
    ]


def test_the_median_bound_keeps_its_rate() -> None:
    rng, claims, trials, confidence = np.random.default_rng(8), 0, 100, 0.8
    for _ in range(trials):
        scores, members = simulated(rng, 6, 0.0, 0.0)
        claims += median_bound(target_bounds(scores, members, confidence), confidence).epsilon > 0
    assert claims <= binom.isf(1e-3, trials, 1 - confidence)
    shown = median_bound(target_bounds(*simulated(rng, 6, 4.0, 0.1), 0.95), 0.95)
    assert shown.epsilon > 0.5
    assert "6 targets" in shown.correction


def test_guesses_of_several_targets_must_not_be_pooled() -> None:
    # Epsilon is 0: two models on independent coins. Guess the coins of each by those of the other.
    rng, trials, records = np.random.default_rng(9), 4000, 200
    first, second = rng.random((2, trials, records)) < 0.5
    right = (first == second).sum(axis=1)
    alone = binom.isf(0.05, records, 0.5)
    pooled = binom.isf(0.05, 2 * records, 0.5)
    assert (right > alone).mean() <= 0.06
    assert (2 * right > pooled).mean() > 0.09
    assert np.var(2 * right) == pytest.approx(2 * (2 * records / 4), rel=0.1)


def test_a_target_that_was_left_out_counts_as_a_bound_of_zero() -> None:
    base = one_run(np.arange(100.0) + 100, np.arange(100.0), confidence=0.975)
    assert median_bound([base] * 3, 0.95, targets=6).epsilon == base.epsilon
    none = median_bound([base] * 3, 0.95, targets=8)
    assert (none.epsilon, none.attack, none.confidence) == (0.0, None, 0.95)
    with pytest.raises(UsageError, match=r"0\.975"):
        median_bound([one_run([1.0], [0.0])], 0.95)


def test_a_paired_difference_covers_and_is_narrower_than_an_unpaired_one() -> None:
    # Both settings share coins and difficulty; the second one's effect is smaller.
    rng, missed, narrower, wrong = np.random.default_rng(10), 0, 0, 0
    pairs = []
    for _ in range(AUDITS):
        coins = rng.random((8, RECORDS)) < 0.5
        members = np.stack([coins, ~coins], axis=1).reshape(16, RECORDS)
        shared = rng.normal(0, 2, RECORDS) + 0.8 * rng.normal(size=members.shape)
        made = [shared + effect * members + 0.6 * rng.normal(size=members.shape) for effect in (1.0, 0.7)]
        pairs.append([areas(scored(values, members), members) for values in made])
    truth = np.mean([first - second for first, second in pairs])
    for first, second in pairs:
        found = paired_difference(first, second, 0.95)
        missed += not found.interval.low <= truth <= found.interval.high
        apart = np.hypot(*(np.diff(mean_interval(values, 0.95))[0] for values in (first, second)))
        narrower += np.diff(found.interval)[0] < apart
        wrong += paired_difference(first, second, 0.95, margin=float(truth)).equivalent
    assert missed <= 0.06 * AUDITS
    assert narrower > 0.7 * AUDITS
    # At the margin itself the settings are not equivalent.
    assert wrong <= many(0.05)


def test_words_and_wrong_input() -> None:
    equal = paired_difference([0.6, 0.61, 0.6, 0.61, 0.6, 0.61], [0.61, 0.6, 0.61, 0.6, 0.61, 0.6], 0.95)
    assert "not told apart" in equal.words
    clear = paired_difference(0.7 + 0.001 * np.arange(8), np.full(8, 0.5), 0.95)
    assert (clear.decided, clear.equivalent) == (True, False)
    assert ":" not in clear.words
    assert mean_interval([0.9, 0.8], 0.95) == (0, 1)
    for call in (
        lambda: paired_difference([0.5] * 8, [0.5] * 6, 0.95),
        lambda: mean_interval([np.nan] * 8, 0.95),
    ):
        with pytest.raises(UsageError):
            call()


def test_the_rate_of_blind_attacks_over_many_targets_is_seldom_significant() -> None:
    """Above a threshold taken from 100 non-members there are 2% of the others, not 1%."""
    rng = np.random.default_rng(11)
    significant = 0
    for _ in range(100):
        found = over_targets([attack_metrics(*rng.normal(size=(2, 100)), rates=[0.01]) for _ in range(64)], 0.95)
        significant += found.tpr_at_fpr[0].p_value < 0.025
    assert significant <= binom.ppf(0.999, 100, 0.025)
