"""The folder of an audit: bound together, resumed, and refused if a part of it is another's."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from resperturb.attacks.signals import Signals, signals_of
from resperturb.auditing import audit, read_audit
from resperturb.auditing.ask import FittedFunction, ask
from resperturb.auditing.store import Plan, Store, keep_answers, read_answers
from resperturb.bounds import AuditResult
from resperturb.cli import main
from resperturb.errors import ResperturbError, UsageError
from resperturb.sealed import write_bound_arrays
from tests.auditing.examples import training

ROWS = 200
LABELS = np.random.default_rng(0).integers(0, 2, ROWS)


def made(folder: Path, leak: float, **more: object) -> AuditResult:
    return audit(training(LABELS, leak), labels=LABELS, shadows=4, jobs=1, quiet=True, out=folder, **more)  # type: ignore[arg-type]


def test_a_swapped_result_is_an_error_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path / "leaky", 6.0)
    made(tmp_path / "harmless", 0.0)
    shutil.copy(tmp_path / "harmless" / "audit.json", tmp_path / "leaky" / "audit.json")
    with pytest.raises(ResperturbError, match="is not the audit of"):
        read_audit(tmp_path / "leaky")
    for command in ("gate", "card", "report"):
        monkeypatch.setattr(sys, "argv", ["resperturb", command, str(tmp_path / "leaky")])
        with pytest.raises(SystemExit, match="[12]"):
            main()
        assert "run the audit again" in capsys.readouterr().err
    # The next audit repairs it from the kept predictions.
    assert made(tmp_path / "leaky", 6.0).leaks


@pytest.mark.parametrize(
    "part", ["scores/schema.json", "scores/members.npy", "scores/bavaria-served.npy", "plan.json"]
)
def test_a_part_that_is_gone_or_another_audits_is_an_error(tmp_path: Path, part: str) -> None:
    made(tmp_path / "a", 2.0)
    made(tmp_path / "b", 1.0)
    shutil.copy(tmp_path / "b" / part, tmp_path / "a" / part)
    if part != "scores/members.npy":  # the same coins
        with pytest.raises(ResperturbError, match="run the audit again"):
            read_audit(tmp_path / "a")
    (tmp_path / "a" / part).unlink()
    with pytest.raises(ResperturbError, match="run the audit again"):
        read_audit(tmp_path / "a")


def test_checkpoints_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    for name in ("000", "000.epoch-10", "000.epoch-2", "001.epoch-1"):
        (tmp_path / "models" / f"{name}.npz").touch()
    plan = Plan("", "", "", "", "", "", "", 0, (1,), "")
    assert Store(tmp_path, plan).stages(0) == ["epoch-2", "epoch-10"]


def test_other_draws_query_again_and_another_setup_is_refused(tmp_path: Path) -> None:
    calls: list[int] = []

    def train(indices: np.ndarray, seed: int) -> object:
        calls.append(seed)
        return training(LABELS, 1.0)(indices, seed)

    settings = {"labels": LABELS, "shadows": 4, "jobs": 1, "quiet": True, "out": tmp_path}
    audit(train, **settings)  # type: ignore[arg-type]
    audit(train, draws=(1, 4), **settings)  # type: ignore[arg-type]
    assert len(calls) == 10  # nothing of a function's models is kept
    with pytest.raises(UsageError, match=r"holds another audit \(other seed\)"):
        audit(train, seed=5, **settings)  # type: ignore[arg-type]


def test_a_folder_with_a_plan_alone_is_overwritten_and_leftovers_go(tmp_path: Path) -> None:
    made(tmp_path / "a", 1.0)
    for name in ("models", "scores"):
        shutil.rmtree(tmp_path / "a" / name)
    (tmp_path / "a" / "audit.json").unlink()
    left = [tmp_path / "a" / ".audit.json.0a1b2c3d.tmp", tmp_path / "a" / "models" / ".000.npz.0a1b2c3d.tmp"]
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"half")
    left[1].unlink()
    (tmp_path / "a" / "models").rmdir()
    made(tmp_path / "a", 1.0, seed=4)
    assert not left[0].exists()
    for place in ("models", "scores"):
        (tmp_path / "a" / place / ".x.npy.0a1b2c3d.tmp").write_bytes(b"half")
    made(tmp_path / "a", 1.0, seed=4)
    assert not list((tmp_path / "a").rglob("*.tmp"))


def test_damaged_or_foreign_predictions_are_reported_and_computed_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = made(tmp_path / "a", 2.0)
    models = tmp_path / "a" / "models"
    shutil.copy(models / "001.npz", models / "002.npz")
    (models / "003.npz").write_bytes((models / "003.npz").read_bytes()[:100])
    assert made(tmp_path / "a", 2.0) == found
    assert "belongs to another run" in caplog.text
    assert "is damaged" in caplog.text


@pytest.mark.parametrize(
    "change",
    [
        {"averages": np.array([], dtype=np.int64)},
        {"averages": np.array([99])},
        {"labels": np.zeros(3)},
        {"confidence": np.full((3, 1), np.nan)},
        {"confidence": np.zeros((2, 1))},
        {"entropy": np.zeros((3, 2))},
        {"entropy": np.array([["a"]] * 3)},
        {"correct": np.zeros((3, 1))},
        {"more": np.zeros(3)},
    ],
)
def test_arrays_that_no_model_can_have_answered_are_refused(change: dict[str, np.ndarray], tmp_path: Path) -> None:
    signals = signals_of([np.zeros((3, 2))], np.array([0, 1, 1]))
    keep_answers(tmp_path / "answers.npz", {"weights": signals}, {})
    assert read_answers(tmp_path / "answers.npz", 3, {})["weights"].averages == (1,)
    arrays = {f"weights/{name}": np.asarray(value) for name, value in {**vars(signals), **change}.items()}
    write_bound_arrays(tmp_path / "answers.npz", arrays, {})
    with pytest.raises(ResperturbError, match=r"answers\.npz does not hold the answers of a model"):
        read_answers(tmp_path / "answers.npz", 3, {})


def test_predictions_of_no_known_query_are_refused(tmp_path: Path) -> None:
    for arrays in ({}, {"noise/labels": np.zeros(3)}):
        write_bound_arrays(tmp_path / "answers.npz", arrays, {})
        with pytest.raises(ResperturbError, match="does not hold the answers of a model"):
            read_answers(tmp_path / "answers.npz", 3, {})


def test_kept_predictions_are_those_of_the_model(tmp_path: Path) -> None:
    model = FittedFunction(training(LABELS, 1.0)(np.arange(50), 0), 2)
    given = ask(model, np.arange(ROWS), LABELS, (1,))
    keep_answers(tmp_path / "answers.npz", given, {"a": "b"})
    kept = read_answers(tmp_path / "answers.npz", ROWS, {"a": "b"})
    for name in Signals.__annotations__:
        assert np.array_equal(getattr(kept["served"], name), getattr(given["served"], name))
