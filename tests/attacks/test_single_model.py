"""Thresholds per class, votes under augmentation, quantile regression."""

import numpy as np
import pytest
import torch

from resperturb.attacks.evidence import ENTROPY_EDGES, ClassCounts
from resperturb.attacks.modified_entropy import below_threshold, class_thresholds
from resperturb.attacks.moments import Extremes, Moments, trimmed
from resperturb.attacks.quantile import quantile_scores
from resperturb.attacks.rmia import tuned_a
from resperturb.bounds.metrics import auc, balanced_accuracy
from resperturb.errors import UsageError
from resperturb.training.augment import VARIANTS, augmented


def test_the_threshold_of_a_class_is_the_best_for_the_shadow_models_members() -> None:
    rng = np.random.default_rng(0)
    labels, members = np.repeat([0, 1], 500), np.tile([True, False], 500)
    # Members of class 0 lie near 0.01, those of class 1 near 1; the others ten times higher.
    values = np.exp(rng.normal(np.log(np.where(labels == 0, 0.01, 1.0) * np.where(members, 1, 10)), 0.5))
    counts = ClassCounts.empty()
    counts.add(values, labels, members, ~members)
    thresholds = class_thresholds(counts.inside, counts.outside, ENTROPY_EDGES)
    for label in (0, 1):
        own = labels == label
        below = own & (values < thresholds[label])
        accuracy = (
            (below & members).sum() / (own & members).sum() + 1 - (below & ~members).sum() / (own & ~members).sum()
        ) / 2
        best = balanced_accuracy(-values[own & members], -values[own & ~members])
        assert accuracy == pytest.approx(best, abs=0.02)
    scores = below_threshold(values, labels, thresholds)
    assert ((scores > 0) == (values < thresholds[labels])).all()
    # One threshold for both classes is worse.
    assert auc(scores[members], scores[~members]) > auc(-values[members], -values[~members]) + 0.1


def test_a_class_that_no_shadow_was_trained_on_takes_the_threshold_of_all() -> None:
    inside = np.zeros((2, ENTROPY_EDGES.size + 1), dtype=np.int64)
    outside = inside.copy()
    inside[0, 5], outside[0, 90], outside[1, 7] = 10, 10, 1
    first, second = class_thresholds(inside, outside, ENTROPY_EDGES)
    assert first == second


def test_augmented_queries_are_the_image_its_mirror_image_and_shifts_of_both() -> None:
    images = torch.arange(2 * 1 * 6 * 6).view(2, 1, 6, 6)
    assert torch.equal(augmented(images, 0), images)
    assert torch.equal(augmented(images, 1), images.flip(-1))
    for number, (mirrored, down, right) in enumerate(VARIANTS):
        start = images.flip(-1) if mirrored else images
        expected = torch.zeros_like(start)
        for y in range(6):
            for x in range(6):
                if 0 <= y - down < 6 and 0 <= x - right < 6:
                    expected[..., y, x] = start[..., y - down, x - right]
        assert torch.equal(augmented(images, number), expected)


def test_quantile_regression_compares_a_record_with_its_likes() -> None:
    rng = np.random.default_rng(1)
    kind = rng.integers(0, 4, 3000)
    difficulty = np.array([-6.0, -2.0, 2.0, 6.0])[kind]
    members = rng.random(3000) < 0.5
    population = np.arange(3000) >= 2000
    members &= ~population
    values = difficulty + 1.5 * members + rng.normal(0, 1, 3000)
    features = np.eye(4)[kind]
    scores = quantile_scores(features[:2000], values[:2000], features[population], values[population])
    inside = members[:2000]
    assert auc(scores[inside], scores[~inside]) > auc(values[:2000][inside], values[:2000][~inside]) + 0.15
    # The median and the 90% quantile of those who are no members.
    assert np.mean(scores[~inside] > 0) == pytest.approx(0.5, abs=0.06)
    assert np.mean(scores[~inside] > 1) == pytest.approx(0.1, abs=0.04)
    with pytest.raises(UsageError, match="population"):
        quantile_scores(features[:3], values[:3], features[:0], values[:0])


def test_quantile_regression_keeps_to_one_thread_and_gives_the_others_back(monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.ensemble import HistGradientBoostingRegressor
    from threadpoolctl import threadpool_info, threadpool_limits

    def threads() -> set[int]:
        return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "openmp"}

    seen: list[set[int]] = []
    fit = HistGradientBoostingRegressor.fit
    monkeypatch.setattr(HistGradientBoostingRegressor, "fit", lambda *given: (seen.append(threads()), fit(*given))[1])
    rng = np.random.default_rng(0)
    features, values = rng.normal(size=(60, 1)), rng.normal(size=60)
    with threadpool_limits(limits=2, user_api="openmp"):
        quantile_scores(features[:20], values[:20], features[20:], values[20:])
        assert seen == [{1}, {1}]
        assert threads() == {2}


def test_a_is_tuned_on_shadow_models_with_the_record() -> None:
    rng = np.random.default_rng(2)
    outside = rng.random(500)
    for a in (0.0, 0.4, 1.0):
        assert tuned_a(a * outside + 1 - a, outside) == pytest.approx(a)
    assert tuned_a(np.ones(3), np.ones(3)) == 0.3
    noisy = np.clip(0.6 * outside + 0.4 + rng.normal(0, 0.05, 500), 0, 1)
    assert tuned_a(noisy, outside) == pytest.approx(0.6, abs=0.03)


def test_leaving_out_the_extremes_gives_the_moments_of_the_rest() -> None:
    values = np.random.default_rng(3).normal(5, 2, (9, 4, 2))
    values[3] = -1e4  # a shadow that failed
    moments, extremes, every = Moments.empty(4, 2), Extremes.empty(4, 2), np.ones(4, dtype=bool)
    for model in values:
        moments.add(model, every)
        extremes.add(model, every)
    kept = trimmed(moments, extremes)
    rest = np.sort(values, axis=0)[1:-1]
    assert np.allclose(kept.mean, rest.mean(axis=0), atol=1e-6)
    assert np.allclose(kept.variances(), rest.var(axis=0, ddof=1), rtol=1e-3, atol=1e-3)
    few = Moments.empty(4, 2)
    few.add(values[0], every)
    assert np.array_equal(trimmed(few, extremes).mean, few.mean)
