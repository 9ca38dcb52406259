"""Verdicts by their rule: rows and claims, with a spread between seeds that is known from other rows."""

from dataclasses import replace

import numpy as np
import pytest
from resperturb_reproduction.reproduce.results import Row, Spread, Trained
from resperturb_reproduction.reproduce.verdicts import (
    Spreads,
    Verdict,
    accuracy_error,
    auc_error,
    judge_claims,
    judge_row,
    quantile,
    spread,
)

from reproduction.tests.reproduce.examples import result, row

NAME, PLAIN, NOISY = "cifar10-table", "non-private", "gamma-4.5"
RECORDS = 12_500


def valued(one: Row, **values: list[float]) -> Row:
    """The row with these values, one for each seed."""
    count = len(next(iter(values.values())))
    measured: dict[str, Spread | None] = {name: spread(each, 0.004, range(count)) for name, each in values.items()}
    return replace(one, measured=measured, seeds=tuple(range(count)), runs=(f"{one.preset}-{one.key}",))


def known(multiple: float = 2.0) -> Trained:
    """Rows with three seeds, whose spread is so many times the sampling error."""
    error = multiple * accuracy_error(0.6, 10_000)
    auc = multiple * auc_error(0.6, RECORDS)
    return result(
        NAME,
        *(
            valued(
                row(NAME, key),
                auc=[0.6 - auc, 0.6, 0.6 + auc],
                test_accuracy=[0.6 - error, 0.6, 0.6 + error],
                train_accuracy=[0.6 - error, 0.6, 0.6 + error],
            )
            for key in (PLAIN, NOISY)
        ),
    )


def full(**values: list[float]) -> tuple[Row, Trained]:
    """The noisy row at full length."""
    one = valued(row(NAME, NOISY, "paper"), **values)
    return one, result(NAME, one)


def test_the_spread_of_one_seed_is_pooled_from_rows_with_several() -> None:
    one, whole = full(auc=[0.51], train_accuracy=[0.76], test_accuracy=[0.7])
    found = Spreads([known(2.0), whole]).of("test_accuracy", 0.7, whole.data_of(one), "additive")
    assert found is not None
    assert found[0] == pytest.approx(2.0 * accuracy_error(0.7, 10_000))
    assert found[1] == 2  # the three seeds of the one row with noise
    auc = Spreads([known(2.0)]).of("auc", 0.7, whole.data_of(one), "additive")
    assert auc is not None
    assert auc[0] == pytest.approx(2.0 * auc_error(0.7, RECORDS))
    assert auc[1] == 4  # both rows of the data set


def test_a_spread_below_the_sampling_error_is_not_believed() -> None:
    one, whole = full(auc=[0.51], train_accuracy=[0.76], test_accuracy=[0.7])
    found = Spreads([known(0.1)]).of("test_accuracy", 0.7, whole.data_of(one), "additive")
    assert found is not None
    assert found[0] == pytest.approx(accuracy_error(0.7, 10_000))


def test_agreement_gets_harder_with_more_seeds() -> None:
    one, whole = full(auc=[0.51], train_accuracy=[0.76], test_accuracy=[0.7])
    spreads = Spreads([known()])
    tolerances = [spreads.tolerance("auc", 0.51, whole.data_of(one), "additive", n) for n in (1, 2, 3, 10)]
    assert tolerances == sorted(tolerances, reverse=True)
    error = 2.0 * auc_error(0.51, RECORDS)
    assert tolerances[0] == pytest.approx(0.01 + quantile(4) * error * 2**0.5)


@pytest.mark.parametrize(
    ("auc", "train", "test", "word"),
    [
        (0.511, 0.760, 0.695, "supported"),
        (0.489, 0.760, 0.695, "supported"),  # as far from 0.5
        (0.45, 0.760, 0.695, "contradicted"),
        (0.511, 0.760, 0.500, "contradicted"),
    ],
)
def test_a_row_is_compared_in_every_published_number(auc: float, train: float, test: float, word: str) -> None:
    one, whole = full(auc=[auc], train_accuracy=[train], test_accuracy=[test])
    assert judge_row(one, whole, Spreads([known(0.1)])).word == word


def test_a_wide_spread_is_inconclusive_and_says_what_would_have_been_seen() -> None:
    one, whole = full(auc=[0.511], train_accuracy=[0.760], test_accuracy=[0.695])
    verdict = judge_row(one, whole, Spreads([known(20.0)]))
    assert verdict.word == "inconclusive"
    assert "only a difference above" in verdict.detail
    assert str(verdict) == "inconclusive (1 seed)"


def test_without_any_seeds_to_learn_the_spread_from_nothing_is_supported() -> None:
    one, whole = full(auc=[0.511], train_accuracy=[0.760], test_accuracy=[0.5])
    assert "spread between seeds is not known" in judge_row(one, whole, Spreads([whole])).detail


