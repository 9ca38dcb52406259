"""Verdicts by their rule: rows beside printed numbers, claims over paired seeds."""

from dataclasses import replace

import numpy as np
import pytest
from resperturb_reproduction.reproduce.declarations import Printed
from resperturb_reproduction.reproduce.results import ClaimFound, RowMetrics, Spread
from resperturb_reproduction.reproduce.verdicts import (
    expected_by_chance,
    in_words,
    paired_difference,
    pointing,
    row_verdict,
    spread,
)


def measured(mean: float, error: float = 0.0, count: int = 1) -> Spread:
    return Spread(mean, error, (mean,) * count, tuple(range(count)))


def verdict(paper: Printed, numbers: RowMetrics, preset: str = "paper", reduced: bool = False) -> str:
    return row_verdict(paper, numbers, preset, reduced)


@pytest.mark.parametrize(
    ("mean", "error", "count", "agrees"),
    [
        (0.509, 0.0, 1, True),  # within the fixed tolerance
        (0.511, 0.0, 1, False),
        (0.534, 0.009, 1, True),  # 0.01 + 1.96 * 0.009 * sqrt 2 = 0.0349
        (0.536, 0.009, 1, False),
        (0.541, 0.009, 4, True),  # four seeds: 0.01 + 3.18 * 0.009 * sqrt 1.25 = 0.0420
        (0.543, 0.009, 4, False),
    ],
)
def test_a_number_agrees_within_the_stated_tolerance(mean: float, error: float, count: int, agrees: bool) -> None:
    found = verdict(Printed(auc=0.5), RowMetrics(auc=measured(mean, error, count)))
    assert found.startswith("agrees") is agrees
    assert ("(one seed)" in found) is (count == 1)
    assert agrees or f"AUC {mean:.3f} against 0.500" in found


def test_what_only_a_gross_difference_could_contradict_is_undecided() -> None:
    wide = RowMetrics(auc=measured(0.52, 0.05, 3))
    assert verdict(Printed(auc=0.5), wide) == (
        "undecided: only a difference of more than 0.26 in AUC would have been seen"
    )
    assert verdict(Printed(auc=0.9), wide).startswith("differs")


def test_one_number_that_differs_is_enough() -> None:
    found = verdict(Printed(auc=0.5, test_accuracy=0.7), RowMetrics(auc=measured(0.5), test_accuracy=measured(0.6)))
    assert found == "differs (one seed): test accuracy 0.600 against 0.700"


def test_a_smoke_test_is_never_compared() -> None:
    assert verdict(Printed(auc=0.5), RowMetrics(auc=measured(0.5)), "quick", True).startswith("smoke test")


@pytest.mark.parametrize(("mean", "preset"), [(0.5, "cpu"), (0.9, "cpu"), (0.9, "paper")])
def test_reduced_settings_are_named(mean: float, preset: str) -> None:
    # The paper's settings on a subset of its images are not the paper's.
    assert "reduced settings" in verdict(Printed(auc=0.5), RowMetrics(auc=measured(mean)), preset, True)


def test_what_was_not_measured_agrees_with_nothing() -> None:
    assert verdict(Printed(auc=0.5), RowMetrics()) == "not measured: AUC"


@pytest.mark.parametrize(("seeds", "quantile"), [(2, 12.706), (3, 4.303), (20, 2.093)])  # Student, n - 1
def test_a_claim_is_tested_on_the_differences_of_pairs(seeds: int, quantile: float) -> None:
    # Quarters differ a lot between seeds, and alike in both rows: only the spread of the differences counts.
    shared = np.linspace(0.0, 0.3, seeds)
    jitter = 0.01 * np.where(np.arange(seeds) % 2, 1.0, -1.0)
    enough = quantile * float(np.std(jitter, ddof=1)) / seeds**0.5 - float(jitter.mean())
    low = spread([float(value) for value in 0.5 + shared], 0.0, range(seeds))
    near, far = (
        spread([float(value) for value in 0.5 + shared + jitter + more], 0.0, range(seeds))
        for more in (enough - 1e-4, enough + 1e-4)
    )
    assert paired_difference(low, near)[0] == "open"
    assert paired_difference(low, far)[0] == "holds"
    assert paired_difference(far, low)[0] == "fails"


def test_only_the_seeds_that_both_rows_have_are_compared() -> None:
    low = Spread(0.5, 0.1, (0.5, 0.6, 0.7), (0, 1, 2))
    high = Spread(0.65, 0.1, (0.8, 0.7), (2, 1))
    outcome, seeds, difference, _ = paired_difference(low, high)
    assert (outcome, seeds) == ("holds", 2)
    assert difference == pytest.approx(0.1)


def test_one_training_neither_holds_nor_fails() -> None:
    low, high = measured(0.5, 0.01), measured(0.7, 0.01)
    for pair in ((low, high), (high, low), (low, low), (low, measured(0.7, 0.01, 3))):
        assert paired_difference(*pair)[0] == "seen once"
    outcome, seeds, difference, interval = paired_difference(low, high)
    seen = ClaimFound("", "auc", "", "", "", outcome, seeds=seeds, difference=difference, interval=interval)
    assert in_words(seen) == "seen once (as claimed)"
    assert pointing(replace(seen, interval=(-0.3, -0.1))) == "the other way"
    assert in_words(replace(seen, interval=(-0.1, 0.3), reduced=True)) == (
        "seen once at reduced settings (no clear difference)"
    )


def test_chance_alone_decides_as_many_claims_as_are_said() -> None:
    draws = np.random.default_rng(0).normal(0.5, 0.02, size=(2000, 2, 3))
    pairs = ([spread([float(v) for v in three], 0.0, (0, 1, 2)) for three in pair] for pair in draws)
    outcomes = [paired_difference(lower, higher)[0] for lower, higher in pairs]
    expected = expected_by_chance(ClaimFound("", "auc", "", "", "", outcome) for outcome in outcomes)
    assert expected == pytest.approx(100)
    # The standard deviation of the count is 9.7.
    assert sum(outcome != "open" for outcome in outcomes) == pytest.approx(expected, abs=30)


def test_the_spread_is_over_seeds_once_there_are_several() -> None:
    assert spread([0.4], 0.03).error == 0.03
    assert spread([0.4, 0.6], 0.03).error == pytest.approx(0.02**0.5)
