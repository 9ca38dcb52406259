"""The evidence pack answers a clause only from a field, and names what is missing for the others."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from resperturb.cli import app
from resperturb.errors import UsageError
from resperturb.report.collect import ReportedModel
from resperturb.report.evidence import TEXTS, Declared, answers, entries, precision, read_declared, read_text
from resperturb.report.gate import decide
from resperturb.report.policy import default_policy
from resperturb.report.wording import LEFT_OUT
from resperturb.training.run import Run
from tests.report.conftest import reported


@pytest.mark.parametrize("name", TEXTS)
def test_no_clause_is_answered_without_a_field(name: str, leaking: ReportedModel) -> None:
    text = read_text(name)
    assert text.read
    assert len({clause.id for clause in text.clauses}) == len(text.clauses) > 5
    stated = Declared(
        data_subjects=9, harm="none", prior=0.5, purpose="p", released_to="r", responsible="s", defence="d"
    )
    for entry in entries(text, leaking, default_policy(), stated):
        if entry.status == "answered":
            assert entry.clause.fields
            assert len(entry.answers) == len(entry.clause.fields)
            assert all(entry.answers)
        else:
            assert entry.missing or not entry.clause.fields
            assert entry.status == ("not tested" if entry.clause.fields else "for you to fill in")


def test_attacks_that_no_audit_makes_are_not_tested(leaking: ReportedModel) -> None:
    found = {entry.clause.id: entry for entry in entries(read_text(TEXTS[2]), leaking, default_policy(), Declared())}
    assert found["attacks: membership"].status == "answered"
    assert leaking.strongest is not None
    assert f"AUC {leaking.strongest.auc:.3f}" in found["attacks: membership"].answers[0]
    for other in ("attributes", "inversion", "reconstruction"):
        assert found[f"attacks: {other}"].status == "not tested"
    assert found["people"].status == "for you to fill in"
    assert found["legal basis"].status == "for you to fill in"


def test_without_an_audit_no_clause_that_needs_one_is_answered(leaking: ReportedModel) -> None:
    bare = replace(leaking, audit=None)
    found = {entry.clause.id: entry for entry in entries(read_text("satre"), bare, default_policy(), Declared())}
    assert found["3.3.06"].status == "not tested"
    assert found["3.3.04"].status == "not tested"


def test_a_defence_that_no_audit_records_is_declared(leaking: ReportedModel) -> None:
    assert leaking.defence == "not stated"
    decision = decide(leaking, default_policy())
    assert answers(decision, Declared())["defence"] is None
    assert answers(decision, Declared(defence="early stopping"))["defence"] == "early stopping"


def test_a_model_without_a_guarantee_has_no_unit_of_privacy(leaking: ReportedModel) -> None:
    found = {one.clause.id: one for one in entries(read_text("nist-800-226"), leaking, default_policy(), Declared())}
    assert found["unit of privacy"].status == "not tested"
    assert found["privacy parameters"].missing == ("delta",)


def test_training_accuracy_stays_private_where_an_epsilon_is_proven(private_run: Run, leaking: ReportedModel) -> None:
    private = reported(private_run, "private")
    found = answers(decide(private, default_policy()), Declared())["accuracy"]
    assert found == f"Accuracy {private.subject.test_accuracy:.3f} on others. {LEFT_OUT}"
    found = answers(decide(leaking, default_policy()), Declared())["accuracy"]
    assert found is not None
    assert f"{leaking.subject.train_accuracy:.3f} on training records" in found


def test_precision_is_at_the_declared_prior(leaking: ReportedModel) -> None:
    point = leaking.tpr
    assert point is not None
    decision = decide(leaking, default_policy())
    without = answers(decision, Declared())["low_false_alarms"]
    rare = answers(decision, Declared(prior=0.001))["low_false_alarms"]
    assert without is not None
    assert rare is not None
    assert "members, if" not in without
    assert "if 0.1% of the people queried are" in rare
    assert precision(point.tpr, 0.01, 0.001) < 0.1 < precision(point.tpr, 0.01, 0.5)


def test_the_command_counts_and_writes_a_page(audited_run: Run, tmp_path: Path) -> None:
    (tmp_path / "declared.yaml").write_text("data_subjects: 200\nharm: <b>stigma</b>\nprior: 0.01\n")
    page = tmp_path / "evidence.html"
    options = ["--for", "edpb-28-2024", "-o", str(page), "--declared", str(tmp_path / "declared.yaml")]
    done = CliRunner().invoke(app, ["evidence", str(audited_run.path), *options, "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert sum(told["counts"].values()) == len(told["clauses"])
    assert told["policy_sha256"] == default_policy().digest
    shown = page.read_text()
    assert "&lt;b&gt;stigma" in shown
    assert "No clause is quoted" in shown
    assert "<dt>data subjects</dt><dd>200</dd>" in shown
    assert '<dt>purpose</dt><dd><span class="rule" aria-label="to fill in">' in shown
    assert shown.count("for you to fill in</strong>") == told["counts"]["for you to fill in"]


def test_a_text_of_your_own(leaking: ReportedModel, tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("title: Ours\nurl: intranet\nread: all\nclauses:\n- {id: a, asks: b, fields: [accuracy]}\n")
    [entry] = entries(read_text(str(own)), leaking, default_policy(), Declared())
    assert entry.status == "answered"
    own.write_text("title: Ours\nurl: intranet\nread: all\nclauses:\n- {id: a, asks: b, fields: [acuracy]}\n")
    with pytest.raises(UsageError, match="there is no field 'acuracy'"):
        read_text(str(own))
    with pytest.raises(UsageError, match="there are satre, nist-800-226, edpb-28-2024"):
        read_text("hipaa")


def test_a_declaration_that_is_not_understood_is_refused(tmp_path: Path) -> None:
    for content, message in (("prior: 2\n", "prior"), ("people: 3\n", "known: data_subjects, harm")):
        (tmp_path / "d.yaml").write_text(content)
        with pytest.raises(UsageError, match=message):
            read_declared(tmp_path / "d.yaml")
