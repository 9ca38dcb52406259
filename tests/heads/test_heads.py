"""The heads: sensitivity, exactness, calibration, bad input."""

import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.utils.estimator_checks import check_estimator

import resperturb as rp
from resperturb.errors import UsageError
from resperturb.heads import Descent, OneShot, Release
from resperturb.heads.gradient import clipped_sums
from resperturb.heads.one_shot import sums
from resperturb.heads.release import noise_of
from resperturb.heads.rows import HeadRows, rows_of, unit_rows
from resperturb.privacy.dp_head import head_mu


def random_rows(seed: int, records: int = 30, d: int = 5, classes: int = 3, units: int | None = None) -> HeadRows:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(records, d)) * 10.0 ** rng.integers(-3, 4, size=(records, 1))
    unit = None if units is None else rng.integers(0, units, records)
    return rows_of(features, rng.integers(0, classes, records), classes, unit, units)


def without(rows: HeadRows, unit: int) -> HeadRows:
    """Replace the contribution of a unit by zero."""
    return replace(rows, x=np.where((rows.unit == unit)[:, None], 0, rows.x))


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    units=st.sampled_from([None, 2, 4, 12]),
    scale=st.sampled_from([0.0, 1.0, 100.0]),
    clip=st.sampled_from([0.01, 0.1, 1.0]),
)
def test_no_unit_changes_the_sum_by_more_than_one(seed: int, units: int | None, scale: float, clip: float) -> None:
    rows = random_rows(seed, records=200 if units == 2 else 30, units=units)
    weights = scale * np.random.default_rng(seed + 1).normal(size=(rows.x.shape[1], rows.classes))
    whole = clipped_sums(rows, clip)(weights)
    for unit in range(rows.units):
        assert np.linalg.norm(whole - clipped_sums(without(rows, unit), clip)(weights)) <= 1


def test_units_with_many_records_are_clipped_like_those_with_few(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = random_rows(0, records=400, units=5)
    errors = np.random.default_rng(1).normal(size=(400, 3))
    assert len(rows.large) == 5
    wanted = [np.square(rows.x[rows.unit == unit].T @ errors[rows.unit == unit]).sum() for unit in range(5)]
    assert np.allclose(rows.squares(errors), wanted)
    monkeypatch.setattr("resperturb.heads.rows.FEW", 400)
    assert np.allclose(random_rows(0, records=400, units=5).squares(errors), wanted)


def test_a_clipped_unit_uses_nearly_all_of_the_norm() -> None:
    for units in (None, 5):
        rows = random_rows(0, units=units)
        weights = 100 * np.random.default_rng(1).normal(size=(rows.x.shape[1], rows.classes))
        whole = clipped_sums(rows, 1e-3)(weights)
        moved = [np.linalg.norm(whole - clipped_sums(without(rows, u), 1e-3)(weights)) for u in range(rows.units)]
        assert 1 - 1e-4 < max(moved) <= 1


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), units=st.sampled_from([None, 4]), classes=st.integers(2, 10))
def test_no_unit_changes_the_pair_of_one_shot_by_more_than_its_sensitivity(
    seed: int, units: int | None, classes: int
) -> None:
    rows = random_rows(seed, classes=classes, units=units)
    whole = sums(rows)
    for unit in range(rows.units):
        rest = sums(without(rows, unit))
        moved = math.hypot(*(np.linalg.norm(a - b) for a, b in zip(whole, rest, strict=True)))
        assert moved <= OneShot().sensitivity(classes)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_sums_are_exact_in_any_order(seed: int) -> None:
    rows = random_rows(seed, records=500)
    order = np.random.default_rng(seed).permutation(500)
    shuffled = replace(rows, x=rows.x[order], labels=rows.labels[order], unit=rows.unit[order])
    weights = np.random.default_rng(1).normal(size=(rows.x.shape[1], rows.classes))
    assert np.array_equal(clipped_sums(rows, 0.1)(weights), clipped_sums(shuffled, 0.1)(weights))
    for a, b in zip(sums(rows), sums(shuffled), strict=True):
        assert np.array_equal(a, b)


