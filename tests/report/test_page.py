"""The page is self-contained, says what was found, and shows a user's words as words."""

import dataclasses
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from resperturb.audits import kept_attacks, read_audit
from resperturb.audits.result import keep_attack, save_audit
from resperturb.cli import app
from resperturb.errors import ResperturbError, UsageError
from resperturb.privacy.guarantee import number as worded
from resperturb.report.collect import ReportedModel, open_models
from resperturb.report.page import render, write_report
from resperturb.training.run import Run, open_run
from tests.conftest import passed_off_as

NASTY = "<script>alert(1)</script>"


def figures(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return {figure["key"]: figure for figure in json.loads(found[1])}


def text(page: str) -> str:
    """The words of the page, without its scripts and tags."""
    import html

    body = re.sub(r"<(script|style)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", body)).split())


def test_the_page_needs_nothing_from_outside(runs: list[ReportedModel], tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_report(path, runs, "A report")
    page = path.read_text()
    assert path.stat().st_size < 2_000_000
    own = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert not re.findall(r'(?:src|href)\s*=\s*"(?!#|data:)', own)
    [policy] = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    assert "default-src 'none'" in policy
    assert "'unsafe-inline'" not in policy.split("script-src")[1].split(";")[0]


def test_the_questions_come_in_order(runs: list[ReportedModel]) -> None:
    headings = re.findall(r'<h2 id="(\w+)">', render(runs, "A report"))
    assert headings == ["decision", "leak", "accuracy", "proven", "tried", "made"]


def test_it_draws_what_there_is_and_no_more(runs: list[ReportedModel], bare_run: Run) -> None:
    assert list(figures(render(runs, "all"))) == [
        *("frontier", "roc", "low-fpr", "scores", "precision", "queries", "kinds"),
        *("gap", "training", "bounds"),
    ]
    page = render([ReportedModel("bare", bare_run.path, bare_run)], "bare")
    assert list(figures(page)) == ["gap", "training"]
    assert 'id="chart-roc"' not in page
    assert "not attacked" in page


def test_it_says_what_the_strongest_attack_found(attacked_run: Run) -> None:
    [kept] = kept_attacks(attacked_run.path)
    found = kept.result
    words = text(render([ReportedModel("mine", attacked_run.path, attacked_run)], "A report"))
    assert "“mine” leaks: the only attack that was tried (shadow, served)" in words
    assert f"AUC of {found.auc:.3f} ({found.auc_interval[0]:.3f} to {found.auc_interval[1]:.3f})" in words
    assert f"its test accuracy is {attacked_run.result.test_accuracy:.3f}" in words


def test_every_chart_is_told_in_words_too(runs: list[ReportedModel]) -> None:
    page = render(runs, "A report")
    for key in figures(page):
        [alt] = re.findall(rf'id="chart-{key}" role="img" aria-label="([^"]*)"', page)
        assert len(alt) > 30
    assert f"{runs[0].attacks[0].auc:.3f}" in re.findall(r'id="chart-frontier"[^>]*aria-label="([^"]*)"', page)[0]


def test_what_a_chart_shows_is_in_a_table_too(runs: list[ReportedModel]) -> None:
    page = render(runs, "A report")
    for key, figure in figures(page).items():
        section = page[page.index(f'id="title-{key}"') :]
        section = section[: section.index("</section>")]
        if key in ("frontier", "gap"):  # the table at the head of their part
            continue
        table = text(section[section.index("<table") :])
        assert all(run.name in table for run in runs if run.attacks and (key != "kinds" or run.name != "plain")), key
        if key in ("low-fpr", "queries", "training"):
            drawn = [value for trace in figure["data"] for value in trace["y"]]
            assert drawn
            assert all(f"{value:.3f}" in table for value in drawn), key


def test_probabilities_are_drawn_on_a_logit_scale_in_the_order_of_the_scores() -> None:
    from types import SimpleNamespace

    import numpy as np

    from resperturb.bounds import AttackScores
    from resperturb.report.score_charts import _scaled

    rng = np.random.default_rng(0)
    shares = rng.uniform(0.001, 0.999, 200)
    for scores, on_logit in ((shares, True), (np.log(shares), True), (rng.normal(size=200), False)):
        scaled = _scaled(SimpleNamespace(scores=AttackScores(scores[:100], scores[100:])))  # type: ignore[arg-type]
        assert scaled.logit is on_logit
        assert np.array_equal(np.argsort(scaled.members), np.argsort(scores[:100]))
        if on_logit:
            assert np.allclose(scaled.members, np.log(shares / (1 - shares))[:100])
            assert "50%" in scaled.axis("score")["ticktext"]


def test_leakage_and_accuracy_over_gamma_have_axes_of_their_own(
    runs: list[ReportedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    from resperturb.report import leak_charts

    series = [(run, run.attacks[0]) for run in runs[:2]]
    monkeypatch.setattr(leak_charts, "_series", lambda _: {"additive": series})
    chart = leak_charts.leakage_over_gamma(runs)
    assert chart is not None
    assert [trace.get("yaxis", "y") for trace in chart.figure["data"]] == ["y", "y2"]
    layout = chart.figure["layout"]
    assert layout["yaxis"]["domain"][0] > layout["yaxis2"]["domain"][1]


def test_a_tied_rate_is_no_number_anywhere_and_an_attack_without_ties_goes_first(
    attacked_run: Run, tmp_path: Path
) -> None:
    import numpy as np

    from resperturb.audits.result import keep_attack
    from resperturb.bounds import AttackResult, AttackScores, attack_metrics
    from resperturb.report.score_charts import low_false_positives

    run = copied(attacked_run, tmp_path)
    for path in (run.path / "attacks").iterdir():
        path.unlink()

    def keep(name: str, members: Any, nonmembers: Any) -> ReportedModel:
        metrics = {"record": attack_metrics(members, nonmembers)}
        attack = AttackResult(name, "", "weights", 1, None, True, metrics)
        keep_attack(run.path, attack, AttackScores(members, nonmembers), dict(run.digests))
        return ReportedModel("mine", run.path, run)

    def compared() -> tuple[Any, str]:
        [line] = json.loads(CliRunner().invoke(app, ["compare", str(run.path), "--json"]).stdout)["runs"]
        table = CliRunner().invoke(app, ["compare", str(run.path)], env={"COLUMNS": "80"}).stdout
        return line["attack"]["tpr_at_1_percent_fpr"], table

    votes = np.repeat([0.0, 1.0], [50, 150]), np.repeat([0.0, 1.0], [100, 100])
    mine = keep("label-only", *votes)
    assert low_false_positives([mine]) is None
    [band] = [trace for trace in figures(render([mine], "A report"))["roc"]["data"] if trace.get("fill")]
    assert min(band["x"]) == 0.5  # below it no threshold lies between the tied scores
    number, table = compared()
    assert number is None
    assert "tied" in table
    assert not re.search(r"\b0\.000\b", text(render([mine], "A report")))
    mine = keep("weaker", np.arange(200.0), np.arange(200.0) - 4)
    assert mine.worst is not None
    assert mine.worst.name.startswith("label-only")
    point = mine.tpr(0.01)
    assert point is not None
    number, table = compared()
    assert number == point.tpr > 0
    assert f"{point.tpr:.3f}" in table
    assert f"{100 * point.tpr:.1f}% (" in text(render([mine], "A report"))


def test_canaries_are_in_the_verdict(runs: list[ReportedModel]) -> None:
    audit = runs[1].audit
    assert audit is not None
    assert audit.canaries is not None
    words = text(render([runs[1]], "A report"))
    area = f"AUC of {audit.canaries.auc:.3f}"
    assert f"canaries, the records made for the audit, with an {area}" in words.split("The decision")[0]
    assert f"canaries, AUC {audit.canaries.auc:.3f}" in words.split("The decision")[0]
    assert runs[0].audit is not None
    assert runs[0].audit.canaries is None
    assert "Who is most exposed was not measured in “plain”" in text(render([runs[0]], "A report"))


def test_another_number_of_shadows_is_not_attacked_alike_and_has_no_frontier(
    audited_run: Run, tmp_path: Path
) -> None:
    from resperturb.bounds.audit_result import Shadows
    from resperturb.report.leak_charts import leak_against_accuracy
    from resperturb.report.wording import headline, unequal

    run = copied(audited_run, tmp_path)
    audit = read_audit(run.path, dict(run.digests))
    save_audit(dataclasses.replace(audit, shadows=Shadows(16, 0.5, 0.5, 0.5)), run.path)
    models = [ReportedModel("one", audited_run.path, audited_run), ReportedModel("two", run.path, run)]
    warning = unequal(models)
    assert warning is not None
    assert "The shadow models: 0 for “one”, 16 for “two”" in warning
    assert "found least" not in headline(models)
    chart = leak_against_accuracy(models)
    assert chart is not None
    assert not [trace for trace in chart.figure["data"] if "frontier" in trace["name"]]


def test_an_auc_below_one_half_is_no_merit() -> None:
    from types import SimpleNamespace

    from resperturb.report.wording import _least_exposed

    def model(low: float, high: float) -> Any:
        return SimpleNamespace(attacks=[SimpleNamespace(interval=(low, high))])

    worse, coin, leaking = model(0.3, 0.4), model(0.45, 0.5), model(0.6, 0.7)
    assert _least_exposed([worse, coin]) is None
    assert _least_exposed([worse, leaking]) is worse


def test_no_epsilon_without_what_it_rests_on(runs: list[ReportedModel]) -> None:
    words = text(render(runs, "A report"))
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
    bounds = {
        trace["name"]: trace for trace in figures(render(runs, "A report"))["bounds"]["data"] if "name" in trace
    }
    lower = bounds["shown by an attack (lower bound)"]
    assert lower["x"][0] == max(0.01, audit.epsilon_lower.epsilon)
    upper = bounds["proven (upper bound)"]
    assert upper["x"] == [runs[2].guarantee.epsilon]


def test_a_refuted_claim_is_the_first_thing_one_reads(audited_run: Run, tmp_path: Path) -> None:
    run = copied(audited_run, tmp_path)
    audit = read_audit(run.path)
    small = dataclasses.replace(audit.guarantee, epsilon=0.001, setting="small")
    shown = dataclasses.replace(audit.epsilon_lower, epsilon=1.0, unmet=())
    save_audit(dataclasses.replace(audit, tested_guarantee=small, epsilon_lower=shown), run.path)
    page = render([ReportedModel("mine", run.path, run)], "A report")
    assert page.index("Refuted: “mine” was claimed") < page.index('class="verdict"')
    assert "A true claim is refuted in at most 5% of audits." in page
    assert "not refuted" not in page
    assert "Refuted" not in text(render([ReportedModel("mine", audited_run.path, audited_run)], "A report"))


def test_runs_that_were_not_attacked_alike_are_not_compared_without_a_warning(
    runs: list[ReportedModel], attacked_run: Run
) -> None:
    page = text(render([runs[0], ReportedModel("other", attacked_run.path, attacked_run)], "A report"))
    assert "were not attacked alike" in page
    assert "of “other”" in page.split("Missing: ")[1].split(".")[0]  # which is the one to be attacked
    twice = [
        ReportedModel("one", attacked_run.path, attacked_run),
        ReportedModel("two", attacked_run.path, attacked_run),
    ]
    assert "were not attacked alike" not in render(twice, "A report")


def test_chance_is_not_called_a_leak(attacked_run: Run, tmp_path: Path) -> None:
    """Scores that know nothing of membership, many times over: the best of them looks like a leak, and is none."""
    import numpy as np

    from resperturb.audits.result import keep_attack
    from resperturb.bounds import AttackResult, AttackScores, attack_metrics

    rng = np.random.default_rng(0)
    run = copied(attacked_run, tmp_path)
    for path in (run.path / "attacks").iterdir():
        path.unlink()
    for number in range(20):
        scores = AttackScores(rng.random(200), rng.random(200))
        metrics = {"record": attack_metrics(scores.members, scores.nonmembers)}
        attack = AttackResult(f"a{number}", "", "weights", 1, None, True, metrics)
        keep_attack(run.path, attack, scores, dict(run.digests))
    mine = ReportedModel("mine", run.path, run)
    assert mine.worst is not None
    assert mine.worst.interval[0] > 0.5  # the naive reading would be a leak
    assert not mine.leaks
    assert "“mine” was not seen to leak: the strongest of 20 attacks" in text(render([mine], "A report"))


def test_an_audit_or_an_attack_of_another_run_is_refused_by_name(
    audited_run: Run, bare_run: Run, noisy_run: Run, tmp_path: Path
) -> None:
    shutil.copy(noisy_run.path / "audit.json", bare_run.path / "audit.json")
    with pytest.raises(ResperturbError, match=r"audit\.json belongs to another run"):
        render([ReportedModel("bare", bare_run.path, bare_run)], "A report")
    (bare_run.path / "audit.json").unlink()
    shutil.copytree(noisy_run.path / "attacks", bare_run.path / "attacks")
    with pytest.raises(ResperturbError, match=r"\.json belongs to another run"):
        render([ReportedModel("bare", bare_run.path, bare_run)], "A report")
    shutil.rmtree(bare_run.path / "attacks")
    shutil.copytree(audited_run.path / "attacks", bare_run.path / "attacks")
    one, other, *_ = sorted((bare_run.path / "attacks").glob("*.npz"))
    shutil.copy(one, other)
    with pytest.raises(ResperturbError, match=rf"{other.name} belongs to another run \(other attack\)"):
        render([ReportedModel("bare", bare_run.path, bare_run)], "A report")


def test_an_attack_of_the_audit_that_is_gone_or_replaced_is_missed(audited_run: Run, tmp_path: Path) -> None:
    run = copied(audited_run, tmp_path)
    strongest, other, *_ = (f"{attack.key}.json" for attack in read_audit(run.path).fixed)
    gone = run.path / "attacks" / strongest
    shutil.copy(run.path / "attacks" / other, gone)
    shutil.copy(run.path / "attacks" / other.replace(".json", ".npz"), gone.with_suffix(".npz"))
    with pytest.raises(ResperturbError, match=f"{strongest} is another attack"):
        render([ReportedModel("copy", run.path, run)], "A report")
    gone.unlink()
    with pytest.raises(ResperturbError, match=rf"{strongest} is missing, and audit\.json was made with it"):
        render([ReportedModel("copy", run.path, run)], "A report")
    verified = CliRunner().invoke(app, ["verify", str(run.path), "--json"])
    assert verified.exit_code == 1
    assert f"{strongest} is missing" in json.loads(verified.stdout)["checks"][-1]["detail"]
    whole = CliRunner().invoke(app, ["verify", str(audited_run.path)])
    assert whole.exit_code == 0, whole.output


def test_a_run_that_was_not_attacked_is_not_called_private(bare_run: Run) -> None:
    words = text(render([ReportedModel("bare", bare_run.path, bare_run)], "A report"))
    assert "No attack was run on these models, so nothing can be said about what they leak." in words


def test_what_a_user_supplied_is_shown_as_text(runs: list[ReportedModel]) -> None:
    page = render(runs, NASTY)
    assert NASTY in runs[1].run.result.classes
    assert NASTY not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") > 5
    assert f"10: {NASTY}, " in text(page)
    names = [trace["name"] for trace in figures(page)["roc"]["data"] if "name" in trace]
    assert "noisy &lt;script&gt;alert(1)&lt;/script&gt;" in names  # plotly would take tags for formatting


def test_how_it_was_made_can_be_read_off(runs: list[ReportedModel]) -> None:
    public = text(render(runs, "A report"))
    words = text(render(runs, "A report", for_reviewers=True))
    for run in runs:
        for hash_of_data in (run.run.config.data.fingerprint, run.run.config.digest):
            assert hash_of_data not in public
            assert hash_of_data not in words  # for nobody: it would confirm a guessed record
        assert run.run.digests["weights"] not in public
        assert f"SHA-256 {run.run.digests['weights']}" in words
    assert "noise ≠" in words
    assert "images 28 × 28, grey" in words
    assert "seeds training 0, split 0, subset 0" in words
    assert "seeds" not in public


def test_the_first_page_is_the_decision(runs: list[ReportedModel]) -> None:
    from resperturb.report.policy import Limits, Policy

    page = render(runs, "A report")
    first = text(page[page.index('id="decision"') : page.index("</section>", page.index('id="decision"'))])
    assert "It was not audited" in first
    assert "Decision, name, date" in first
    assert "A stronger attack" in first
    assert "the default policy" in first
    assert "at most: AUC 0.6, TPR at 1% FPR 0.1" in first
    assert "audit it with at least 16 shadow models and 500 records first" in first
    lenient = text(render([runs[0]], "A report", policy=Policy(limits=Limits(epsilon_shown=1000.0))))
    assert "within the policy, by what was tried" in lenient
    strict = text(render([runs[0]], "A report", policy=Policy(limits=Limits(epsilon_proven=1.0))))
    assert "above the policy" in strict
    assert "Do not release the weights" in strict


def test_runs_are_ranked_only_where_they_were_attacked_alike_and_chance_did_not_make_the_order(
    runs: list[ReportedModel], attacked_run: Run
) -> None:
    from resperturb.report.wording import headline

    assert "found least" not in headline([runs[0], ReportedModel("other", attacked_run.path, attacked_run)])
    twice = [ReportedModel(name, attacked_run.path, attacked_run) for name in ("one", "two")]
    assert headline(twice).startswith("A leak was seen in both attacked models; ")
    assert "found least" not in headline(twice)


def test_the_headline_names_the_models_that_leak(attacked_run: Run, noisy_run: Run) -> None:
    from resperturb.report.wording import headline

    leaking = ReportedModel("mine", attacked_run.path, attacked_run)
    quiet = ReportedModel("quiet", noisy_run.path, noisy_run)
    assert (leaking.leaks, quiet.leaks) == (True, False)
    assert headline([quiet, leaking]).startswith("A leak was seen in 1 of 2 attacked models (“mine”); ")


def test_what_attacks_saw_of_a_model_that_was_not_audited_is_its_evidence(attacked_run: Run, bare_run: Run) -> None:
    from resperturb.report.decision import decision_of
    from resperturb.report.policy import default_policy

    def evidence(run: Run) -> str:
        return decision_of(ReportedModel("mine", run.path, run), default_policy()).evidence

    assert re.fullmatch(r"\d attacks? that saw a leak; not audited", evidence(attacked_run))
    assert evidence(bare_run) == "none: neither attacked nor audited"


def test_a_guarantee_that_is_none_is_told_once(noisy_run: Run, tmp_path: Path) -> None:
    run = copied(noisy_run, tmp_path)
    model = ReportedModel("noisy", run.path, run)
    assert model.audit is not None
    unproven = dataclasses.replace(model.audit, guarantee=run.guarantee(1e-300), delta=1e-300)
    save_audit(dataclasses.replace(unproven, tested_guarantee=unproven.guarantee), run.path)
    model = ReportedModel("noisy", run.path, run)
    assert model.guarantee.not_met
    assert text(render([model], "A report")).count("No guarantee: ") == 1


def test_a_new_audit_replaces_an_old_one_with_its_attacks(
    noisy_run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from resperturb.audits import audit_run
    from resperturb.bounds.audit_result import Shadows

    run = copied(noisy_run, tmp_path)
    old = read_audit(run.path)
    alone = dataclasses.replace(old.fixed[0], name="shadow")
    scores = kept_attacks(run.path)[0].scores
    keep_attack(run.path, alone, scores, run.digests)  # what `resperturb attack` made is no part of an audit
    save_audit(dataclasses.replace(old, shadows=Shadows(16, 0.5, 0.5, 0.5)), run.path)
    found = audit_run(open_run(run.path), shadows=0, draws=(1, 2))
    kept = {attack.result.key for attack in kept_attacks(run.path)}
    assert kept == {attack.key for attack in found.fixed} | {alone.key}
    assert "replaces one with 16 shadow models" in caplog.text
    caplog.clear()
    audit_run(open_run(run.path), shadows=0, draws=(1, 2))
    assert "replaces" not in caplog.text


def test_private_records_are_shown_only_when_asked_for(runs: list[ReportedModel]) -> None:
    picture = '<li><img src="data:image/png;base64,'
    assert picture not in render(runs, "A report")
    page = render(runs, "A report", show_records=True)
    assert page.count(picture) == 24  # twelve of each attacked run
    assert "Treat it as you treat the records themselves" in page
    members = {f"Training image {index}," for index in member_indices(runs[0].run)}
    shown = re.findall(r'alt="(Training image \d+,) class', page)[:12]
    assert len(set(shown)) == 12
    assert set(shown) <= members


def test_a_damaged_audit_is_named(audited_run: Run, tmp_path: Path) -> None:
    run = copied(audited_run, tmp_path)
    for content in ("{", "{}", "[]", '{"schema": 99}'):
        (run.path / "audit.json").write_text(content)
        with pytest.raises(ResperturbError, match=r"audit\.json"):
            render([ReportedModel("mine", run.path, run)], "A report")


def test_a_report_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least one"):
        write_report(tmp_path / "report.html", [], "empty")


def test_report_and_compare_from_the_command_line(attacked_run: Run, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    written = CliRunner().invoke(app, ["report", str(attacked_run.path), "-o", str(page), "--json"])
    assert written.exit_code == 0, written.output
    [line] = json.loads(written.stdout)["runs"]
    assert line["guarantee"]["epsilon"] == "inf"
    assert line["attack"]["leaks"] is True
    assert page.exists()
    compared = CliRunner().invoke(app, ["compare", str(attacked_run.path), str(tmp_path)])
    assert compared.exit_code == 0, compared.output
    assert f"{attacked_run.result.test_accuracy:.3f}" in compared.output
    nothing = CliRunner().invoke(app, ["compare", str(tmp_path)])
    assert isinstance(nothing.exception, UsageError)


def test_runs_of_one_name_are_numbered_and_no_path_is_told(private_run: Run, tmp_path: Path) -> None:
    other = copied(private_run, tmp_path)
    shutil.copytree(other.path, tmp_path / "beside" / "copy")
    models = open_models([other.path, tmp_path / "beside" / "copy"])
    assert [model.name for model in models] == ["copy (1)", "copy (2)"]
    assert str(tmp_path) not in render(models, "A report")


def test_no_digit_of_the_hash_and_no_folder_of_a_network_is_told(attacked_run: Run, tmp_path: Path) -> None:
    assert attacked_run.path.name == attacked_run.config.digest
    assert [model.name for model in open_models([attacked_run.path])] == ["not private, resnet8"]
    there = {"model": "transformers:/home/me/net", "model_args": {"vocabulary": "/home/me/words.txt"}}
    run = passed_off_as(attacked_run, attacked_run.config.model_copy(update=there), tmp_path / "mine")
    page = render([ReportedModel("mine", run.path, run)], "A report")
    assert "transformers:net" in page
    assert "words.txt" in page
    assert "/home/me" not in page


def copied(run: Run, folder: Path) -> Run:
    shutil.copytree(run.path, folder / "copy")
    return dataclasses.replace(run, path=folder / "copy")


def member_indices(run: Run) -> list[int]:
    from resperturb.training.inputs import load_inputs

    return [int(index) for index in load_inputs(run.config.data).member_indices(run.config.data.part)]


def test_bounds_that_were_not_measured_alike_do_not_stand_in_one_column(
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


def test_a_converted_epsilon_stands_beside_the_one_that_was_trained_for_and_says_swap(
    audited_run: Run, private_run: Run, tmp_path: Path
) -> None:
    run = copied(private_run, tmp_path)
    proven = run.guarantee()
    shown = dataclasses.replace(read_audit(audited_run.path).epsilon_lower, neighbours="swap")
    save_audit(
        dataclasses.replace(
            read_audit(audited_run.path),
            guarantee=proven,
            tested_guarantee=proven.as_swap(),
            epsilon_lower=shown,
            digests=run.digests,
        ),
        run.path,
    )
    for one in kept_attacks(audited_run.path):
        keep_attack(run.path, one.result, one.scores, run.digests)
    trained_for, converted = worded(proven.epsilon), worded(proven.as_swap().epsilon)
    done = CliRunner().invoke(app, ["compare", str(run.path)], env={"COLUMNS": "80"})
    assert f"<= {trained_for}" in done.stdout
    assert f"<= {converted} swap" in done.stdout
    page = render([ReportedModel("mine", run.path, run)], "A report")
    assert f"proven {trained_for} ({converted} for swaps, drawn)" in page
    words = text(page)
    assert f"psilon at most {trained_for} at delta {proven.delta:g}." in words
    assert f"psilon at most {converted} at delta {proven.delta:g}, counted for the swap of a record" in words
