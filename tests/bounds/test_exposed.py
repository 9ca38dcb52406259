"""Exposed records are named with few false ones, and none without signal."""

import numpy as np
import pytest
from scipy.stats import binom, wilcoxon

from resperturb.bounds.exposed import exposed, signed_rank_p_values
from resperturb.errors import UsageError


def audit(rng: np.random.Generator, models: int, effects: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Confidences of models of different luck in records of different difficulty, and membership."""
    coins = rng.random((models // 2, effects.size)) < 0.5
    members = np.stack([coins, ~coins], axis=1).reshape(models, effects.size)
    difficulty = rng.normal(0, 2, effects.size)
    noise = rng.normal(size=members.shape) * np.exp(0.5 * rng.normal(size=effects.size))
    return difficulty + rng.normal(size=(models, 1)) + effects * members + noise, members


@pytest.mark.parametrize("models", [16, 64])
def test_without_signal_no_record_is_named_in_95_percent_of_audits(models: int) -> None:
    rng, trials = np.random.default_rng(models), 150
    named = sum(exposed(*audit(rng, models, np.zeros(300))).count > 0 for _ in range(trials))
    assert named <= binom.isf(1e-3, trials, 0.05)


def test_the_exposed_are_found_and_few_of_the_named_are_not() -> None:
    rng, false, found = np.random.default_rng(0), [], []
    effects = np.where(np.arange(300) < 30, 2.0, 0.0)
    for _ in range(30):
        records = exposed(*audit(rng, 64, effects)).records
        false.append(sum(number >= 30 for number in records) / max(1, len(records)))
        found.append(sum(number < 30 for number in records) / 30)
    assert np.mean(false) <= 0.05 + 4 * np.std(false) / 30**0.5
    assert np.mean(found) > 0.7


def test_sixteen_models_name_no_record_and_say_why() -> None:
    rng = np.random.default_rng(1)
    few = exposed(*audit(rng, 16, np.where(np.arange(300) < 3, 5.0, 0.0)))
    assert (few.count, few.resolved) == (0, False)
    assert "too few" in few.words
    many = exposed(*audit(rng, 64, np.where(np.arange(300) < 3, 5.0, 0.0)))
    assert many.resolved
    assert many.words.startswith(f"{many.count} of 300")


def test_the_test_is_wilcoxons() -> None:
    rng = np.random.default_rng(2)
    differences = rng.normal(0.3, 1, (20, 40))
    oracle = wilcoxon(differences, alternative="greater", method="exact").pvalue
    assert signed_rank_p_values(differences) == pytest.approx(oracle)
    assert signed_rank_p_values(np.zeros((20, 1))).tolist() == [1.0]


def test_models_that_are_no_pairs_are_refused() -> None:
    values, members = audit(np.random.default_rng(3), 8, np.zeros(5))
    members[1] = members[0]
    with pytest.raises(UsageError, match="opposite"):
        exposed(values, members)
    with pytest.raises(UsageError, match="finite"):
        exposed(np.full((2, 1), np.nan), np.array([[True], [False]]))
