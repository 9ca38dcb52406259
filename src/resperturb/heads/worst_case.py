"""Audit a head with the worst case: train it many times with and without a crafted record, and test the claim.

The record has features in a coordinate in which no other record has any. Clients may hand in such features, so the
pair is a legal one, and on it the Gaussian mechanism shows all that its mu allows.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr

from resperturb.bounds.rates import Given, clopper_pearson, gdp
from resperturb.bounds.result import LowerBound
from resperturb.checks import count
from resperturb.heads.gradient import Descent
from resperturb.heads.one_shot import OneShot
from resperturb.heads.release import Release, noise_of
from resperturb.heads.rows import HeadRows, rows_of
from resperturb.privacy.dp_head import head_mu

_RECORDS, _FEATURES, _LABEL = 20, 6, 1
# Many units lower the learning rate, so that the crafted record is not learned and stays clipped.
_UNITS = 1000


@dataclass(frozen=True)
class HeadAudit:
    """What many trainings of a head showed, next to what is proven.

    Attributes:
        trainings: The number of trainings, half of them with the crafted record.
        gaussian: Test of the claim "mu-GDP"; its epsilon follows from the largest mu refuted.
        any_curve: Bound for any mechanism, without a curve; it needs far more trainings to come near.
    """

    epsilon: float
    mu: float
    trainings: int
    gaussian: LowerBound
    any_curve: LowerBound

    def __str__(self) -> str:
        return (
            f"Proven: epsilon {self.epsilon:g} (mu {self.mu:.3f}, attack AUC at most "
            f"{ndtr(self.mu / math.sqrt(2)):.3f}). Shown by {self.trainings:,} trainings: at least "
            f"{self.gaussian.epsilon:.2f} as a test of the Gaussian claim, {self.any_curve.epsilon:.2f} without a "
            "curve."
        )


def audit_head(
    settings: Descent | OneShot | None = None,
    *,
    epsilon: float = 10.0,
    delta: float = 1e-5,
    trainings: int = 2000,
    confidence: float = 0.95,
) -> HeadAudit:
    """Train a head on a crafted pair of data sets and bound what it shows.

    The threshold of the Gaussian test is fixed beforehand at mu/2, half-way between the two distributions claimed.

    Args:
        settings: The head; None for gradient descent with its defaults.
        epsilon: The claimed epsilon.
        delta: The claimed delta.
        trainings: The number of trainings, half of them with the crafted record.
        confidence: The confidence of each bound.

    Returns:
        Both bounds, next to the claim.

    >>> audit = audit_head(OneShot(), epsilon=10.0, trainings=400)
    >>> 4 < audit.gaussian.epsilon < 15
    True
    """
    head = Descent() if settings is None else settings
    count("trainings", trainings)
    mu = head_mu(epsilon, delta)
    with_record = crafted_rows()
    x = with_record.x.copy()
    x[0] = 0
    without = replace(with_record, x=x)

    def score(rows: HeadRows) -> float:
        releases: list[Release] = []
        head.fit(rows, mu, noise_of(), releases.append)
        return head.crafted(releases, rows.classes, 0, _LABEL, mu)

    members = np.array([score(with_record) for _ in range(trainings // 2)])
    nonmembers = np.array([score(without) for _ in range(trainings // 2)])
    return HeadAudit(
        epsilon,
        mu,
        trainings,
        gdp(members, nonmembers, delta=delta, confidence=confidence, thresholds=Given(mu / 2)),
        clopper_pearson(members, nonmembers, delta=delta, confidence=confidence),
    )


def crafted_rows() -> HeadRows:
    """Make the data set with the crafted record, which is the first and alone in coordinate 0."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(_RECORDS, _FEATURES))
    features[:, 0] = 0
    labels = np.arange(_RECORDS) % 2
    labels[0] = _LABEL
    rows = rows_of(features, labels, classes=2, unit=np.arange(_RECORDS), units=_UNITS)
    x = rows.x.copy()
    x[0] = np.eye(x.shape[1])[0]
    return replace(rows, x=x)
