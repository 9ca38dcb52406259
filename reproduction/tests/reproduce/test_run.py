"""Experiments really run, at the smallest size there is: shared, cached, repaired, interrupted."""

import fcntl
import json
from dataclasses import replace
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
from resperturb_reproduction.reproduce import library as library_module
from resperturb_reproduction.reproduce.declarations import BY_ID, Cell, Experiment
from resperturb_reproduction.reproduce.library import Library, state_of
from resperturb_reproduction.reproduce.plan import target_config
from resperturb_reproduction.reproduce.presets import PRESETS, Scale
from resperturb_reproduction.reproduce.results import (
    AnyResult,
    Computed,
    Row,
    Trained,
    load,
    save,
)
from resperturb_reproduction.reproduce.runner import measure, require_data, run_experiments
from resperturb_reproduction.reproduce.status import status

from resperturb.errors import UsageError
from resperturb.training.config import TrainConfig
from resperturb.training.run import Run

SMALLEST = Scale("fashion-sample", 1, 1, limit=80, batch_size=10)
LEARNING = Scale("fashion-sample", 10, 1, limit=120, batch_size=10)  # enough for an attack to have something to learn
SETS = ("mnist", "cifar10", "cifar100", "idc")
TINY = replace(PRESETS["quick"], seeds=1, table=dict.fromkeys(SETS, LEARNING), sweep=dict.fromkeys(SETS, LEARNING))
PLAIN, ADDITIVE = Cell("mnist"), Cell("mnist", additive=0.1)


def config(cell: Cell = PLAIN, scale: Scale = SMALLEST) -> TrainConfig:
    return target_config(cell, scale, 0)


def small(**changes: Any) -> Experiment:
    """A table of two rows that every test can afford."""
    given = {"cells": (PLAIN, ADDITIVE), "claims": (), "attacks": ("paper", "adaptive"), **changes}
    return replace(BY_ID["mnist-table"], **given)


def trained(result: AnyResult) -> Trained:
    """The result of an experiment that is trained."""
    assert isinstance(result, Trained)
    return result


def values(row: Row, metric: str) -> tuple[float, ...]:
    """The value of each seed."""
    found = row.of(metric)
    assert found is not None
    return found.values


def forbid_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(configs: list[TrainConfig], *rest: Any) -> list[Run]:
        raise AssertionError(f"{len(configs)} trainings were asked for")

    monkeypatch.setattr(library_module, "train_many", refuse)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Library, AnyResult]:
    """The small table, run once."""
    library = Library(tmp_path_factory.mktemp("runs"))
    kept: list[AnyResult] = []
    run_experiments([small()], TINY, library, lambda measured: kept.append(measured))
    return library, kept[-1]


def test_a_result_says_what_it_was_measured_with(done: tuple[Library, AnyResult]) -> None:
    result = trained(done[1])
    (made,) = result.made
    assert made.preset == "quick"
    (data,) = made.data
    assert data.shown == "fashion-sample in place of MNIST"
    assert (data.training_images, data.a_quarter, data.test_images) == (120, 30, 120)
    assert len(data.fingerprint) == 16
    assert {"torch", "resperturb", "python", "made"} <= made.environment.keys()
    assert made.trainings == 4  # two targets, the paper's shadow for both, an adaptive one for the noisy
    assert made.seconds > 0
    for row in result.rows:
        assert (row.seeds, row.preset, row.epochs) == ((0,), "quick", 10)
        assert {"train_accuracy", "test_accuracy", "gap"} <= row.measured.keys()


def test_measured_numbers_are_those_of_the_runs(done: tuple[Library, AnyResult]) -> None:
    library, measured = done
    row = trained(measured).rows[1]
    run = library.get(config(ADDITIVE, LEARNING))
    assert run is not None
    assert values(row, "test_accuracy") == (run.result.test_accuracy,)
    assert row.runs == (run.config.digest,)
    kept = json.loads((run.path / "reproduce" / "attack-paper.json").read_text())
    assert values(row, "auc") == (kept["auc"],)
    assert [point["threshold"] for point in kept["thresholds"]] == [0.5, 0.6, 0.7, 0.8]
    assert all(0 <= point["recall"] <= 1 for point in kept["thresholds"])


