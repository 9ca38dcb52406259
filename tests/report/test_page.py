"""The page is self-contained, says what was found, and shows a user's words as words."""

import dataclasses
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from resperturb.cli import app
from resperturb.errors import UsageError
from resperturb.report.collect import ReportedRun
from resperturb.report.page import render, verdict, write_report
from resperturb.training.run import Run

NASTY = "<script>alert(1)</script>"


def charts(page: str) -> list[dict[str, object]]:
    found = re.search(r'<script type="application/json" id="charts">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return list(json.loads(found[1]))


def test_the_page_needs_nothing_from_outside(attacked_run: Run, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_report(path, [ReportedRun("mine", attacked_run)], "A report")
    page = path.read_text()
    assert path.stat().st_size < 6_000_000
    own = page.replace(re.search(r"<script>(.*?)</script>", page, re.DOTALL)[1], "")  # type: ignore[index]
    assert not re.findall(r'(?:src|href)\s*=\s*"(?:https?:)?//', own)
    assert "default-src 'none'" in page


def test_it_says_what_the_attack_found(attacked_run: Run) -> None:
    found = json.loads((attacked_run.path / "attacks" / "shadow.json").read_text())
    page = render([ReportedRun("mine", attacked_run)], "A report")
    assert f"“mine” leaks under the shadow attack: AUC {found['auc']:.3f}" in page
    assert f"<td>{attacked_run.result['test_accuracy']:.3f}</td>" in page
    assert len(charts(page)) == 4


def test_a_run_that_was_not_attacked_is_not_called_private(attacked_run: Run, tmp_path: Path) -> None:
    bare = dataclasses.replace(attacked_run, path=tmp_path)
    for name in ("config.json", "result.json", "model.safetensors", "metrics.jsonl"):
        (tmp_path / name).write_bytes((attacked_run.path / name).read_bytes())
    run = ReportedRun("bare", bare)
    assert verdict([run]) == "No attack was run on these models, so nothing can be said about what they leak."
    page = render([run], "A report")
    assert "not attacked" in page
    assert len(charts(page)) == 2  # nothing to draw of an attack: the sections are absent


def test_what_a_user_supplied_is_shown_as_text(attacked_run: Run) -> None:
    page = render([ReportedRun(NASTY, attacked_run)], NASTY)
    assert NASTY not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_a_report_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least one"):
        write_report(tmp_path / "report.html", [], "empty")


def test_report_and_compare_from_the_command_line(attacked_run: Run, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    written = CliRunner().invoke(app, ["report", str(attacked_run.path), "-o", str(page), "--json"])
    assert written.exit_code == 0, written.output
    assert page.exists()
    compared = CliRunner().invoke(app, ["compare", str(attacked_run.path), str(tmp_path)])
    assert compared.exit_code == 0, compared.output
    assert f"{attacked_run.result['test_accuracy']:.3f}" in compared.output
    nothing = CliRunner().invoke(app, ["compare", str(tmp_path)])
    assert isinstance(nothing.exception, UsageError)
