"""The page is self-contained, reports the results, and escapes a user's text."""

import html
import io
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from resperturb.auditing.store import read_audit, save_audit
from resperturb.bounds import AuditResult, attack_metrics
from resperturb.bounds.audit_result import Shadows
from resperturb.cli import app
from resperturb.cli.report import comparison
from resperturb.errors import ResperturbError, UsageError
from resperturb.privacy.guarantee import number as worded
from resperturb.report.collect import ReportedModel, open_models
from resperturb.report.page import bounds, exposed_records, render
from resperturb.report.policy import Limits, Policy
from resperturb.report.wording import LEFT_OUT, _least_exposed, headline, plainly, unequal
from resperturb.training.audited import audit_run
from resperturb.training.run import Run, open_run
from tests.conftest import passed_off_as
from tests.report.conftest import NASTY, audited, named, renamed, reported


def figures(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return {figure["key"]: figure for figure in json.loads(found[1])}


def text(page: str) -> str:
    """Return the text of the page, without its scripts and tags."""
    body = re.sub(r"<(script|style)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", body)).split())


def first_page(page: str) -> str:
    start = page.index('<section class="first')
    return text(page[start : page.index("</section>", start)])


def copied(run: Run, folder: Path) -> Run:
    shutil.copytree(run.path, folder / "copy")
    return open_run(folder / "copy")


