"""Crafted records show nearly the proven epsilon, and refute broken heads."""

from collections.abc import Callable
from unittest.mock import patch

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr, ndtri, softmax

from resperturb.bounds.arrays import Floats
from resperturb.bounds.rates import Given, gdp
from resperturb.heads import Descent, OneShot, Release, audit_head, gradient
from resperturb.heads.gradient import Contributions, clipped_sums
from resperturb.heads.one_shot import sums
from resperturb.heads.release import noise_of, noisy
from resperturb.heads.rows import HeadRows, rows_of
from resperturb.heads.worst_case import crafted_rows
from resperturb.privacy.accounting import Ledger, largest_auc
from resperturb.privacy.dp_head import head_mu

MU = head_mu(3.0, 1e-5)
# The rate is so small that the crafted record is not learned and stays clipped.
SETTINGS = Descent(steps=20, rate_factor=1e-3)


def test_at_epsilon_10_at_least_7_is_shown_as_a_test_of_the_gaussian_claim() -> None:
    audit = audit_head(Descent(steps=50), epsilon=10.0, trainings=2000)
    assert 7 <= audit.gaussian.epsilon <= 11  # above 10 with probability 5% at most, above 11 hardly ever
    assert 1.5 <= audit.any_curve.epsilon <= 5  # without a curve, that many trainings show no more
    assert "as a test of the Gaussian claim" in str(audit)


def shown(members: list[float], nonmembers: list[float]) -> float:
    """The mu that scores refute, at a threshold half-way between the first 50 of both, which are then left out."""
    threshold = (np.median(members[:50]) + np.median(nonmembers[:50])) / 2
    return gdp(members[50:], nonmembers[50:], thresholds=Given(float(threshold)), confidence=0.999).mu or 0.0


def scores(
    contributions: Callable[[bool], Contributions],
    shape: tuple[int, int],
    statistic: Callable[[list[Release]], float],
    noise: Callable[[], Callable[[tuple[int, ...]], Floats]] = noise_of,
    trainings: int = 250,
) -> float:
    found, first = {}, np.zeros(1, dtype=int)
    rows = HeadRows(np.zeros((1, shape[0])), first, shape[1], first, 1000)
    for present in (True, False):
        total = contributions(present)

        def score(total: Contributions = total) -> float:
            releases: list[Release] = []
            with patch.object(gradient, "clipped_sums", lambda rows, clip: total):
                SETTINGS.fit(rows, MU, noise(), releases.append)
            return statistic(releases)

        found[present] = [score() for _ in range(trainings)]
    return shown(found[True], found[False])


def towards_label(releases: list[Release]) -> float:
    return float(sum(release.value[0, 0] - release.value[0, 1] for release in releases))


def zeroed(rows: HeadRows, present: bool, unit: int = 0) -> HeadRows:
    x = rows.x if present else np.where((rows.unit == unit)[:, None], 0, rows.x)
    return HeadRows(x, rows.labels, rows.classes, rows.unit, rows.units)


def test_the_head_itself_is_not_refuted() -> None:
    rows = crafted_rows()
    assert scores(lambda present: clipped_sums(zeroed(rows, present), 0.1), (7, 2), towards_label) <= MU


def test_no_clipping_is_refuted() -> None:
    rows = crafted_rows()
    long = HeadRows(np.where((rows.unit == 0)[:, None], 5 * rows.x, rows.x), rows.labels, 2, rows.unit, rows.units)

    def contributions(present: bool) -> Contributions:
        given = zeroed(long, present)

        def total(weights: Floats) -> Floats:
            sums: Floats = given.x.T @ (softmax(given.x @ weights, axis=1) - given.targets)
            return sums

        return total

    assert scores(contributions, (7, 2), towards_label) > MU


def test_clipping_per_record_is_refuted_where_the_claim_is_per_patient() -> None:
    rows = crafted_rows()
    five = np.r_[np.zeros(5, dtype=int), 1:20]
    records = HeadRows(rows.x[five], rows.labels[five], 2, np.arange(24), 1000)
    patient = HeadRows(records.x, records.labels, 2, np.r_[np.zeros(5, dtype=int), 1:20], 1000)

    def per_record(present: bool) -> Contributions:
        x = records.x * (present | (np.arange(24) >= 5))[:, None]
        return clipped_sums(HeadRows(x, records.labels, 2, records.unit, 1000), 0.1)

    assert scores(per_record, (7, 2), towards_label) > MU
    assert scores(lambda present: clipped_sums(zeroed(patient, present), 0.1), (7, 2), towards_label) <= MU


def test_centring_by_the_private_mean_is_refuted() -> None:
    # All other records are alike, so that the mean without them is nothing but the crafted record.
    features = np.tile([1.0, 0.0, 0.0], (20, 1))
    features[0] = [1.0, 1.0, 0.0]
    labels = np.ones(20, dtype=int)

    def contributions(present: bool) -> Contributions:
        given = features.copy()
        if not present:
            given[0] = 0
        mean = given.sum(axis=0) / 20
        return clipped_sums(rows_of(given - mean, labels, 2, np.arange(20), 1000), 0.1)

    def in_the_other_coordinate(releases: list[Release]) -> float:
        return float(sum(release.value[1, 1] - release.value[1, 0] for release in releases))

    assert scores(contributions, (4, 2), in_the_other_coordinate) > MU


def test_noise_that_is_used_again_is_refuted_by_releases_of_two_steps_only() -> None:
    rows = crafted_rows()

    def repeated() -> Callable[[tuple[int, ...]], Floats]:
        drawn = noise_of()((7, 2))
        return lambda shape: drawn

    def total(present: bool) -> Contributions:
        return clipped_sums(zeroed(rows, present), 1.0)  # not clipped, so that it changes from step to step

    def difference(releases: list[Release]) -> float:
        return abs(float((releases[-1].value - releases[0].value)[0, 0]))

    assert scores(total, (7, 2), towards_label, repeated) <= MU
    assert scores(total, (7, 2), difference, repeated) > MU


def test_one_shot_with_one_noise_for_both_releases_is_refuted() -> None:
    sigma = OneShot().sigma(MU, classes=2)

    def score(for_features: Floats, for_labels: Floats, shared: bool) -> float:
        noise = noise_of()
        square = noise(for_features.shape)
        normals = (square + square.T) / 2
        released = noisy(for_features, sigma, normals)
        other = noisy(for_labels, sigma, normals[:, :2] if shared else noise(for_labels.shape))
        # Both have the same noise at the crafted coordinate, so their difference has none.
        return float(released[0, 0] - other[0, 0])

    totals = {present: sums(zeroed(crafted_rows(), present)) for present in (True, False)}
    found = {
        shared: {present: [score(*total, shared) for _ in range(250)] for present, total in totals.items()}
        for shared in (True, False)
    }
    assert shown(found[True][True], found[True][False]) > MU
    assert shown(found[False][True], found[False][False]) <= MU


def test_the_largest_attack_auc_is_that_of_the_curve() -> None:
    area = quad(lambda x: ndtr(ndtri(x) + MU), 0, 1)[0]
    assert largest_auc(Ledger("add_remove", mu=MU), 3.0, 1e-5) == pytest.approx(area, abs=1e-6)
