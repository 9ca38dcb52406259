"""Comparisons at equal accuracy keep their error rates on simulated settings, and find true differences."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from resperturb.bounds.arrays import Floats
from resperturb.errors import UsageError
from resperturb.frontiers.compare import best_of, compare, comparisons_of
from resperturb.frontiers.curve import CANARY_AUC, CANARY_TPR, Curve, leaks_of, tpr
from tests.bounds.test_targets import scored

STAGES = ("2", "4", "8", "16")
SERIES = 300


def curve(
    rng: np.random.Generator, name: str, ordinary: bool, shift: float = 0.0, targets: int = 16, luck: object = None
) -> Curve:
    """A curve whose leak grows by 0.5 per unit of accuracy; targets share their luck over settings and stages."""
    accuracy = np.array([0.5, 0.6, 0.66, 0.7])[:, None] + rng.normal(0, 0.01, (4, targets))
    shared = rng.normal(0, 0.02, targets) if luck is None else np.asarray(luck)
    leak = 0.5 + 0.5 * (accuracy - 0.4) + shift + shared + rng.normal(0, 0.01, (4, targets))
    return curve_of(name, ordinary, STAGES, accuracy, leak)


def curve_of(name: str, ordinary: bool, stages: tuple[str, ...], accuracy: Floats, leak: Floats) -> Curve:
    known = {"targets": np.arange(accuracy.shape[1]), "stages": stages, "accuracy": accuracy}
    return Curve(name, name.split()[0], ordinary, leaks={"AUC": leak}, **known)


def study(rng: np.random.Generator, shift: float, targets: int = 16) -> list[Curve]:
    luck = rng.normal(0, 0.02, targets)
    ordinary = [curve(rng, f"{name} 1", True, 0.0, targets, luck) for name in ("none", "dropout", "decay", "augment")]
    defended = [curve(rng, f"noise {level}", False, shift, targets, luck) for level in (1, 2, 3)]
    return [*ordinary, *map(stopped, defended)]


def stopped(one: Curve) -> Curve:
    """The same without its last checkpoint."""
    return replace(one, stages=one.stages[:3], accuracy=one.accuracy[:3], leaks={"AUC": one.leaks["AUC"][:3]})


def test_settings_that_leak_alike_rarely_differ() -> None:
    rng = np.random.default_rng(0)
    wrong = 0
    for _ in range(SERIES):
        found = [one for one in compare(study(rng, 0.0)) if one.setting.startswith("noise")]
        assert len(found) == 3
        wrong += any(one.verdict in ("leaks less", "leaks more") for one in found)
    assert wrong <= binom.isf(1e-3, SERIES, 0.05)


def test_a_defence_that_leaks_less_is_found_and_one_that_does_not_is_equivalent() -> None:
    rng = np.random.default_rng(1)
    better = compare(study(rng, -0.08, 32))
    assert {one.verdict for one in better if one.setting.startswith("noise")} == {"leaks less"}
    same = compare(study(rng, 0.0, 64))
    assert {one.verdict for one in same if one.setting.startswith("noise")} == {"equivalent"}
    worse = compare(study(rng, 0.08, 32))
    assert {one.verdict for one in worse if one.setting.startswith("noise")} == {"leaks more"}
    assert all("at accuracy 0.6" in one.sentence for one in better if one.setting.startswith("noise"))


def test_equivalence_is_rarely_claimed_of_a_difference_of_the_margin() -> None:
    rng = np.random.default_rng(2)
    claims = [
        one.verdict == "equivalent"
        for _ in range(SERIES)
        for one in compare(study(rng, 0.02))
        if one.setting == "noise 1"
    ]
    assert len(claims) == SERIES
    assert sum(claims) <= binom.isf(1e-3, SERIES, 0.05)


def test_equal_accuracy_is_interpolation() -> None:
    accuracy = np.array([0.5, 0.7])[:, None] * np.ones(8)
    leak = np.array([0.6, 0.8])[:, None] * np.ones(8)
    plain = curve_of("none", True, ("5", "10"), accuracy, leak)
    point = np.full((1, 8), 0.55)
    defended = curve_of("noise 1", False, ("",), point, np.full((1, 8), 0.65))
    (found,) = compare([plain, defended])
    assert found.difference.mean == pytest.approx(0.0, abs=1e-12)
    assert found.comparators == ("none stopped at 5 to 10",)


def steep(rng: np.random.Generator, accuracy: list[float], leak: list[float], luck: Floats) -> tuple[Floats, Floats]:
    """Accuracies and leaks of 16 targets that share the luck of their coins over settings."""
    shape = (len(accuracy), 16)
    return (
        np.array(accuracy)[:, None] + 0.004 * luck[0] + rng.normal(0, 0.003, shape),
        np.array(leak)[:, None] + 0.008 * luck[1] + rng.normal(0, 0.006, shape),
    )


def test_where_accuracy_stands_still_and_the_leak_grows_the_interval_knows_it() -> None:
    rng = np.random.default_rng(9)
    covered = []
    for _ in range(200):
        luck = rng.normal(size=(2, 1, 16))
        plain = steep(rng, [0.66, 0.70, 0.735, 0.74], [0.60, 0.66, 0.78, 0.82], luck)
        halfway = steep(rng, [0.7375], [0.80], luck)
        found = compare([curve_of("none", True, STAGES, *plain), curve_of("noise 1", False, ("",), *halfway)])
        covered += [one.difference.interval.low <= 0 <= one.difference.interval.high for one in found]
    assert np.mean(covered) >= 0.9


def test_a_setting_measured_a_little_above_all_others_is_not_compared_with_less_accurate_checkpoints() -> None:
    rng = np.random.default_rng(10)
    accuracy, leak = [0.68, 0.71, 0.73, 0.74], [0.60, 0.66, 0.76, 0.84]
    found = []
    for _ in range(100):
        luck = rng.normal(size=(2, 1, 16))
        plain, twin = steep(rng, accuracy, leak, luck), steep(rng, accuracy[-1:], leak[-1:], luck)
        found += compare([curve_of("none", True, STAGES, *plain), curve_of("twin", False, ("",), *twin)])
    assert sum(one.verdict == "leaks more" for one in found) <= 10
    assert any(one.comparators == (f"none (accuracy {one.accuracy:.3f})",) for one in found)


def test_a_smaller_leak_at_a_lower_accuracy_is_no_verdict() -> None:
    ones = np.ones((1, 8))
    plain = curve_of("none", True, ("",), 0.8 * ones, 0.7 * ones)
    blunt = curve_of("blunt 1", False, ("",), 0.2 * ones, 0.55 * ones)
    worse = curve_of("worse 1", False, ("",), 0.7 * ones, 0.8 * ones)
    found = {one.setting: one for one in compare([plain, blunt, worse])}
    assert (found["blunt 1"].verdict, found["worse 1"].verdict) == ("not comparable", "leaks more")
    assert "than none (accuracy 0.800) at accuracy 0.200" in found["blunt 1"].sentence
    assert found["blunt 1"].sentence.endswith("none of its accuracy was measured.")


def test_heuristics_are_compared_with_a_formal_method_at_their_accuracy() -> None:
    rng = np.random.default_rng(7)
    luck = rng.normal(0, 0.02, 32)
    plain = curve(rng, "none", True, 0.0, 32, luck)
    noise = stopped(curve(rng, "noise 1", False, 0.05, 32, luck))
    private = replace(curve(rng, "dpsgd 1", False, 0.0, 32, luck), formal=True, epsilon=1e4)
    found = {(one.setting, one.against): one for one in comparisons_of([plain, noise, private], 0.95, 0.02)}
    assert set(found) == {("noise 1", ""), ("dpsgd 1", ""), ("none", "dpsgd"), ("noise 1", "dpsgd")}
    assert found["noise 1", "dpsgd"].verdict == "leaks more"
    assert found["none", "dpsgd"].verdict == "equivalent"
    assert "than dpsgd 1 (epsilon 1e+04)" in found["noise 1", "dpsgd"].sentence


def test_a_setting_more_accurate_than_all_regularisers_has_no_comparator() -> None:
    rng = np.random.default_rng(3)
    best = curve_of("noise 1", False, ("",), np.full((1, 8), 0.9), np.full((1, 8), 0.6))
    assert [one.setting for one in compare([curve(rng, "none", True, targets=8), best])] == []


def test_a_setting_as_accurate_up_to_chance_has_a_comparator() -> None:
    ones = np.ones((1, 8))
    plain = curve_of("none", True, ("",), 0.7 * ones, 0.7 * ones)
    smooth = curve_of("smooth 0.1", False, ("",), 0.705 * ones, 0.6 * ones)
    assert [one.comparators for one in compare([plain, smooth])] == [("none (accuracy 0.700)",)]


def test_settings_are_compared_on_the_targets_that_both_have() -> None:
    rng = np.random.default_rng(4)
    first, second = curve(rng, "none", True, targets=12), stopped(curve(rng, "noise 1", False, targets=12))
    (found,) = compare([first.on(np.arange(2, 12)), second])
    assert found.difference.targets == 10
    assert compare([first.on(np.arange(6, 12)), second]) == ()


def test_a_regulariser_with_too_few_models_does_not_stop_the_comparison_with_others() -> None:
    rng = np.random.default_rng(4)
    plain, noise = curve(rng, "none", True, targets=8), stopped(curve(rng, "noise 1", False, targets=8))
    unlearned = curve(rng, "decay 1", True, targets=8).on(np.arange(4))
    (found,) = compare([plain, unlearned, noise])
    assert found.difference.targets == 8
    assert "decay" not in found.sentence


def test_choosing_on_one_half_does_not_favour_the_comparator() -> None:
    rng = np.random.default_rng(5)
    means = [
        best_of({str(k): rng.normal(size=16) for k in range(30)}, np.arange(16) // 2)[1].mean() for _ in range(400)
    ]
    assert abs(np.mean(means)) < 4 * 0.25 / np.sqrt(400)


def simulated(rng: np.random.Generator, effect: float, models: int = 16) -> tuple[np.ndarray, np.ndarray]:
    coins = rng.random((models // 2, 60)) < 0.5
    members = np.stack([coins, ~coins], axis=1).reshape(models, 60)
    values = rng.normal(0, 2, 60) + members * effect + rng.normal(size=(models, 60))
    return scored(values, members), members


def few_canaries(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores of 12 canaries in 64 models, each canary with its own strength, under a new draw of the coins."""
    own = np.random.default_rng(0)
    strength, base = 2.5 + own.normal(size=12), 0.7 * own.normal(size=12)
    coins = rng.random((32, 12)) < 0.5
    members = np.stack([coins, ~coins], axis=1).reshape(64, 12)
    noise = rng.standard_t(4, (count, 64, 12))
    return base + members * strength + noise, members