def test_a_row_depends_on_its_record_alone() -> None:
    features = np.random.default_rng(0).normal(size=(50, 8))
    assert np.array_equal(unit_rows(features)[7], unit_rows(features[7:8])[0])
    assert np.linalg.norm(unit_rows(features * 1e200), axis=1).max() <= 1


@pytest.mark.parametrize("head", [Descent(steps=20), OneShot()])
def test_releases_carry_the_noise_that_was_calibrated_and_no_low_bits(head: Descent | OneShot) -> None:
    rows = replace(random_rows(0, records=4, d=60), x=np.zeros((4, 61)))
    mu = head_mu(3.0, 1e-5)
    released: list[Release] = []
    head.fit(rows, mu, noise_of(1), released.append)
    sigma = math.sqrt(20) / mu if isinstance(head, Descent) else math.sqrt(2 - 1 / 3) / mu
    labels = np.concatenate([r.value.ravel() for r in released if r.name != "features"])
    assert labels.std() == pytest.approx(sigma, rel=5 / math.sqrt(2 * labels.size))
    for release in released:
        assert np.array_equal(release.value * 2**30, np.round(release.value * 2**30))
        if release.name == "features":  # isotropic among symmetric matrices
            upper = release.value[np.triu_indices(61, 1)]
            assert np.array_equal(release.value, release.value.T)
            assert upper.std() == pytest.approx(sigma / math.sqrt(2), rel=0.1)
            assert np.diag(release.value).std() == pytest.approx(sigma, rel=0.4)


def test_the_noise_is_new_each_time_unless_a_seed_voids_the_guarantee() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(1000, 4)), rng.integers(0, 2, 1000)
    one, other = (rp.dp_head(X, y, classes=[0, 1]) for _ in range(2))
    assert not np.array_equal(one.coef_, other.coef_)
    seeded, again = (rp.DPHead(random_state=3, classes=[0, 1]).fit(X, y) for _ in range(2))
    assert np.array_equal(seeded.coef_, again.coef_)
    assert seeded.guarantee().claimed_epsilon == math.inf
    assert "random_state" in seeded.guarantee().words
    assert one.guarantee().epsilon == pytest.approx(3, abs=1e-6)
    assert one.guarantee().epsilon <= 3


def test_a_guarantee_has_its_numbers_and_assumptions() -> None:
    rng = np.random.default_rng(0)
    patients = pd.Series([f"p{i}" for i in rng.integers(0, 800, 1000)], name="patient")
    X, y = rng.normal(size=(1000, 4)), rng.choice(["ill", "well"], 1000)
    proven = rp.dp_head(X, y, groups=patients, classes=["well", "ill"], epsilon=1).guarantee()
    assert proven.protects.startswith("one patient, all of its records")
    assert proven.records == patients.nunique()
    assert proven.max_auc == pytest.approx(0.575, abs=5e-4)
    assert "0.575" in str(proven)
    assert proven.to_dict()["max_auc"] == proven.max_auc
    read = replace(proven, ledger=None)  # a file keeps no ledger
    assert proven.max_auc <= read.max_auc < proven.max_auc + 1e-3
    assert proven.as_swap().epsilon == pytest.approx(
        rp.privacy.dp_head.head_guarantee(mu=2 * proven.details["mu"], delta=1e-5, head="", records=1).epsilon
    )
    assert proven.as_swap().compares == "data sets in which one patient is replaced by another (swap)."
    assert not any("read from the labels" in a.statement for a in proven.assumptions)
    unnamed = rp.dp_head(X, y, epsilon=1).guarantee()
    assert any("because of a single record" in a.statement for a in unnamed.assumptions)
    grouped = rp.dp_head(X, y, groups=patients, epsilon=1).guarantee()
    assert any("because of a single patient" in a.statement for a in grouped.assumptions)


def test_without_noise_nothing_is_proven_and_the_head_learns() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 600)
    X = rng.normal(size=(600, 6)) + 3 * np.eye(6)[y]
    head = rp.dp_head(X, y, epsilon=math.inf)
    assert head.score(X, y) > 0.9
    assert head.guarantee().epsilon == math.inf


