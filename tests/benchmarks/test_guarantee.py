"""The page of the guarantee shows the results, and a small study runs and resumes."""

import json
from pathlib import Path

import pytest

from benchmarks import guarantee
from benchmarks.guarantee import Study, compare, measure, worst_cases
from resperturb.heads import OneShot
from tools.guarantee_page import PAGES, filled, read

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", PAGES)
def test_the_pages_show_the_results(name: str) -> None:
    page = (ROOT / "docs" / name).read_text()
    assert "<!-- end -->" in page
    assert filled(page, read(ROOT / "docs" / "results" / "guarantee.json")) == page


def test_a_small_study_runs_and_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESPERTURB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(guarantee, "EPSILONS", (3.0,))
    study = Study("fashion-sample", "scattering")
    monkeypatch.setattr(guarantee, "STUDIES", (study,))
    monkeypatch.setattr(guarantee, "REDUCTION", {"directions": 30, "images": 100})
    save = tmp_path / "guarantee.json"
    measure(study, save, seeds=1)
    measure(study, save, seeds=2)
    [row] = json.loads(save.read_text())["rows"]
    [result] = row["results"]
    assert row["units"] == 4000
    assert result["seeds"] == [0, 1]
    assert result["values"][0] != result["values"][1]
    assert min(result["values"]) > 0.5
    measure(study, save, seeds=2)
    assert json.loads(save.read_text())["rows"][0]["results"] == [result]


def test_worst_cases_are_kept_and_not_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarantee, "CRAFTED", (("one-shot", OneShot(), 10.0, 400),))
    save = tmp_path / "guarantee.json"
    worst_cases(save)
    [row] = json.loads(save.read_text())["worst_cases"]
    assert 4 < row["gaussian"] < 15
    assert row["any_curve"] < row["gaussian"]
    worst_cases(save)
    assert json.loads(save.read_text())["worst_cases"] == [row]


def test_networks_are_copied_with_their_source(tmp_path: Path) -> None:
    compare(tmp_path / "guarantee.json", ROOT / "docs" / "results")
    networks = json.loads((tmp_path / "guarantee.json").read_text())["networks"]
    private = [network for network in networks if network["epsilon"] is not None]
    assert {network["source"] for network in private} >= {"cifar10-table.json", "mnist-table.json"}
    assert all(1 < network["epsilon"] < 20 and 0 < network["test_accuracy"] < 1 for network in private)
