"""The study of audits: its declarations are valid, and a small one runs, resumes and writes its tables."""

import json
from pathlib import Path

import pytest

from benchmarks import audit_study
from benchmarks.audit_study import MATCHED, StudiedModel, config, run_study, variants
from benchmarks.controls import CONTROLS, Control
from resperturb.perturbation import Additive
from resperturb.training.config import CanaryConfig


def test_the_models_differ_in_what_they_are_named_after() -> None:
    chosen = variants()
    assert MATCHED in [variant.name for variant in chosen]
    assert len({variant.config.digest for variant in chosen}) == len(chosen)
    assert {variant.config.data for variant in chosen} == {config().data}
    assert {len(control.configs(config())) for control in CONTROLS} <= {2, 3, 4}


def test_a_small_study_runs_and_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_study, "IMAGES", 80)
    monkeypatch.setattr(audit_study, "EPOCHS", 4)
    monkeypatch.setattr(audit_study, "CANARIES", CanaryConfig(mislabelled=8, blank=4))
    monkeypatch.setattr(audit_study, "CONTROLS", (Control("no decay", (0.0,), lambda _, v: {"weight_decay": v}),))
    monkeypatch.setattr(audit_study, "variants", lambda: [StudiedModel(MATCHED, config(Additive(0.1)), (1, 2))])
    said: list[str] = []
    found = run_study(tmp_path, jobs=1, shadows=4, say=said.append)
    assert [row["name"] for row in found["rows"]] == [MATCHED, "no decay 0"]
    assert json.loads((tmp_path / "study.json").read_text())["rows"] == found["rows"]
    table = (tmp_path / "study.md").read_text()
    for words in (MATCHED, "no decay 0", "mislabelled", "| 2 draws |", "`shadow-adaptive` | mean logit"):
        assert words in table
    monkeypatch.setattr("resperturb.training.loop._train", lambda *_: pytest.fail("it was trained before"))
    assert run_study(tmp_path, jobs=1, shadows=4) == found
