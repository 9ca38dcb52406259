"""``resperturb audit`` as a user meets it."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from resperturb.cli import app
from resperturb.errors import UsageError
from resperturb.training.run import Run, open_run

TINY = ["--data", "fashion-sample", "--limit", "80", "--epochs", "1", "--batch-size", "20"]
TINY += ["--part", "target_train", "--seed", "2", "--seeded-noise"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("cli") / "run"
    canaries = ["--canaries", "mislabelled=12,blank=8", "--subset-seed", "3", "--gamma", "0.5"]
    done = CliRunner().invoke(app, ["train", *TINY, *canaries, "--out", str(folder), "--json"])
    assert done.exit_code == 0, done.output
    return open_run(folder)


def test_canaries_and_coins_are_part_of_the_run(run: Run) -> None:
    data = run.config.data
    assert data.canaries is not None
    assert (data.canaries.mislabelled, data.canaries.blank, data.canaries.clean) == (12, 8, 0)
    assert data.subset_seed == 3
    assert run.result.records > 20


def test_one_json_object_and_nothing_else(run: Run) -> None:
    done = CliRunner().invoke(app, ["audit", str(run.path), "--one-run", "--draws", "1,2", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["shadows"]["count"] == 0
    assert {entry["draws"] for entry in found["attacks"]} == {1, 2}
    kept = json.loads((run.path / "audit" / "audit.json").read_text())
    assert kept.pop("checksum").startswith("sha256:")
    assert found == kept


def test_the_tables_name_the_axes_the_canaries_and_both_bounds(run: Run) -> None:
    done = CliRunner().invoke(app, ["audit", str(run.path), "--one-run", "--draws", "1,2"])
    assert done.exit_code == 0, done.output
    shown = " ".join(done.stdout.split())
    for words in (
        "mislabelled canaries",
        "No guarantee: The noise must be secret",
        "Shown: ",
        "with 95% confidence, as the best of",
    ):
        assert words in shown, words
    assert "An attack that finds nothing proves nothing" not in shown
    assert len(done.stdout.splitlines()) <= 20
    assert done.stdout.startswith(f"{run.path.name} was not seen to leak: AUC 0.")  # 40 records decide nothing
    assert ", canaries 0." in done.stdout.splitlines()[0]
    assert "records · 20 canaries" in shown
    wordy = CliRunner().invoke(app, ["audit", str(run.path), "--one-run", "--draws", "1,2", "--verbose"])
    for words in ("An attack that finds nothing proves nothing", "The attacks that were fixed", "2 draws", "weights"):
        assert words in " ".join(wordy.stdout.split()), words


def test_the_audit_fits_80_columns_and_cuts_no_word(run: Run) -> None:
    arguments = ["audit", str(run.path), "--one-run", "--draws", "1,2", "--verbose"]
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "…" not in done.stdout
    assert "infinite" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--draws", "1,many"], "whole numbers separated by commas"),
        (["--draws", "0"], "at least 1"),
        (["--shadows", "5"], "even number"),
        (["--delta", "2"], "delta"),
    ],
)
def test_wrong_arguments_are_one_sentence(run: Run, arguments: list[str], reason: str) -> None:
    done = CliRunner().invoke(app, ["audit", str(run.path), *arguments])
    assert isinstance(done.exception, UsageError)
    assert reason in str(done.exception)


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["audit", str(tmp_path)])
    assert isinstance(done.exception, UsageError)


def test_canaries_are_read_or_refused() -> None:
    for wrong in ("blank", "blank=", "blank=-1", "blank=a", ""):
        done = CliRunner().invoke(app, ["train", *TINY, "--canaries", wrong])
        assert isinstance(done.exception, UsageError), wrong
    done = CliRunner().invoke(app, ["train", *TINY, "--canaries", "loud=3"])
    assert isinstance(done.exception, UsageError)
    assert "loud" in str(done.exception)
    assert "out_of_distribution" in str(done.exception)


SETUP = """
import numpy as np
rng = np.random.default_rng(0)
y = rng.integers(0, 2, 80)
x = rng.normal(size=(80, 3)) + 2 * y[:, None]

def train(indices, seed):
    means = np.stack([x[indices][y[indices] == c].mean(axis=0) for c in (0, 1)])
    def predict(rows):
        p = np.exp(-((x[rows, None] - means) ** 2).sum(axis=2))
        return p / p.sum(axis=1, keepdims=True)
    return predict

def setup():
    return {"train": train, "labels": y}

def wrong():
    return {"fit": train}
"""


def test_a_users_training_is_audited_reported_and_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mytraining.py").write_text(SETUP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    arguments = ["audit", "--training", "mytraining:setup", "--out", "mine", "--shadows", "4", "--jobs", "1"]
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["shadows"]["count"] == 4
    shown = CliRunner().invoke(app, ["compare", "mine"])
    assert shown.exit_code == 0, shown.output
    assert "mine" in shown.stdout
    assert CliRunner().invoke(app, ["report", "mine"]).exit_code == 0
    assert "models of this recipe" in (tmp_path / "report.html").read_text()
    for name, reason in (
        ("mytraining", "MODULE:FUNCTION"),
        ("nosuch:setup", "cannot be imported"),
        ("mytraining:nothing", "has no function"),
        ("mytraining:train", "mytraining:train takes arguments. --training needs a function without any"),
        ("mytraining:wrong", "arguments of resperturb.audit by name: missing a required argument: 'train'"),
    ):
        failed = CliRunner().invoke(app, ["audit", "--training", name, "--out", "other"])
        assert isinstance(failed.exception, UsageError)
        assert reason in str(failed.exception)
    both = CliRunner().invoke(app, ["audit", "run", "--training", "mytraining:setup"])
    assert isinstance(both.exception, UsageError)
