"""The demonstration, shortened: every variant is trained alike, audited, and reported."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from resperturb.cli import app
from resperturb.perturbation import strategy_to_dict
from resperturb.training import demo


def test_the_variants_differ_in_their_noise_alone() -> None:
    configs = [demo.demo_config(strategy, seed=0) for strategy in demo.RUNS.values()]
    assert [strategy_to_dict(c.perturbation)["name"] for c in configs] == ["none", "additive", "multiplicative"]
    same = {c.model_copy(update={"perturbation": None}).digest for c in configs}
    assert len(same) == 1


def test_demo_prints_one_json_object_and_writes_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "EPOCHS", 2)
    done = CliRunner().invoke(app, ["demo", "--out", str(tmp_path), "--json"])
    assert done.exit_code == 0, done.output
    shown = json.loads(done.stdout)
    page = Path(shown["report"])
    assert page.stat().st_size > 1_000_000
    assert "POLICY" in page.read_text()
    assert [model["name"] for model in shown["models"]] == ["plain", "additive", "multiplicative"]
    assert shown["decisions"].keys() == {"plain", "additive", "multiplicative"}
    for model in shown["models"]:
        assert 0 <= model["attack"]["auc"] <= 1
        assert {"name", "defence", "train_accuracy", "test_accuracy"} <= model.keys()
    again = CliRunner().invoke(app, ["demo", "--out", str(tmp_path), "--json"])
    assert json.loads(again.stdout)["models"] == shown["models"]