def test_what_is_not_measured_and_what_is_a_smoke_test_is_not_judged() -> None:
    one, whole = full(auc=[0.511])
    assert judge_row(one, whole, Spreads([known()])) == Verdict(
        "not measured", 1, False, "training accuracy; test accuracy"
    )
    quick = row(NAME, PLAIN, "quick")
    assert judge_row(quick, result(NAME, quick), Spreads([])).word == "not compared"


def test_a_row_of_fewer_images_than_there_are_is_not_compared_with_the_published_one() -> None:
    fifth = row("cifar10-sweep", PLAIN, "cpu")
    verdict = judge_row(fifth, result("cifar10-sweep", fifth), Spreads([known()]))
    assert (verdict.word, verdict.detail) == (
        "not compared",
        "12,500 training images",
    )


def claims(plain: list[float], noisy: list[float], metric: str = "test_accuracy") -> dict[str, Verdict]:
    whole = result(
        NAME,
        valued(row(NAME, PLAIN, "paper"), **{metric: plain}),
        valued(row(NAME, NOISY, "paper"), **{metric: noisy}),
    )
    return {found.claim.topic or "": found.verdict for found in judge_claims(whole, Spreads([known(1.0), whole]))}


def test_a_claim_is_decided_by_the_pooled_spread() -> None:
    enough = quantile(2) * 2**0.5 * accuracy_error(0.6, 10_000)
    assert claims([0.6], [0.6 + 1.1 * enough])["beats non-private"].word == "supported"
    assert claims([0.6 + 1.1 * enough], [0.6])["beats non-private"].word == "contradicted"
    within = claims([0.6], [0.6 + 0.8 * enough])["beats non-private"]
    assert within.word == "inconclusive"
    assert "would be detected" in within.detail


def test_an_auc_counts_by_its_deviation_from_one_half() -> None:
    assert claims([0.49], [0.5], "auc")["lower AUC"].word == "inconclusive"
    assert claims([0.40], [0.5], "auc")["lower AUC"].word == "supported"
    assert claims([0.60], [0.42], "auc")["lower AUC"].word == "supported"


def test_a_claim_between_two_rows_that_both_differ_says_so() -> None:
    whole = result(
        NAME,
        *(
            valued(row(NAME, key, "paper"), auc=[0.6], train_accuracy=[0.2], test_accuracy=[test])
            for key, test in ((PLAIN, 0.1), (NOISY, 0.4))
        ),
    )
    found = {f.claim.topic: f for f in judge_claims(whole, Spreads([known(1.0)]))}
    assert found["beats non-private"].both_differ
    assert "both rows differ" in found["beats non-private"].verdict.detail


def test_claims_compare_rows_of_the_best_preset_that_has_both() -> None:
    lower = result(NAME, *(row(NAME, key, seeds=3) for key in (PLAIN, NOISY)))
    best = row(NAME, PLAIN, "paper")
    both = replace(lower, made=(*lower.made, *result(NAME, best).made), rows=(*lower.rows, best))
    found = {f.claim.topic: f for f in judge_claims(both, Spreads([both]))}
    assert (found["lower AUC"].verdict.reduced, found["lower AUC"].verdict.seeds) == (True, 3)
    assert found["beats DP-SGD"].verdict.word == "not measured"


def test_chance_alone_decides_one_claim_in_twenty() -> None:
    error = accuracy_error(0.6, 10_000)
    draws = np.random.default_rng(0).normal(0.6, error, size=(1500, 2))
    # The rows that the spread is known from are drawn, too.
    outcomes = []
    for number, (plain, noisy) in enumerate(draws):
        seeds = np.random.default_rng([1, number]).normal(0.6, error, size=(2, 3))
        rows = [
            valued(row(NAME, key), test_accuracy=list(map(float, s)))
            for key, s in zip((PLAIN, NOISY), seeds, strict=True)
        ]
        whole = result(
            NAME,
            valued(row(NAME, PLAIN, "paper"), test_accuracy=[float(plain)]),
            valued(row(NAME, NOISY, "paper"), test_accuracy=[float(noisy)]),
        )
        found = {f.claim.topic: f.verdict.word for f in judge_claims(whole, Spreads([result(NAME, *rows)]))}
        outcomes.append(found["beats non-private"] != "inconclusive")
    assert np.mean(outcomes) <= 0.05 + 3 * (0.05 * 0.95 / 1500) ** 0.5


def test_the_spread_is_over_seeds_once_there_are_several() -> None:
    assert spread([0.4], 0.03).error == 0.03
    assert spread([0.4, 0.6], 0.03) == Spread(0.5, pytest.approx(0.02**0.5), (0.4, 0.6))  # type: ignore[arg-type]
