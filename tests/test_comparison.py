"""The page of other tools has the measured numbers, by the scripts of this repository."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from numpy.typing import NDArray

import resperturb as rp
from resperturb.bounds.attack_metrics import attack_metrics

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "benchmarks" / "comparison"
RESULT = json.loads((ROOT / "docs" / "results" / "comparison.json").read_text())


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def measure() -> ModuleType:
    return script("measure")


def test_the_tables_of_the_page_are_those_of_the_result(measure: ModuleType) -> None:
    page = (ROOT / "docs" / "comparison.md").read_text()
    for table in measure.tables(RESULT).split("\n\n"):
        assert table in page


def test_the_bounds_of_the_result_are_those_of_the_library_today() -> None:
    assert list(RESULT["bounds"]["resperturb"]["false_claims"]) == list(script("run_bounds").resperturb())


def test_what_the_page_says_of_the_bounds_follows_from_the_result() -> None:
    page = " ".join((ROOT / "docs" / "comparison.md").read_text().split())
    ours, jax, meter = (RESULT["bounds"][tool] for tool in ("resperturb", "jax-privacy", "privacy-meter"))
    assert "It shows more on all five scores." in page
    assert [ours["scores"][name]["one_run"] > found["one_run"] for name, found in jax["scores"].items()] == [True] * 5

    assert {ours["nulls"], jax["nulls"], meter["nulls"]} == {200}
    false = [*meter["false_claims"].values(), *jax["false_claims"].values(), *ours["false_claims"].values()]
    said = "Privacy Meter's was in **{}**, jax-privacy's `one_run` in {} and `one_run_fdp` in {}, ours in {}."
    assert said.format(*false) in page


def test_the_lines_of_glue_are_those_of_the_scripts_today(measure: ModuleType) -> None:
    for name, tool in RESULT["tools"].items():
        assert tool["glue_lines"] == measure.lines_of_code((SCRIPTS / tool["script"]).read_text()), name


def test_only_lines_with_code_are_glue(measure: ModuleType) -> None:
    assert measure.lines_of_code('"""Says."""\n\nimport os  # why\n# more\nx = [\n    1,\n]\n') == 4
    assert measure.lines_of_code('def f():\n    """Says."""\n    return """a\nb"""\n') == 3


def test_the_scores_of_an_audit_are_kept_for_other_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    features = np.random.default_rng(0).normal(size=(60, 4))
    labels = (features[:, 0] > 0).astype(int)

    def train(indices: NDArray[np.int64], seed: int) -> object:
        right = np.random.default_rng(seed).uniform(0.5, 0.9, 60)
        right[indices] += 0.1
        answers = np.where(np.arange(2) == labels[:, None], right[:, None], 1 - right[:, None])
        return lambda rows: answers[rows]

    found = rp.audit(train, labels=labels, shadows=4, out=tmp_path / "audit", jobs=1)
    out = tmp_path / "found.json"
    monkeypatch.setattr(sys, "argv", ["", "models.npz", "0", str(out)])
    script("shared").finish_audit(found)

    said = json.loads(out.read_text())
    assert said["epsilon"] == found.epsilon_lower.epsilon
    with np.load(out.with_suffix(".npz")) as kept:
        scores, members = kept["scores"], kept["members"]
    assert attack_metrics(scores[members], scores[~members]).auc == pytest.approx(said["attacks"][0]["auc"])