def test_the_interval_of_a_tpr_on_few_canaries_covers_and_choosing_on_one_half_does_not_favour_it() -> None:
    from resperturb.bounds.targets import mean_estimate

    rng = np.random.default_rng(8)
    kinds = np.array(["record"] * 2 + ["mislabelled"] * 12)
    records = np.tile(np.eye(2, dtype=bool), (32, 1))
    found, chosen = [], []
    for _ in range(60):
        scores, members = few_canaries(rng, 10)
        every = np.hstack([records, members])
        rates = {
            str(k): leaks_of(np.hstack([records, one]), every, kinds, np.arange(14))[CANARY_TPR]
            for k, one in enumerate(scores)
        }
        found.append(mean_estimate(rates["0"]))
        chosen.append(best_of(rates, np.arange(64) // 2)[1].mean())
    truth = np.mean([one.value for one in found])
    covered = sum(one.interval(0.95).low <= truth <= one.interval(0.95).high for one in found)
    assert covered >= binom.ppf(1e-3, 60, 0.95)
    assert abs(np.mean(chosen) - truth) < 0.06


@pytest.mark.parametrize(("endpoint", "statistic"), [(CANARY_AUC, "auc"), (CANARY_TPR, "tpr")])
def test_intervals_of_canaries_that_are_pooled_over_targets_cover(endpoint: str, statistic: str) -> None:
    from resperturb.bounds.targets import mean_estimate

    rng = np.random.default_rng(6)
    kinds, units = np.full(60, "mislabelled"), np.arange(60)
    kinds[:20] = "record"
    found = []
    for _ in range(200):
        scores, members = simulated(rng, 1.0)
        found.append(mean_estimate(leaks_of(scores, members, kinds, units)[endpoint]))
    truth = np.mean([one.value for one in found])
    covered = sum(one.interval(0.95).low <= truth <= one.interval(0.95).high for one in found)
    assert covered >= binom.ppf(1e-3, 200, 0.93), statistic


def test_scores_of_a_patient_are_averaged() -> None:
    units = np.array([0, 0, 1, 1])
    members = np.array([[True, True, False, False], [False, False, True, True]])
    scores = np.array([[3.0, -1.0, 0.0, 1.0], [0.0, 0.0, 1.0, 1.0]])
    kinds = np.full(4, "record")
    assert leaks_of(scores, members, kinds, units)["AUC"].tolist() == [1.0, 1.0]
    with pytest.raises(UsageError, match="patient"):
        leaks_of(scores, members, kinds, np.array([0, 1, 1, 0]))


def test_tpr_counts_members_above_all_but_the_allowed_nonmembers() -> None:
    outs = np.arange(100.0)
    assert tpr(np.array([98.5, 99.5, 10.0]), outs, 0.01) == pytest.approx(2 / 3)
    assert tpr(np.array([98.5, 99.5, 10.0]), outs, 0.0) == pytest.approx(1 / 3)
    assert tpr(np.array([5.0, 5.0]), np.array([5.0, 5.0]), 0.5) == 0.0
