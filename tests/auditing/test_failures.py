"""Failures of a user's training end in a sentence, and one weak model does not discard an audit."""

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import resperturb as rp
from resperturb.auditing import audit
from resperturb.bounds import AuditResult
from resperturb.bounds.audit_result import COARSE
from resperturb.errors import ResperturbError, UsageError
from tests.auditing.examples import probabilities, training

ROWS = 200
LABELS = np.random.default_rng(0).integers(0, 2, ROWS)


def run(train: Any, out: Path | None, **more: Any) -> AuditResult:
    return audit(train, **{"labels": LABELS, "shadows": 6, "jobs": 1, "quiet": True, "out": out, **more})


def test_a_weak_model_is_retrained_once_with_its_pair(tmp_path: Path) -> None:
    seeds: list[int] = []

    def once_weak(seed: int) -> float:
        seeds.append(seed)
        return 0.0 if seeds.count(2) == 1 and seed == 2 else 1.0

    found = run(training(LABELS, 1.0, once_weak), tmp_path)
    assert found.shadows.count == 6
    assert found.left_out == ()
    assert sorted(seeds) == [0, 1, 1, 2, 2, 3, 3, 500_011, 500_011]
    count = len(seeds)
    assert run(training(LABELS, 1.0, once_weak), tmp_path) == found
    assert len(seeds) == count


def test_without_a_folder_a_weak_pair_is_retrained_too() -> None:
    found = run(training(LABELS, 1.0, lambda seed: 0.0 if seed == 2 else 1.0), None)
    assert (found.shadows.count, found.left_out) == (6, ())


def test_a_pair_that_stays_weak_is_left_out_with_a_caveat(tmp_path: Path) -> None:
    found = run(training(LABELS, 1.0, lambda seed: 0.0 if seed in (2, 500_011) else 1.0), tmp_path)
    assert found.shadows.count == 4
    assert "2 models were left out: model 3 did not learn" in found.left_out[0]
    assert found.left_out[0] in found.caveats


def test_an_audit_fails_if_fewer_than_half_of_the_models_learned_and_keeps_them(tmp_path: Path) -> None:
    with pytest.raises(ResperturbError, match=r"4 of 6 models did not learn, also with another seed"):
        run(training(LABELS, 1.0, lambda seed: 1.0 if seed in (0, 1) else 0.0), tmp_path)
    assert len(list((tmp_path / "models").glob("*.npz"))) == 7


def test_a_weak_pair_is_left_out_of_both_roles_in_leave_one_out(tmp_path: Path) -> None:
    weak = training(LABELS, 1.0, lambda seed: 0.0 if seed in (2, 500_011) else 1.0)
    found = run(weak, tmp_path, shadows=None, models=8)
    assert found.targets == 6
    assert "8 targets" in found.epsilon_lower.correction  # one that was left out counts as bound 0


def wrong_rows(indices: np.ndarray, seed: int) -> Any:
    return training(LABELS, 3.0)(np.setdiff1d(np.arange(ROWS), indices), seed)


@pytest.mark.parametrize(("shadows", "models"), [(6, "7 models are"), (0, "1 model is")])
def test_models_that_know_the_other_rows_are_refused(shadows: int, models: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"{models} better on rows that were not given to train"):
        run(wrong_rows, tmp_path, shadows=shadows)


@pytest.mark.parametrize("decimals", [0, 1])
def test_honest_models_with_coarse_answers_that_coincide_are_audited_with_a_caveat(
    decimals: int, tmp_path: Path
) -> None:
    values = np.where(LABELS, 2.0, -2.0) + np.random.default_rng(0).normal(size=ROWS) / 4
    labels = np.where(np.arange(ROWS) < 6, 1 - LABELS, LABELS)

    def train(indices: np.ndarray, seed: int) -> Callable[[np.ndarray], np.ndarray]:
        known, named = values[indices], labels[indices]
        middle = (known[named == 0].mean() + known[named == 1].mean()) / 2

        def predict(rows: np.ndarray) -> np.ndarray:
            p = np.round(1 / (1 + np.exp(-6 * (values[rows] - middle))), decimals)
            return np.stack([1 - p, p], axis=1)

        return predict

    found = run(train, tmp_path, labels=labels)
    assert COARSE in found.notes
    assert run(train, tmp_path, labels=labels) == found  # from what was kept
    assert COARSE not in run(training(LABELS, 1.0), tmp_path / "fine").caveats


def test_training_that_ignores_its_rows_is_refused_also_where_its_answers_saturate(tmp_path: Path) -> None:
    steep = np.clip(np.random.default_rng(1).normal(0, 40, ROWS), -20, 20)

    def train(indices: np.ndarray, seed: int) -> Callable[[np.ndarray], np.ndarray]:
        return lambda rows: probabilities(1 / (1 + np.exp(-steep[rows])), LABELS[rows])

    with pytest.raises(UsageError, match="does train use its indices"):
        run(train, tmp_path)


def test_a_predictor_that_sorts_the_rows_it_is_given_hides_nothing(tmp_path: Path) -> None:
    def train(indices: np.ndarray, seed: int) -> Callable[[np.ndarray], np.ndarray]:
        inner = training(LABELS, 3.0)(indices, seed)
        indices.sort()

        def predict(rows: np.ndarray) -> np.ndarray:
            found = inner(rows)
            rows.sort()
            return found

        return predict

    found = run(train, tmp_path / "sorting")
    assert found.strongest.auc == pytest.approx(run(training(LABELS, 3.0), tmp_path / "plain").strongest.auc)


