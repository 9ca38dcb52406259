"""The page of the guarantee shows what was measured, and a small study runs and is resumed."""

import json
from pathlib import Path

import pytest

from benchmarks import guarantee
from benchmarks.guarantee import Study, compare, measure
from tools.guarantee_page import filled

ROOT = Path(__file__).parents[2]


def test_the_page_shows_the_results() -> None:
    page = (ROOT / "docs" / "guarantee.md").read_text()
    assert filled(page, json.loads((ROOT / "docs" / "results" / "guarantee.json").read_text())) == page


def test_a_small_study_runs_and_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESPERTURB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(guarantee, "EPSILONS", (3.0,))
    monkeypatch.setattr(guarantee, "SEEDS", range(2))
    study = Study("fashion-sample", "scattering")
    monkeypatch.setattr(guarantee, "STUDIES", (study,))
    monkeypatch.setattr(guarantee, "REDUCTION", {"directions": 30, "images": 100})
    save = tmp_path / "guarantee.json"
    measure(study, save)
    [row] = json.loads(save.read_text())["rows"]
    [result] = row["results"]
    assert row["units"] == 4000
    assert result["seeds"] == [0, 1]
    assert result["values"][0] != result["values"][1]
    assert min(result["values"]) > 0.5
    measure(study, save)
    assert json.loads(save.read_text())["rows"][0]["results"] == [result]


def test_networks_are_copied_with_their_source(tmp_path: Path) -> None:
    compare(tmp_path / "guarantee.json", ROOT / "docs" / "results")
    networks = json.loads((tmp_path / "guarantee.json").read_text())["networks"]
    private = [network for network in networks if network["epsilon"] is not None]
    assert {network["source"] for network in private} >= {"cifar10-table.json", "mnist-table.json"}
    assert all(1 < network["epsilon"] < 20 and 0 < network["test_accuracy"] < 1 for network in private)
