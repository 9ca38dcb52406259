"""The Hub reads the card, and it reveals nothing that helps an attacker."""

from pathlib import Path

from typer.testing import CliRunner

from resperturb.cli import app
from resperturb.report.card import model_card
from resperturb.report.collect import ReportedModel
from resperturb.report.policy import default_policy
from resperturb.report.wording import LEFT_OUT
from resperturb.training.run import Run
from tests.report.conftest import renamed, reported


def test_the_hub_reads_the_card_and_its_privacy_section(leaking: ReportedModel) -> None:
    from huggingface_hub import ModelCard

    mine = renamed(leaking, "mine | <b>")
    card = ModelCard(model_card(mine, default_policy()))
    assert card.data.tags == ["privacy", "membership-inference", "resperturb"]
    assert "## Privacy" in card.text
    assert "**✗ ABOVE POLICY: do not release.**" in card.text
    assert f"Policy: default (sha {default_policy().digest[:8]})." in card.text
    assert "<b>" not in card.text
    assert mine.audit is not None
    for attack in mine.audit.fixed:
        assert f"{attack.auc:.3f}" in card.text
    assert "not audited" not in card.text
    metadata = card.data.to_dict()["resperturb"]
    assert metadata["policy_sha256"] == default_policy().digest
    assert metadata["status"] == "ABOVE POLICY"
    assert "model inversion" in metadata["not_tested"]
    assert mine.strongest is not None
    assert card.data.eval_results is not None
    assert [result.metric_value for result in card.data.eval_results] == [
        round(mine.subject.test_accuracy, 4),
        round(mine.strongest.auc, 4),
    ]


def test_a_model_that_was_not_audited_is_not_called_anything(private_run: Run) -> None:
    card = model_card(reported(private_run, "private"), default_policy())
    assert "UNDECIDED" in card
    assert "nothing is known about what it leaks" in card


def test_training_accuracy_stays_private_where_an_epsilon_is_proven(private_run: Run, audited_run: Run) -> None:
    plain, private = reported(audited_run, "plain"), reported(private_run, "private")
    card = model_card(private, default_policy())
    assert f"Accuracy {private.subject.test_accuracy:.3f} on others. {LEFT_OUT}" in card
    assert "on training records," not in card
    assert "on training records," in model_card(private, default_policy(), for_reviewers=True)
    assert "on training records," in model_card(plain, default_policy())


def test_it_has_no_seed_path_or_fingerprint_unless_requested(audited_run: Run, tmp_path: Path) -> None:
    secrets = [audited_run.config.data.fingerprint, audited_run.config.digest, str(audited_run.path.parent), "seed"]
    card = tmp_path / "card.md"
    arguments = ["card", str(audited_run.path), "-o", str(card), "--json"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert not [secret for secret in secrets if secret in card.read_text()]
    assert CliRunner().invoke(app, [*arguments, "--for-reviewers"]).exit_code == 0
    shown = card.read_text()
    assert audited_run.digests["weights"] in shown
    assert audited_run.config.data.fingerprint not in shown  # for no one: it would confirm a guessed record
    assert audited_run.config.digest not in shown
    assert "do not publish" in shown
