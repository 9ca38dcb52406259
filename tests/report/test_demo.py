"""The demo, shortened: every variant is trained alike, audited, and reported."""

import json
import math
from pathlib import Path

import pytest
from typer.testing import CliRunner

from resperturb.cli import app, demo
from resperturb.perturbation import strategy_to_dict
from resperturb.training import make_config

NAMES = ["plain", "additive", "multiplicative", "dp-head"]


def test_the_networks_differ_in_their_noise_alone_and_the_head_has_secret_noise() -> None:
    *networks, head = (make_config(data=demo.DATA, **settings) for settings in demo.RUNS.values())
    assert [strategy_to_dict(c.perturbation)["name"] for c in networks] == ["none", "additive", "multiplicative"]
    same = {c.model_copy(update={"perturbation": None}).digest for c in networks}
    assert len(same) == 1
    assert head.data == networks[0].data
    assert not head.seeded_noise


def test_demo_prints_one_json_object_and_writes_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESPERTURB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(demo.DATA, "limit", 1000)
    monkeypatch.setitem(demo.NETWORK, "epochs", 2)
    for name in ("additive", "multiplicative"):
        monkeypatch.setitem(demo.RUNS[name], "epochs", 2)
    monkeypatch.setitem(demo.HEAD, "model_args", {"directions": 20, "images": 50})
    done = CliRunner().invoke(app, ["demo", "--out", str(tmp_path), "--json"])
    assert done.exit_code == 0, done.output
    shown = json.loads(done.stdout)
    page = Path(shown["report"])
    assert page.stat().st_size > 1_000_000
    assert all(state in page.read_text() for state in shown["decisions"].values())
    assert [model["name"] for model in shown["models"]] == NAMES
    assert list(shown["decisions"]) == NAMES
    proven = [float(model["guarantee"]["epsilon"]) for model in shown["models"]]
    assert proven == pytest.approx([math.inf, math.inf, math.inf, 3.0])
    for model in shown["models"]:
        assert 0 <= model["attack"]["auc"] <= 1
        assert {"name", "defence", "train_accuracy", "test_accuracy"} <= model.keys()
    again = CliRunner().invoke(app, ["demo", "--out", str(tmp_path), "--json"])
    assert json.loads(again.stdout)["models"] == shown["models"]
