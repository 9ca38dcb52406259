"""The demonstration, shortened: every variant is trained alike, attacked, and reported."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from resperturb.cli import app
from resperturb.perturbation import strategy_to_dict
from resperturb.report import demo


def test_the_variants_differ_in_their_noise_alone() -> None:
    plain, additive, multiplicative = (demo.config(strategy, seed=0) for _, strategy in demo.RUNS)
    assert [strategy_to_dict(c.perturbation)["name"] for c in (plain, additive, multiplicative)] == [
        "none",
        "additive",
        "multiplicative",
    ]
    same = {c.model_copy(update={"perturbation": None}).digest for c in (plain, additive, multiplicative)}
    assert len(same) == 1


def test_demo_prints_one_json_object_and_writes_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "EPOCHS", 2)
    done = CliRunner().invoke(app, ["demo", "--out", str(tmp_path), "--json"])
    assert done.exit_code == 0, done.output
    shown = json.loads(done.stdout)
    assert Path(shown["report"]).stat().st_size > 1_000_000
    assert [run["strategy"] for run in shown["runs"]] == ["none", "additive", "multiplicative"]
    for run in shown["runs"]:
        assert 0 <= run["attack"]["auc"] <= 1
        assert {"name", "gamma", "train_accuracy", "test_accuracy"} <= run.keys()
    again = CliRunner().invoke(app, ["demo", "--out", str(tmp_path), "--json"])
    assert json.loads(again.stdout)["runs"] == shown["runs"]
