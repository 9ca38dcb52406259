"""The Hub reads the card, the record is what its schema says, and neither tells what helps an attacker."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from resperturb.cli import app
from resperturb.report.card import model_card
from resperturb.report.collect import ReportedModel
from resperturb.report.policy import default_policy
from resperturb.report.record import PrivacyRecord, privacy_record, record_json, record_schema
from resperturb.training.run import Run

SCHEMA = Path(__file__).parents[2] / "docs" / "privacy-record.schema.json"


@pytest.fixture
def mine(audited_run: Run) -> ReportedModel:
    return ReportedModel("mine | <b>", audited_run.path, audited_run)


def test_the_hub_reads_the_card_and_its_privacy_section(mine: ReportedModel) -> None:
    from huggingface_hub import ModelCard

    card = ModelCard(model_card(privacy_record(mine, default_policy())))
    assert card.data.tags == ["privacy", "membership-inference", "resperturb"]
    assert "## Privacy" in card.text
    assert "<b>" not in card.text
    assert mine.audit is not None
    for attack in mine.audit.fixed:
        assert f"{attack.auc:.3f}" in card.text
    assert "was not audited" not in card.text


def test_a_model_that_was_not_audited_is_not_called_anything(private_run: Run) -> None:
    record = privacy_record(ReportedModel("private", private_run.path, private_run), default_policy())
    card = model_card(record)
    assert record.audit is None
    assert record.decision.outcome == "unknown"
    assert "nothing can be said about what it leaks" in card


def test_the_published_schema_is_that_of_the_record() -> None:
    assert json.loads(SCHEMA.read_text()) == json.loads(json.dumps(record_schema())), (
        "write it anew: resperturb card --schema > docs/privacy-record.schema.json"
    )


def test_a_record_reads_back_as_it_was(mine: ReportedModel) -> None:
    from pydantic import TypeAdapter

    record = privacy_record(mine, default_policy(), for_reviewers=True)
    text = json.dumps(record_json(record), allow_nan=False)
    assert TypeAdapter(PrivacyRecord).validate_json(text) == record


def test_neither_tells_seeds_paths_or_fingerprints_unless_asked(audited_run: Run, tmp_path: Path) -> None:
    secrets = [audited_run.config.data.fingerprint, audited_run.config.digest, str(audited_run.path.parent), "seed"]
    card, record = tmp_path / "card.md", tmp_path / "privacy.json"
    arguments = ["card", str(audited_run.path), "-o", str(card), "--record", str(record), "--json"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    said = card.read_text() + record.read_text()
    assert not [secret for secret in secrets if secret in said]
    assert CliRunner().invoke(app, [*arguments, "--for-reviewers"]).exit_code == 0
    shown = card.read_text() + record.read_text()
    assert audited_run.digests["weights"] in shown
    assert audited_run.config.data.fingerprint not in shown  # for nobody: it would confirm a guessed record
    assert audited_run.config.digest not in shown
    assert "do not publish" in card.read_text()