def test_predictions_shuffled_beyond_the_first_rows_are_refused(tmp_path: Path) -> None:
    def train(indices: np.ndarray, seed: int) -> Callable[[np.ndarray], np.ndarray]:
        inner = training(LABELS, 3.0)(indices, seed)

        def predict(rows: np.ndarray) -> np.ndarray:
            order = np.arange(len(rows))
            order[32:] = np.random.default_rng(1).permutation(order[32:])
            return inner(rows[order])

        return predict

    with pytest.raises(UsageError, match="not in the order of the rows"):
        run(train, tmp_path)


def test_predictions_of_a_noisy_function_are_compared_as_means(tmp_path: Path) -> None:
    def train(indices: np.ndarray, seed: int) -> Callable[[np.ndarray], np.ndarray]:
        inner, rng = training(LABELS, 3.0)(indices, seed), np.random.default_rng([seed, len(indices)])
        return lambda rows: 0.7 * inner(rows) + 0.3 * rng.dirichlet([1, 1], len(rows))

    assert run(train, tmp_path / "noisy", draws=(1, 8)).draws == (1, 8)

    def shuffling(indices: np.ndarray, seed: int) -> Callable[[np.ndarray], np.ndarray]:
        inner, rng = train(indices, seed), np.random.default_rng([seed, len(indices)])
        order = rng.permutation(ROWS)
        return lambda rows: inner(order[rows]) if len(rows) > 100 else inner(rows)

    with pytest.raises(UsageError, match="not in the order of the rows"):
        run(shuffling, tmp_path / "shuffling", draws=(1, 8))


def test_an_exit_in_train_is_an_error_and_a_dead_worker_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"train called sys.exit\(3\)"):
        run(lambda indices, seed: sys.exit(3), tmp_path / "a")


def test_masked_arrays_are_refused(tmp_path: Path) -> None:
    masked = np.ma.MaskedArray(LABELS, mask=np.arange(ROWS) < 2)
    with pytest.raises(UsageError, match="labels is a masked array"):
        run(training(LABELS, 1.0), tmp_path, labels=masked)
    with pytest.raises(UsageError, match="predict returned a masked array"):
        run(
            lambda indices, seed: (
                lambda rows: np.ma.MaskedArray(
                    probabilities(np.full(len(rows), 0.6), LABELS[rows]), mask=rows[:, None] == [[0, 0]]
                )
            ),
            tmp_path,
        )
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"labels": None}, "labels must hold one class per row"),
        ({"jobs": "two"}, "jobs must be a whole number"),
        ({"draws": (1.5,)}, "draws must be whole numbers"),
        ({"confidence": 95}, "confidence"),
        ({"validation": [5000]}, "validation must be different row numbers"),
        ({"attacks": ["no-such"]}, "no-such"),
    ],
)
def test_wrong_arguments_are_sentences_before_anything_is_trained(
    tmp_path: Path, change: dict[str, Any], sentence: str
) -> None:
    def train(indices: np.ndarray, seed: int) -> Any:
        pytest.fail("nothing may be trained")

    with pytest.raises(UsageError, match=sentence):
        run(train, tmp_path / "out", **change)
    assert not (tmp_path / "out").exists()


def test_rows_for_early_stopping_are_neither_members_nor_non_members(tmp_path: Path) -> None:
    seen: list[np.ndarray] = []

    def train(indices: np.ndarray, seed: int) -> Any:
        seen.append(indices)
        return training(LABELS, 1.0)(indices, seed)

    found = run(train, tmp_path, validation=np.arange(30), population=20)
    assert min(indices.min() for indices in seen) >= 30
    assert found.candidates == {"record": ROWS - 50}


def test_an_estimator_is_audited_with_its_data(tmp_path: Path) -> None:
    from sklearn.ensemble import RandomForestClassifier

    x = np.random.default_rng(0).normal(size=(ROWS, 4)) + LABELS[:, None]
    found = rp.audit(RandomForestClassifier(10), x, LABELS, shadows=4, jobs=1, out=tmp_path / "forest", quiet=True)
    assert found.strongest.auc > 0.7
    assert found.model.description == "scikit-learn's RandomForestClassifier"
    with pytest.raises(UsageError, match=r"rp.audit\(estimator, X, y\)"):
        rp.audit(RandomForestClassifier(10), labels=LABELS, out=tmp_path / "none")


def test_checkpoints_are_queried_as_they_come_and_the_last_is_the_model(tmp_path: Path) -> None:
    def train(indices: np.ndarray, seed: int) -> Any:
        for leak in (0.0, 1.0, 3.0):
            yield f"epoch-{leak:g}", training(LABELS, leak)(indices, seed)

    found = run(train, tmp_path)
    assert found.strongest.auc == pytest.approx(run(training(LABELS, 3.0), tmp_path / "last").strongest.auc)
    names = sorted(path.name for path in (tmp_path / "models").glob("000*.npz"))
    assert names == ["000.epoch-0.npz", "000.epoch-1.npz", "000.epoch-3.npz", "000.npz"]


def test_output_of_libraries_is_shown_for_the_first_model_and_for_failures(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def train(indices: np.ndarray, seed: int) -> Any:
        print(f"epoch 1 of seed {seed}")
        library.info("logged by seed %d", seed)
        if seed == 3:
            raise ValueError("broken")
        return training(LABELS, 1.0)(indices, seed)

    library, handler = logging.getLogger("library"), logging.StreamHandler()
    library.setLevel(logging.INFO)
    library.addHandler(handler)
    with pytest.raises(ValueError, match="broken"):
        run(train, tmp_path)
    library.removeHandler(handler)
    printed = capfd.readouterr()
    assert "logged by seed 0" in printed.err
    assert "logged by seed 1" not in printed.err
    assert printed.out == "epoch 1 of seed 0\n"
    assert printed.err.endswith("epoch 1 of seed 3\n")