def test_the_page_needs_nothing_from_outside(runs: list[ReportedModel], tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(render(runs, "A report"))
    page = path.read_text()
    assert path.stat().st_size < 2_000_000
    own = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert not re.findall(r'(?:src|href)\s*=\s*"(?!#|data:)', own)
    [policy] = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    assert "default-src 'none'" in policy
    assert "'unsafe-inline'" not in policy.split("script-src")[1].split(";")[0]


def test_the_questions_come_in_order(runs: list[ReportedModel], leaking: ReportedModel) -> None:
    assert headings(render(runs)) == ["decision", "leak", "accuracy", "queries", "proven", "tried", "made"]
    assert headings(render([leaking])) == ["decision", "leak", "accuracy", "proven", "tried"]


def headings(page: str) -> list[str]:
    return re.findall(r'<h2 id="(\w+)"', page)


def test_it_draws_only_what_was_measured(runs: list[ReportedModel], bare_run: Run) -> None:
    assert list(figures(render(runs))) == ["roc", "training"]
    page = render([reported(bare_run, "bare")])
    assert list(figures(page)) == ["training"]
    assert "not audited" in page


def test_it_reports_the_strongest_attack(leaking: ReportedModel) -> None:
    found = leaking.strongest
    assert found is not None
    assert leaking.audit is not None
    words = text(render([leaking]))
    attacks = len(leaking.audit.fixed)
    assert (
        f"“leaking” leaks: the strongest of {attacks} attacks ({found.name}) distinguishes training records" in words
    )
    assert f"AUC of {found.auc:.3f} ({found.interval[0]:.3f} to {found.interval[1]:.3f}; guessing: 0.5)" in words
    assert f"test accuracy is {leaking.subject.test_accuracy:.3f}" in words
    assert f"names the right one in {round(100 * found.auc)} of 100 cases (guessing: 50)" in words


def test_groups_come_first_everywhere(tmp_path: Path) -> None:
    audit = audited(3, leak=1.0, rows=800, groups=200, out=tmp_path / "audit")
    model = named("mine", audit)
    assert model.strongest is not None
    assert model.strongest.kind.startswith("group")
    assert plainly([model]).startswith("Given one group that was in the training data and one that was not")
    first = first_page(render([model]))
    assert first.index("Finding a typical group (AUC)") < first.index("Finding a typical record (AUC)")
    assert model.to_dict()["attack"]["candidates"] == model.strongest.kind  # type: ignore[index]
    assert "of the training set from others" in headline([model])
    assert "single records, with an AUC of" in headline([model])
    # Also where the leak shows on records alone.
    few = audited(0, leak=0.45, rows=400, groups=30)
    attack, kind = few.headline
    assert few.leaks
    assert kind == "record"
    group = few.strongest.metrics["group"].auc
    assert few.sentence.startswith(f"{few.model.name} leaks: AUC {group:.3f} (")
    assert f"the leak shows per record, by {attack.full_name}: AUC {attack.metrics[kind].auc:.3f}" in few.sentence
    done = CliRunner().invoke(app, ["compare", str(tmp_path / "audit")], env={"COLUMNS": "80"})
    assert "AUC of the strongest attack on groups" in " ".join(done.stdout.split())


def test_groups_are_called_after_their_column(tmp_path: Path) -> None:
    audit = replace(audited(3, leak=1.0, rows=800, groups=200, out=tmp_path / "audit"), unit="patient_id")
    page = render([named("mine", audit)])
    shown = text(page)
    assert "Given one patient who was in the training data and one who was not" in shown
    assert "Finding a typical patient (AUC)" in shown
    assert re.search(r"800 records of \d+ patients", shown)
    assert "group" not in first_page(page).lower()


def test_the_first_page_names_what_was_attacked(leaking: ReportedModel, quiet: ReportedModel) -> None:
    assert leaking.audit is not None
    recipe = replace(leaking, audit=replace(leaking.audit, subject="models of this recipe", targets=16))
    assert "Attacked this model" in first_page(render([leaking]))
    assert "Attacked models of this recipe (16 models trained for the audit)" in first_page(render([recipe]))
    both = first_page(render([recipe, quiet]))
    assert "attacked: models of this recipe" in both
    assert "attacked: this model" in both
    assert re.search(r"one in \d+ of 100 cases for “leaking”, \d+ for “quiet” \(guessing: 50\)", both)


def test_every_chart_has_a_text_alternative(runs: list[ReportedModel]) -> None:
    page = render(runs)
    for key in figures(page):
        [alt] = re.findall(rf'id="chart-{key}" role="img" aria-label="([^"]*)"', page)
        assert len(alt) > 30
    assert runs[0].strongest is not None
    assert f"{runs[0].strongest.auc:.3f}" in re.findall(r'id="chart-roc"[^>]*aria-label="([^"]*)"', page)[0]


def test_every_chart_has_its_numbers_in_a_table(runs: list[ReportedModel]) -> None:
    page = render(runs)
    for key, figure in figures(page).items():
        section = page[page.index(f'id="title-{key}"') :]
        section = section[: section.index("</section>")]
        table = text(section[section.index("<table") :])
        assert all(run.name in table for run in runs if run.audit), key
        if key == "training":
            drawn = [value for trace in figure["data"] for value in trace["y"]]
            assert drawn
            assert all(f"{value:.3f}" in table for value in drawn), key


def test_accuracies_on_training_records_stay_private_where_an_epsilon_is_proven(
    runs: list[ReportedModel],
) -> None:
    plain, _, private = runs
    assert private.guarantee.claimed_epsilon < np.inf
    everything = list(private.subject.curves)
    shown = f"{private.subject.train_accuracy:.3f}"
    section = accuracy_section(render([plain, private]))
    assert f"private left out {private.subject.test_accuracy:.3f} left out" in section
    assert f"plain {plain.subject.train_accuracy:.3f}" in section
    assert LEFT_OUT in section
    assert LEFT_OUT not in accuracy_section(render([plain]))
    drawn = {trace["name"] for trace in figures(render([plain, private]))["training"]["data"]}
    assert drawn == {"plain, training", "plain, test", "private, test"}
    reviewed = render([private], for_reviewers=True)
    assert f"private {shown}" in accuracy_section(reviewed)
    assert "private, training" in {trace["name"] for trace in figures(reviewed)["training"]["data"]}
    # The owner's own view keeps them.
    assert private.to_dict()["train_accuracy"] == private.subject.train_accuracy
    assert list(private.subject.curves) == everything


def accuracy_section(page: str) -> str:
    start = page.index('id="accuracy"')
    return text(page[start : page.index('<h2 id="', start)])


def test_more_queries_are_a_row_each(runs: list[ReportedModel]) -> None:
    page = render(runs)
    section = text(page[page.index('id="queries"') : page.index('id="proven"')])
    for way in ("1 prediction", "4 predictions", "the weights, noise off"):
        assert f"{runs[1].name} {way}" in section
    assert f"{runs[0].name} " not in section  # without noise there is one way
    assert 'id="queries"' not in render(runs[:1])


def test_charts_are_about_groups_where_there_are_groups(tmp_path: Path) -> None:
    audit = audited(3, leak=1.0, rows=800, groups=200, out=tmp_path / "audit")
    model = named("mine", audit)
    first = model.scored[0]
    assert first.kind == "group"
    scores = model.scores(first)
    assert scores.members.size + scores.nonmembers.size == audit.groups
    assert attack_metrics(scores.members, scores.nonmembers).auc == pytest.approx(first.auc)
    assert {one.kind for one in model.scored} >= {"group", "record"}
    page = render([model])
    assert "True over false positive rate on groups" in page


def test_the_number_of_groups_is_the_largest_of_any_way_to_combine_their_scores(tmp_path: Path) -> None:
    audit = audited(3, leak=1.0, rows=800, groups=200, out=tmp_path / "audit")
    first, *others = audit.attacks
    ratio = replace(first.metrics["group"], auc=0.99)
    other = replace(others[0], metrics={**others[0].metrics, "group, likelihood ratio": ratio})
    model = named("mine", replace(audit, attacks=(first, other, *others[1:])))
    assert model.strongest is not None
    assert (model.strongest.name, model.strongest.auc) == (other.full_name, 0.99)


def test_pooled_scores_of_several_targets_have_no_interval(leaking: ReportedModel) -> None:
    assert leaking.audit is not None
    several = replace(leaking, audit=replace(leaking.audit, targets=4))
    drawn = figures(render([several]))["roc"]["data"]
    assert not [trace for trace in drawn if trace.get("fill")]
    assert [trace for trace in figures(render([leaking]))["roc"]["data"] if trace.get("fill")]


def test_a_leak_by_another_attack_is_reported_with_its_interval(leaking: ReportedModel) -> None:
    audit = leaking.audit
    assert audit is not None
    strongest, other = audit.fixed[:2]
    assert other.metrics["record"].shows_leak
    unsure = replace(strongest.metrics["record"], p_value=0.5)
    quiet = replace(audit, attacks=(replace(strongest, metrics={"record": unsure}), other))
    model = named("mine", quiet)
    assert model.leaks
    assert model.deciding is not None
    assert model.deciding.name == other.full_name
    low, high = model.deciding.interval
    assert f"yes (on records by {other.full_name}: {low:.3f} to {high:.3f})" in text(render([model]))


def test_report_and_audit_name_the_same_attack_where_the_strongest_is_not_sure(leaking: ReportedModel) -> None:
    audit = leaking.audit
    assert audit is not None
    strongest, other = audit.fixed[:2]
    records = strongest.metrics["record"]
    unsure = {"record": replace(records, p_value=0.5), "canary": records}  # its leak shows on canaries alone
    model = named("mine", replace(audit, attacks=(replace(strongest, metrics=unsure), other)))
    assert model.audit is not None
    assert model.deciding is not None
    assert (model.deciding.attack, model.deciding.kind) == model.audit.headline
    assert model.deciding.name == other.full_name
    assert model.deciding.kind == "record"


def test_a_tied_rate_is_no_number_anywhere(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    members, labels = rng.random(400) < 0.5, rng.integers(0, 2, 400)
    right = np.where(np.arange(400) % 4 < 2, 0.9, 0.1)  # two scores alone
    answers = np.where(np.arange(2) == labels[:, None], right[:, None], 1 - right[:, None])
    from resperturb.auditing import audit_predictions

    audit_predictions(answers, members, labels, out=tmp_path / "tied")
    [model] = open_models([tmp_path / "tied"])
    assert model.tpr is not None
    assert model.tpr.tied
    done = CliRunner().invoke(app, ["compare", str(tmp_path / "tied"), "--json"])
    [line] = json.loads(done.stdout)["models"]
    assert line["attack"]["tpr_at_1_percent_fpr"] is None
    assert "tied" in CliRunner().invoke(app, ["compare", str(tmp_path / "tied")], env={"COLUMNS": "80"}).stdout
    page = render([model])
    [band] = [trace for trace in figures(page)["roc"]["data"] if trace.get("fill")]
    assert min(band["x"]) > 0.3  # below it no threshold lies between the tied scores
    assert not re.search(r"\b0\.000\b", text(page).split("How accurate")[0])


def test_canaries_are_in_the_verdict(runs: list[ReportedModel]) -> None:
    audit = runs[1].audit
    assert audit is not None
    assert audit.canaries is not None
    assert f"canaries, with an AUC of {audit.canaries.auc:.3f}" in headline([runs[1]])


def test_another_number_of_shadows_is_not_attacked_alike_and_not_ranked(
    leaking: ReportedModel, kept: Callable[[AuditResult], ReportedModel]
) -> None:
    assert leaking.audit is not None
    other = kept(replace(leaking.audit, shadows=Shadows(16, 0.5, 0.5, 0.5)))
    models = [leaking, renamed(other, "two")]
    warning = unequal(models)
    assert warning is not None
    assert "The shadow models: 0 for “leaking”, 16 for “two”" in warning
    assert "found least" not in headline(models)
    assert warning in text(render(models))
    assert unequal([leaking, renamed(leaking, "twin")]) is None


def test_an_auc_below_one_half_is_no_merit() -> None:
    from types import SimpleNamespace

    def model(low: float, high: float) -> Any:
        return SimpleNamespace(strongest=SimpleNamespace(interval=(low, high)))

    worse, coin, leaking = model(0.3, 0.4), model(0.45, 0.5), model(0.6, 0.7)
    assert _least_exposed([worse, coin]) is None
    assert _least_exposed([worse, leaking]) is worse


def test_no_epsilon_without_its_assumptions(runs: list[ReportedModel]) -> None:
    words = text(render(runs))
    private = runs[2].guarantee
    assert f"Proven: {private.words}." in words
    for assumption in private.assumptions:
        assert f"{assumption.status}: {assumption.statement}" in words
    noisy = runs[1].guarantees[-1]
    assert noisy.level == "vacuous"
    assert "No guarantee: Noise that is Gaussian to the end of its tails would give" in words
    assert all(assumption.statement in words for assumption in noisy.assumptions)
    assert "No guarantee: It was trained without noise." in words


def test_lower_and_upper_bounds_are_those_of_the_audit(runs: list[ReportedModel]) -> None:
    audit = runs[0].audit
    assert audit is not None
    page = render(runs)
    [shown] = re.findall(rf'aria-label="{runs[0].name}: shown ≥ (\S+)[^"]*, proven nothing"', page)
    assert shown == worded(audit.epsilon_lower.epsilon)
    [proven] = re.findall(r'aria-label="private: shown not audited, proven ≤ (\S+)"', page)
    assert proven == worded(runs[2].guarantee.epsilon)


def test_a_refuted_claim_comes_first(leaking: ReportedModel, kept: Callable[[AuditResult], ReportedModel]) -> None:
    audit = leaking.audit
    assert audit is not None
    small = replace(audit.guarantee, epsilon=0.001, setting="small")
    shown = replace(audit.epsilon_lower, epsilon=1.0, unmet=())
    page = render([kept(replace(audit, tested_guarantee=small, epsilon_lower=shown))])
    assert page.index("Refuted: “kept” was claimed") < page.index('class="verdict')
    assert "A true claim is refuted in at most 5% of audits." in page
    assert "not refuted" not in page
    assert "Refuted" not in text(render([leaking]))


def test_chance_is_not_called_a_leak() -> None:
    """Models without signal are rarely reported as leaking, whatever their strongest attack."""
    seen = [named(str(seed), audited(seed)).leaks for seed in range(40)]
    assert sum(seen) <= 6


COMMANDS = ("gate", "card", "report", "compare", "evidence")


def refused(command: str, run: Run) -> str:
    """Return a command's error for a run with an inconsistent audit; `verify` fails too."""
    verified = CliRunner().invoke(app, ["verify", str(run.path), "--json"])
    assert verified.exit_code == 1
    failed, *_ = [check for check in json.loads(verified.stdout)["checks"] if check["outcome"] == "failed"]
    more = ["--for", "satre"] if command == "evidence" else []
    done = CliRunner().invoke(app, [command, str(run.path), *more])
    assert isinstance(done.exception, ResperturbError)
    assert failed["detail"] == str(done.exception)
    return str(done.exception)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_harmless_audit_of_another_run_clears_no_run(
    command: str, audited_run: Run, noisy_run: Run, tmp_path: Path
) -> None:
    run = copied(audited_run, tmp_path)
    own = run.path / "audit"
    shutil.copy(noisy_run.path / "audit" / "audit.json", own / "audit.json")
    assert "is not the audit of" in refused(command, run)
    shutil.copy(noisy_run.path / "audit" / "plan.json", own / "plan.json")
    assert "audit.json belongs to another run" in refused(command, run)
    shutil.rmtree(own)
    shutil.copytree(noisy_run.path / "audit", own)
    assert "audit.json belongs to another run" in refused(command, run)


@pytest.mark.parametrize("command", COMMANDS)
def test_scores_that_are_gone_or_of_another_audit_are_missed(
    command: str, audited_run: Run, noisy_run: Run, tmp_path: Path
) -> None:
    run = copied(audited_run, tmp_path)
    scores = run.path / "audit" / "scores"
    first, second, *_ = [scores / f"{attack.key}.npy" for attack in read_audit(run.path / "audit").fixed]
    content = first.read_bytes()
    shutil.copy(second, first)
    assert f"{first.name} was changed" in refused(command, run)
    first.unlink()
    assert f"{first.name} is missing, and audit.json was made with it" in refused(command, run)
    first.write_bytes(content)
    shutil.copy(noisy_run.path / "audit" / "scores" / "schema.json", scores / "schema.json")
    assert "holds the scores of another audit" in refused(command, run)


def test_scores_without_their_audit_are_said_and_the_audit_of_another_version_is_refused(
    audited_run: Run, bare_run: Run, tmp_path: Path
) -> None:
    run = copied(audited_run, tmp_path)
    (run.path / "audit" / "audit.json").unlink()
    with pytest.raises(ResperturbError, match=r"has scores of attacks and no audit\.json"):
        open_models([run.path])
    (bare_run.path / "audit.json").write_text("{}")
    with pytest.raises(ResperturbError, match="another version of resperturb; run the audit again"):
        open_models([bare_run.path])


def test_verify_finds_predictions_of_another_audit(audited_run: Run, noisy_run: Run, tmp_path: Path) -> None:
    run = copied(audited_run, tmp_path)
    for place in (run.path, run.path / "audit"):
        verified = CliRunner().invoke(app, ["verify", str(place)])
        assert verified.exit_code == 0, verified.output
        assert not verified.stdout.endswith("\n\n")
    name = Path("audit", "models", "000.npz")
    shutil.copy(noisy_run.path / name, run.path / name)
    for place in (run.path, run.path / "audit"):
        verified = CliRunner().invoke(app, ["verify", str(place), "--json"])
        assert verified.exit_code == 1
        assert "000.npz belongs to another run (other question)" in verified.stdout


def test_weights_without_a_configuration_are_refused_next_to_an_audit(audited_run: Run, tmp_path: Path) -> None:
    run = copied(audited_run, tmp_path)
    (run.path / "config.json").unlink()
    with pytest.raises(UsageError, match=r"has weights and no config\.json"):
        open_models([run.path])


def test_a_run_that_was_not_audited_is_not_called_private(bare_run: Run) -> None:
    words = text(render([reported(bare_run, "bare")]))
    assert "No model was audited, so nothing is known about what they leak." in words
    assert "UNDECIDED" in words


def test_user_input_is_shown_as_text(runs: list[ReportedModel], noisy_run: Run) -> None:
    page = render(runs, NASTY)
    assert NASTY in noisy_run.result.classes
    assert NASTY not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") > 5
    assert f"10: {NASTY}, " in text(page)
    names = [trace["name"] for trace in figures(page)["roc"]["data"] if "name" in trace]
    assert "noisy &lt;script&gt;alert(1)&lt;/script&gt;" in names  # plotly would take tags for formatting


def test_how_it_was_made_can_be_read_off(
    runs: list[ReportedModel], audited_run: Run, noisy_run: Run, private_run: Run
) -> None:
    public = text(render(runs))
    words = text(render(runs, for_reviewers=True))
    for run in (audited_run, noisy_run, private_run):
        for hash_of_data in (run.config.data.fingerprint, run.config.digest):
            assert hash_of_data not in public
            assert hash_of_data not in words  # for no one: it would confirm a guessed record
        assert run.digests["weights"] not in public
        assert f"SHA-256 {run.digests['weights']}" in words
    assert "noise ≠" in words
    assert "images 28 × 28, grey" in words
    assert "seeds training 0, split 0, subset 0" in words
    assert "seeds" not in public


def test_the_first_page_of_one_model_is_the_decision(runs: list[ReportedModel]) -> None:
    first = first_page(render([runs[0]], policy=Policy(limits=Limits(auc=0.6, epsilon_shown=1000.0), name="mine")))
    assert "ABOVE POLICY: do not release" in first
    assert "Finding a typical record (AUC)" in first
    assert "is above the limit" in first
    assert "not exceeded (cannot clear a model)" in first
    assert "Epsilon shown by attacks (proven: none)" in first
    assert "Not covered stronger attacks" in first
    assert all(word in first for word in ("release to:", "do not release", "Name", "Date", "Reason"))
    default = first_page(render([runs[0]]))
    assert re.search(r"0 of 16 shadow models · \d+ of 500 records", default)
    assert "below the policy's minimum" in default
    assert "policy: default (sha " in text(render([runs[0]]))
    lenient = first_page(render([runs[0]], policy=Policy(limits=Limits(epsilon_shown=1000.0))))
    assert "WITHIN POLICY, AS TESTED" in lenient


def test_an_undecided_model_has_the_next_command_and_its_time(noisy_run: Run) -> None:
    first = first_page(render([reported(noisy_run, "noisy")]))
    assert re.search(r"UNDECIDED: do not release yet", first)
    assert re.search(r"Next step resperturb audit noisy --shadows 16 \(about .* of training\); audit at least", first)


def test_of_several_models_the_worst_comes_first(leaking: ReportedModel, quiet: ReportedModel) -> None:
    policy = Policy(limits=Limits(auc=0.6))
    page = render([quiet, leaking], policy=policy)
    first = first_page(page)
    assert first.index("leaking") < first.index("ABOVE POLICY") < first.index("quiet") < first.index("WITHIN POLICY")
    [place] = re.findall(r'<line class="limit" x1="([\d.]+)"', page)[:1]
    assert float(place) == pytest.approx(4 + 192 * 0.2)  # 0.6 on a scale from 0.5 to 1


def test_models_are_ranked_only_where_chance_did_not_make_the_order(
    leaking: ReportedModel, quiet: ReportedModel
) -> None:
    twice = [leaking, renamed(leaking, "twin")]
    assert headline(twice).startswith("A leak was seen in both audited models. The models are not ranked")
    apart = headline([quiet, leaking])
    assert apart.startswith(
        "A leak was seen in 1 of 2 audited models (“leaking”). The attacks found least in “quiet”"
    )


def test_a_missing_guarantee_is_reported_once(noisy_run: Run, tmp_path: Path) -> None:
    run = copied(noisy_run, tmp_path)
    audit = read_audit(run.path / "audit")
    unproven = replace(audit, guarantee=run.guarantee(1e-300), delta=1e-300)
    save_audit(replace(unproven, tested_guarantee=unproven.guarantee), run.path / "audit")
    model = reported(run, "noisy")
    assert model.guarantee.not_met
    assert text(render([model])).count("No guarantee: ") == 1


def test_private_records_are_shown_only_on_request(runs: list[ReportedModel], audited_run: Run) -> None:
    from resperturb.training.inputs import load_inputs

    picture = '<li><img src="data:image/png;base64,'
    assert picture not in render(runs)
    page = render(runs, show_records=True)
    assert page.count(picture) == 24  # twelve of each audited run
    assert "Treat it as you treat the records themselves" in page
    members = {f"Training image {index}" for index in load_inputs(audited_run.config.data).member_indices}
    shown = {alt.split(",")[0] for _, alt, _ in exposed_records(runs[0])}
    assert len(shown) == 12
    assert shown <= members


def test_a_damaged_audit_is_named(audited_run: Run, tmp_path: Path) -> None:
    run = copied(audited_run, tmp_path)
    for content in ("{", "{}", "[]", '{"schema": 99}'):
        (run.path / "audit" / "audit.json").write_text(content)
        with pytest.raises(ResperturbError, match=r"audit\.json"):
            open_models([run.path])


def test_a_report_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least one"):
        render([])
    with pytest.raises(UsageError, match="neither a finished run nor an audit"):
        open_models([tmp_path])
    with pytest.raises(UsageError, match=r"there is no folder .*/typo\.$"):
        open_models([tmp_path / "typo"])
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").touch()
    with pytest.raises(UsageError, match=r"Name one of the folders in it: a, b\."):
        open_models([tmp_path])


def test_report_and_compare_from_the_command_line(audited_run: Run, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    written = CliRunner().invoke(app, ["report", str(audited_run.path), "-o", str(page), "--json"])
    assert written.exit_code == 0, written.output
    [line] = json.loads(written.stdout)["models"]
    assert line["guarantee"]["epsilon"] == "inf"
    assert line["attack"]["leaks"] is True
    assert "<title>plain: membership privacy audit</title>" in page.read_text()
    compared = CliRunner().invoke(app, ["compare", str(audited_run.path), str(tmp_path)])
    assert compared.exit_code == 0, compared.output
    assert f"{audited_run.result.test_accuracy:.3f}" in compared.output
    assert str(tmp_path) in compared.stderr
    mistyped = CliRunner().invoke(app, ["compare", str(audited_run.path), str(tmp_path / "typo")])
    assert "typo" in str(mistyped.exception)
    nothing = CliRunner().invoke(app, ["compare", str(tmp_path)])
    assert isinstance(nothing.exception, UsageError)


def test_compare_lists_what_differs_and_sorts(audited_run: Run, noisy_run: Run, private_run: Run) -> None:
    paths = [str(run.path) for run in (private_run, noisy_run, audited_run)]

    def order(by: str) -> list[str]:
        done = CliRunner().invoke(app, ["compare", *paths, "--sort", by, "--json"])
        return [line["name"] for line in json.loads(done.stdout)["models"]]

    assert order("given") == ["private", "noisy", "plain"]
    assert order("name") == ["noisy", "plain", "private"]
    assert order("leakage") == ["noisy", "plain", "private"]  # what was not audited comes last
    assert order("epsilon")[0] == "private"
    shown = CliRunner().invoke(app, ["compare", *paths], env={"COLUMNS": "200"}).stdout
    assert "The models also differ in: " in " ".join(shown.split())
    assert "additive 0.5" in shown
    assert "DP-SGD 2" in shown


def test_runs_of_one_name_are_numbered_and_no_path_is_shown(private_run: Run, tmp_path: Path) -> None:
    other = copied(private_run, tmp_path)
    shutil.copytree(other.path, tmp_path / "beside" / "copy")
    models = open_models([other.path, tmp_path / "beside" / "copy"])
    assert [model.name for model in models] == ["copy (1)", "copy (2)"]
    assert str(tmp_path) not in render(models, "A report")


def test_no_digit_of_the_hash_and_no_folder_of_a_network_is_shown(audited_run: Run, tmp_path: Path) -> None:
    hashed = tmp_path / audited_run.config.digest
    shutil.copytree(audited_run.path, hashed)
    [model] = open_models([hashed])
    assert model.name == "plain, resnet8"
    assert hashed.name not in render([model])
    there = {"model": "transformers:/home/me/net", "model_args": {"vocabulary": "/home/me/words.txt"}}
    run = passed_off_as(audited_run, audited_run.config.model_copy(update=there), tmp_path / "mine")
    page = render([reported(run, "mine")])
    assert "transformers:net" in page
    assert "words.txt" in page
    assert "/home/me" not in page


def test_bounds_that_were_not_measured_alike_are_not_in_one_column(
    audited_run: Run, noisy_run: Run, private_run: Run
) -> None:
    def compared(*runs: Run) -> str:
        done = CliRunner().invoke(app, ["compare", *(str(run.path) for run in runs)], env={"COLUMNS": "80"})
        assert done.exit_code == 0, done.output
        assert max(map(len, done.stdout.splitlines())) <= 80
        return " ".join(done.stdout.split())

    apart = compared(audited_run, noisy_run, private_run)
    assert "may not be compared" in apart
    assert "shown shown" in apart
    assert "as 1 as 2" in apart
    assert "infinite" not in apart
    alone = compared(audited_run, private_run)
    assert "may not be compared" not in alone
    assert "epsilon epsilon" in alone
    assert ">=" in alone


def test_a_converted_epsilon_is_shown_with_the_target_epsilon_and_says_swap(private_run: Run, tmp_path: Path) -> None:
    run = copied(private_run, tmp_path)
    audit = audit_run(run, shadows=0)
    proven = run.guarantee()
    shown = replace(audit.epsilon_lower, neighbours="swap")
    save_audit(replace(audit, tested_guarantee=proven.as_swap(), epsilon_lower=shown), run.path / "audit")
    trained_for, converted = worded(proven.epsilon), worded(proven.as_swap().epsilon)
    done = CliRunner().invoke(app, ["compare", str(run.path)], env={"COLUMNS": "80"})
    assert f"<= {trained_for}" in done.stdout
    assert f"<= {converted} swap" in done.stdout
    page = render(open_models([run.path]))
    assert f"proven ≤ {trained_for} ({converted} for swaps, drawn)" in page
    words = text(page)
    largest = f"attack AUC at most {proven.max_auc:.3f}"
    assert f"psilon at most {trained_for} at delta {proven.delta:g}, {largest}." in words
    assert f"AUC {proven.max_auc:.3f}" in done.stdout
    assert f"psilon at most {converted} at delta {proven.delta:g}, counted for the swap of a record" in words


def test_a_model_without_a_bound_is_shown_without_one(leaking: ReportedModel) -> None:
    audit = leaking.audit
    assert audit is not None
    unbounded = replace(audit, epsilon_lower=replace(audit.epsilon_lower, epsilon=0.0, unmet=("No coins decided.",)))
    given = named("given", unbounded)
    assert [one.shown for one in bounds([leaking, given])] == [f"≥ {worded(audit.epsilon_lower.epsilon)}"]
    assert unbounded.epsilon_lower.correction not in text(render([given])).split("What is proven?")[-1]
    console = Console(width=200, file=io.StringIO())
    console.print(comparison([leaking, given]))
    rows = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert next(row for row in rows if row.startswith(" given ")).rstrip().endswith("no bound")
