"""Signals follow their definitions, are kept by content, and draws are combined as the views state."""

import numpy as np
import pytest
from scipy.special import softmax

from resperturb.attacks.signals import Signals, View, logit_of_log, signals_of
from resperturb.errors import ResperturbError, UsageError

LOGITS = np.random.default_rng(0).normal(size=(4, 20, 5)) * 3
LABELS = np.arange(20) % 5


def all_signals() -> Signals:
    return signals_of(LOGITS, LABELS, averages=(1, 4))


def probabilities(logits: np.ndarray) -> np.ndarray:
    return softmax(logits, axis=-1)


def test_the_confidence_is_the_logit_of_the_label_s_probability() -> None:
    p = probabilities(LOGITS)[:, np.arange(20), LABELS]
    assert np.allclose(all_signals().confidence, np.log(p / (1 - p)).T, atol=1e-4)


def test_thresholds_are_those_of_their_papers() -> None:
    found = all_signals()
    p = probabilities(LOGITS.mean(axis=0))
    own = p[np.arange(20), LABELS]
    others = np.delete(p.reshape(-1), np.arange(20) * 5 + LABELS).reshape(20, 4)
    modified = -(1 - own) * np.log(own) - (others * np.log(1 - others)).sum(axis=1)
    assert np.allclose(found.average("entropy", 4), -(p * np.log(p)).sum(axis=1), atol=1e-4)
    assert np.allclose(found.average("top", 4), np.log(-np.sort(-p, axis=1)[:, :3]), atol=1e-4)
    assert np.allclose(found.average("modified_entropy", 4), modified, atol=1e-4)


def test_draws_are_combined_as_the_views_say() -> None:
    found = all_signals()
    draws = found.confidence.astype(float)
    mean_log = np.log(1 / (1 + np.exp(-draws))).mean(axis=1)
    votes = (LOGITS.argmax(axis=2) == LABELS).sum(axis=0)
    averaged = probabilities(LOGITS.mean(axis=0))[np.arange(20), LABELS]

    def statistic(combination: str) -> np.ndarray:
        return found.statistic(View("served", 4, combination))  # type: ignore[arg-type]

    assert np.allclose(statistic("mean logit")[:, 0], np.log(averaged / (1 - averaged)), atol=1e-4)
    assert np.allclose(statistic("mean log-probability")[:, 0], logit_of_log(mean_log), atol=1e-4)
    assert np.allclose(statistic("spread"), np.stack([draws.mean(1), np.log(draws.var(1, ddof=1))], 1), atol=1e-4)
    assert np.allclose(statistic("votes")[:, 0], np.log((votes + 0.5) / (4.5 - votes)))
    with pytest.raises(UsageError, match="at least two"):
        found.statistic(View("served", 1, "spread"))
    with pytest.raises(UsageError, match="not over 2"):
        found.statistic(View("served", 2))


def test_enormous_confidence_is_finite_and_still_distinguished() -> None:
    logits = np.array([[0.0, 200.0], [0.0, 300.0]])
    found = signals_of([logits], np.array([1, 1]))
    assert found.confidence[:, 0].tolist() == [200.0, 300.0]
    assert np.isfinite(found.modified_entropy).all()


def test_predictions_that_are_not_finite_are_an_error() -> None:
    with pytest.raises(ResperturbError, match="not finite"):
        signals_of([[[0.0, float("nan")]]], np.array([0]))