def test_nothing_is_trained_or_attacked_twice(
    done: tuple[Library, AnyResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    library, first = done
    forbid_training(monkeypatch)
    kept: list[AnyResult] = []
    again = Library(library.folder)
    run_experiments([small()], TINY, again, lambda measured: kept.append(measured))
    assert trained(first).rows == trained(kept[-1]).rows


def test_other_experiments_use_the_same_runs(
    done: tuple[Library, AnyResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid_training(monkeypatch)
    other = small(id="cifar10-no-skip", kind="sweep", attacks=("paper",), cells=(Cell("cifar10", additive=0.1),))
    measured = measure(other, TINY, done[0])
    assert trained(measured).rows[0].runs == trained(done[1]).rows[1].runs


def test_an_attack_whose_outcome_is_damaged_is_made_again(done: tuple[Library, AnyResult]) -> None:
    library, first = done
    run = library.get(config(PLAIN, LEARNING))
    assert run is not None
    (run.path / "reproduce" / "attack-paper.json").write_bytes(b"half")
    again = measure(small(), TINY, library)
    assert trained(again).rows[0].roc == trained(first).rows[0].roc


def test_what_is_not_trained_is_missing_and_not_invented(tmp_path: Path) -> None:
    assert trained(measure(small(), TINY, Library(tmp_path))).rows == ()


def test_measuring_alone_trains_nothing_and_repairs_nothing(
    done: tuple[Library, AnyResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid_training(monkeypatch)
    kept: list[AnyResult] = []
    table = small(cells=(PLAIN, Cell("mnist", additive=0.3)))
    only_measure = Library(done[0].folder, may_train=False)
    run_experiments([table], TINY, only_measure, lambda measured: kept.append(measured))
    assert [row.name for row in trained(kept[-1]).rows] == ["ResNet8, non-private"]


def test_answers_without_noise_and_averaged_stand_beside_those_with_it(done: tuple[Library, AnyResult]) -> None:
    (row,) = trained(measure(small(answers=True, cells=(PLAIN,)), TINY, done[0])).rows
    # A network without noise answers the same, however often it is asked.
    assert (
        row.of("noiseless_test_accuracy") == row.of("averaged_test_accuracy") == row.of("test_accuracy") is not None
    )
    (noisy,) = trained(measure(small(answers=True, cells=(ADDITIVE,)), TINY, done[0])).rows
    assert len(values(noisy, "noiseless_train_accuracy")) == 1


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.safetensors", None),
        ("model.safetensors", b"\x08"),
        ("result.json", b'{"train_accuracy": 1.0'),
        ("result.json", b"{}"),
        ("config.json", b"nonsense"),
    ],
)
def test_a_damaged_run_is_noticed_put_aside_and_trained_again(
    tmp_path: Path, name: str, content: bytes | None
) -> None:
    said: list[str] = []
    library = Library(tmp_path, say=said.append)
    library.train([config()])
    run = library.get(config())
    assert run is not None
    accuracy = run.result.test_accuracy
    damaged = run.path / name
    damaged.write_bytes(damaged.read_bytes()[:-100] if content is None else content)
    assert state_of(run.path)[0] == "damaged"
    assert library.get(config()) is None
    library.train([config()])
    assert any("damaged" in line for line in said)
    assert len(list((tmp_path / ".damaged").glob(f"{run.path.name}.*"))) == 1
    repaired = library.get(config())
    assert repaired is not None
    assert repaired.result.test_accuracy == accuracy


def test_a_damaged_checkpoint_only_costs_its_own_progress(tmp_path: Path) -> None:
    library = Library(tmp_path)
    library.train([config()])
    run = library.get(config())
    assert run is not None
    run.result_path.unlink()
    run.model_path.unlink()
    run.checkpoint_path.write_bytes(b"half a checkpoint")
    library.train([config()])
    assert library.get(config()) is not None


def test_a_training_that_diverges_does_not_stop_the_others(tmp_path: Path) -> None:
    library = Library(tmp_path)
    bad = config(Cell("mnist", additive=0.5, changes=(("lr", 1e30),)))
    library.train([config(), bad, config(ADDITIVE)])
    assert library.get(config()) is not None
    assert library.get(config(ADDITIVE)) is not None
    assert library.get(bad) is None
    assert "diverged" in str(library.failure(bad))


def test_networks_of_other_modules_are_found_when_they_are_trained(tmp_path: Path) -> None:
    inside = Cell("mnist", additive=0.5, network="inside")
    library = Library(tmp_path)
    library.train([config(inside)])
    assert library.get(config(inside)) is not None


def test_a_training_that_another_process_is_at_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_module, "SECONDS_BETWEEN_LOOKS", 0.05)
    said: list[str] = []
    library = Library(tmp_path, say=said.append)
    path = tmp_path / library.bound(config()).digest
    path.mkdir()
    with (path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        Timer(2.0, lambda: fcntl.flock(lock, fcntl.LOCK_UN)).start()
        library.train([config()])
    assert "another process" in said[0]
    assert library.failures == {}
    assert library.get(config()) is not None


def test_a_row_that_could_not_be_trained_says_why(tmp_path: Path) -> None:
    bad = Cell("mnist", additive=0.5, changes=(("lr", 1e30),))
    kept: list[AnyResult] = []
    table = small(cells=(PLAIN, bad), attacks=("paper",))
    run_experiments(
        [table],
        replace(TINY, table={"mnist": SMALLEST}),
        Library(tmp_path),
        lambda measured: kept.append(measured),
    )
    good, failed = trained(kept[-1]).rows
    assert good.seeds == (0,)
    assert failed.seeds == ()
    assert "diverged" in failed.why[0]
    assert str(tmp_path) not in failed.why[0]


def test_runs_are_found_again_after_their_name_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library(tmp_path)
    library.train([config()])
    run = library.get(config())
    assert run is not None
    run.path.rename(tmp_path / "0123456789abcdef")  # as if a new setting had changed every hash
    forbid_training(monkeypatch)
    library.train([config()])
    assert library.get(config()) is not None


def test_the_audit_is_a_column_of_the_table(done: tuple[Library, AnyResult]) -> None:
    table = small(cells=(PLAIN,), attacks=("paper", "adaptive", "audit"))
    kept: list[AnyResult] = []
    run_experiments([table], TINY, done[0], lambda measured: kept.append(measured))
    assert len(kept) == 2
    assert trained(kept[0]).rows[0].audit is None
    row = trained(kept[1]).rows[0]
    assert row.audit is not None
    assert row.of("auc") is not None
    assert row.audit.shadows == 4
    assert row.audit.auc > 0.5  # the best of many
    assert row.audit.strongest


def test_status_counts_what_is_done_and_learns_from_measured_times(
    done: tuple[Library, AnyResult], tmp_path: Path
) -> None:
    before = status([small()], TINY, tmp_path, tmp_path, jobs=1)
    assert (before.done, before.trainings) == (0, 4)
    assert before.core_seconds_left > 0
    assert before.measured_over_planned is None
    save(tmp_path, done[1])
    assert not status([small()], replace(TINY, seeds=2), done[0].folder, tmp_path, jobs=1).experiments[0].complete
    after = status([small()], TINY, done[0].folder, tmp_path, jobs=2)
    assert (after.done, after.core_seconds_left) == (4, 0.0)
    assert after.experiments[0].complete
    assert after.measured_over_planned is not None
    assert after.measured_over_planned > 0


def test_status_foresees_more_seeds_and_uses_every_job(done: tuple[Library, AnyResult], tmp_path: Path) -> None:
    table = small(attacks=("paper", "adaptive", "audit"))
    one, two = (status([table], replace(TINY, seeds=n), done[0].folder, tmp_path, jobs=2) for n in (1, 2))
    assert two.trainings == one.trainings + 4
    assert two.done == one.done >= 4
    assert two.core_seconds_left > one.core_seconds_left > 0
    assert any("additive 0.1, audit, seed 1" in name for name in two.experiments[0].missing)


def test_missing_data_are_named_with_the_experiments_that_need_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RESPERTURB_DATA", raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UsageError, match=r"'idc' is needed for idc-table, idc-sweep\..*RESPERTURB_DATA"):
        require_data([BY_ID["idc-table"], BY_ID["idc-sweep"]], PRESETS["cpu"])


def test_quick_needs_no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RESPERTURB_DATA", raising=False)
    require_data(BY_ID.values(), PRESETS["quick"])


def test_functions_give_results_that_can_be_kept(tmp_path: Path) -> None:
    kept: dict[str, AnyResult] = {}
    names = ("sde-additive", "idc-examples", "budgets")
    run_experiments(
        [BY_ID[name] for name in names],
        TINY,
        Library(tmp_path / "runs"),
        lambda measured: kept.update({measured.id: measured}),
    )
    for name in names:
        save(tmp_path, kept[name])
        assert load(tmp_path, name) == kept[name]
    budgets = kept["budgets"]
    assert isinstance(budgets, Computed)
    assert budgets.verdict == "0 of 4 budgets follow"
    rows: Any = budgets.numbers["rows"]
    published = {row["name"]: row for row in rows if row["data"] == "idc"}
    additive = published["En1 ResNet8, gamma 0.5"]
    # Theorem 1 with G = R = 30, pi = gamma/2 and 100 epochs: rho = 2 * 100 * (30 / 0.25)^2.
    assert additive["epsilon"] == pytest.approx(2.88e6 + 2 * (2.88e6 * 11.5129) ** 0.5, rel=1e-4)
    assert not additive["follows"]
    assert 4 < published["ResNet8, DP-SGD"]["epsilon"] < 8


def test_theorem_3_stands_beside_the_measured_gap(tmp_path: Path) -> None:
    noisy = Cell("cifar10", multiplicative=2.0)
    experiment = replace(BY_ID["generalisation"], cells=(Cell("cifar10"), noisy))
    kept: list[AnyResult] = []
    preset = replace(TINY, sweep={"cifar10": SMALLEST})
    run_experiments([experiment], preset, Library(tmp_path), lambda measured: kept.append(measured))
    result = trained(kept[-1])
    gap = result.rows[0].of("gap")
    assert gap is not None
    assert result.theorem is not None
    assert result.theorem.predicted_gap is not None
    assert result.theorem.predicted_gap["2"] == pytest.approx(gap.mean * 2.718281828 ** (-0.25 * 4 / 2))