@pytest.mark.parametrize("head", ["gradient", "one-shot"])
def test_it_follows_the_conventions_of_scikit_learn(head: str) -> None:
    results = check_estimator(rp.DPHead(head=head), on_fail=None, on_skip=None)
    failed = [result["check_name"] for result in results if result["status"] == "failed"]
    assert not failed


def test_a_class_that_does_not_occur_is_no_error_for_that_would_tell_of_records() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(900, 4)), rng.integers(0, 2, 900)
    head = rp.dp_head(X, y, classes=[0, 1, 2])
    assert head.predict_proba(X).shape == (900, 3)


@pytest.mark.filterwarnings("ignore:.*are few")
def test_few_patients_are_warned_of_by_a_public_rule() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 4)), np.arange(400) % 2
    with pytest.warns(UserWarning, match=r"100 patients are few .* About 210 patients"):
        rp.dp_head(X, y, groups=pd.Series(np.arange(400) // 4, name="patient"), classes=[0, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rp.dp_head(X, y, classes=[0, 1])
    with pytest.warns(
        UserWarning, match=r"400 records are few .* With ten classes .* accuracy .* About 4,180 records"
    ):
        rp.dp_head(X, y, classes=[0, 1, 2])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": np.full((40, 3), np.nan)}, "row 0 of the features is not finite"),
        ({"features": np.arange(40.0)}, r"got 1D array instead\.$"),
        ({"labels": np.linspace(0, 1, 40)}, "continuous"),
        ({"features": np.zeros((39, 3))}, "39"),
        ({"labels": [7] * 40}, "classes does not name: 7"),
        ({"classes": [0]}, "more than one class"),
        ({"classes": [0, 1, 1]}, "twice"),
        ({"groups": [1, 2]}, "one group per record"),
        ({"groups": [None, *range(39)]}, "missing"),
        ({"groups": pd.Series([pd.NA, *map(str, range(39))])}, "missing"),
        ({"groups": np.ma.masked_array(np.arange(40), mask=np.arange(40) < 9)}, "groups is a masked array"),
        ({"features": np.ma.masked_array(np.zeros((40, 3)), mask=True)}, "X is a masked array"),
        ({"features": pd.DataFrame(np.zeros((40, 3))), "groups": pd.Series(range(40), range(40, 0, -1))}, "indexes"),
        ({"features": pd.DataFrame(np.zeros((40, 3))), "labels": pd.Series([0, 1] * 20, range(1, 41))}, "indexes"),
        ({"head": "deep"}, "known are gradient, one-shot"),
        ({"settings": OneShot()}, "takes settings of Descent"),
        ({"epsilon": -1}, "epsilon"),
        ({"epsilon": -math.inf}, "epsilon"),
        ({"delta": 0}, "delta"),
        ({"epsilon": 60, "delta": 1e-9}, "tails"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(change: dict[str, object], message: str) -> None:
    given = {"features": np.zeros((40, 3)), "labels": np.arange(40) % 2, "classes": [0, 1], **change}
    with pytest.raises(UsageError, match=message):
        rp.dp_head(given.pop("features"), given.pop("labels"), **given)  # type: ignore[arg-type]


def _fail(release: Release) -> None:
    raise RuntimeError("stopped")


@pytest.mark.filterwarnings("ignore:.*are few")
@pytest.mark.parametrize(
    ("classes", "more"),
    [(1, {}), (3, {"groups": [1, 2]}), (3, {"on_release": _fail})],
    ids=["y", "groups", "release"],
)
def test_a_fit_that_fails_leaves_the_head_as_it_was(classes: int, more: dict[str, Any]) -> None:
    X, y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 2
    head = rp.DPHead().fit(pd.DataFrame(X, columns=list("abc")), y)
    before, expected = dict(vars(head)), head.predict(pd.DataFrame(X, columns=list("abc")))
    wider = np.ones((60, 5))
    with pytest.raises((UsageError, RuntimeError)):
        head.fit(wider, np.arange(60) % classes, **more)
    assert vars(head) == before
    assert (head.predict(pd.DataFrame(X, columns=list("abc"))) == expected).all()
    assert head.fit(wider, np.arange(60) % 3).coef_.shape[0] == 3
    assert not hasattr(head, "feature_names_in_")
