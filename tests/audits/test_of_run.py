"""A whole audit of a small run: what it keeps, what it reuses, what it refuses, and that it finds the leak."""

import dataclasses
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from resperturb.attacks.registry import ATTACKS
from resperturb.audits import audit_run, kept_attacks, read_audit
from resperturb.audits.ask import queries_of
from resperturb.audits.candidates import candidate_images
from resperturb.audits.result import save_audit
from resperturb.audits.shadow import shadow_folder
from resperturb.audits.shadows import shadow_configs
from resperturb.bounds import AttackResult, AuditResult
from resperturb.bounds.metrics import auc
from resperturb.engine.task import Task, Tell, collected
from resperturb.errors import ResperturbError, UsageError
from resperturb.perturbation import Additive
from resperturb.training.loop import train
from resperturb.training.run import Run, open_run
from tests.conftest import passed_off_as, tiny_config

SETTINGS: dict[str, Any] = {"shadows": 4, "jobs": 1, "draws": (1, 3)}
CANARIES = {"mislabelled": 12, "blank": 6, "near_duplicate": 6}
NOISE = {"name": "additive", "gamma": 0.1}


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, AuditResult]:
    folder = tmp_path_factory.mktemp("audited")
    data = {"limit": 120, "part": "target_train", "canaries": CANARIES}
    config = tiny_config(data=data, epochs=15, batch_size=10, lr=0.05, perturbation=NOISE, seeded_noise=False)
    run = train(config, runs=folder)
    return run, audit_run(run, **SETTINGS)


def attack(found: AuditResult, name: str, view: str) -> AttackResult:
    [one] = [attack for attack in found.attacks if (attack.name, attack.view) == (name, view)]
    return one


def test_it_finds_what_a_network_memorised(audited: tuple[Run, AuditResult]) -> None:
    _, found = audited
    metrics = attack(found, "rmia-online", "weights").metrics
    assert metrics["record"].auc > 0.65
    assert metrics["canaries"].auc > 0.75
    assert metrics["record"].members == metrics["record"].nonmembers == 30
    assert found.leaks


def test_it_attacks_in_every_way_and_measures_every_kind(audited: tuple[Run, AuditResult]) -> None:
    _, found = audited
    assert {one.name for one in found.attacks} >= {*ATTACKS, "shadow", "shadow-adaptive"}
    assert {one.access for one in found.attacks} == {"served", "weights"}
    assert found.candidates == {"record": 60, **CANARIES}
    for one in found.attacks:
        learned = one.name.startswith("shadow")
        assert set(one.metrics) == ({"record"} if learned else {"record", *CANARIES, "canaries"})
        for metrics in one.metrics.values():
            assert metrics.auc_interval.low <= metrics.auc <= metrics.auc_interval.high
            assert [point.fpr for point in metrics.tpr_at_fpr] == [0.0, 0.001, 0.01, 0.1]
    assert [one.auc for one in found.attacks] == sorted((one.auc for one in found.attacks), reverse=True)


def test_it_is_kept_in_the_run_with_the_scores_of_fixed_attacks(audited: tuple[Run, AuditResult]) -> None:
    run, found = audited
    assert read_audit(run.path).to_dict() == found.to_dict()
    kept = {one.result.full_name: one for one in kept_attacks(run.path)}
    assert set(kept) == {one.full_name for one in found.fixed}
    one = kept["rmia-online, weights"]
    assert auc(one.scores.members, one.scores.nonmembers) == one.result.auc


def test_bounds_are_corrected_and_stand_beside_the_proof(audited: tuple[Run, AuditResult]) -> None:
    _, found = audited
    bounds = [one.lower_bound for one in found.attacks if one.lower_bound is not None]
    assert len(bounds) >= 4
    assert {round(bound.confidence, 9) for bound in bounds} == {round(1 - 0.05 / len(bounds), 9)}
    assert found.epsilon_lower.epsilon == max(bound.epsilon for bound in bounds)
    assert found.epsilon_lower.confidence == 0.95
    assert f"best of {len(bounds)} fixed attacks" in found.epsilon_lower.correction
    # So large an epsilon rests on tails that no generator has, so it is not claimed, and the canaries' coins serve.
    assert found.tested_guarantee.epsilon > 1000
    assert (found.epsilon_lower.neighbours, found.epsilon_lower.candidates) == ("add_remove", 24)
    assert found.verdict == "nothing proven"


def test_the_most_exposed_are_named(audited: tuple[Run, AuditResult]) -> None:
    exposed = audited[1].exposed
    assert exposed is not None
    assert exposed.metrics is not None
    assert exposed.metrics.members + exposed.metrics.nonmembers == exposed.count == 20
    assert exposed.metrics.auc > 0.7
    assert exposed.worst_kind in {"record", *CANARIES}
    assert exposed.separation > 2


def test_a_second_audit_trains_nothing_asks_nothing_and_finds_the_same(
    audited: tuple[Run, AuditResult], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run, found = audited
    caplog.set_level(logging.INFO, "resperturb")
    stages: list[tuple[str, int, int]] = []
    monkeypatch.setattr("resperturb.training.loop._train", lambda *_: pytest.fail("it was trained before"))
    monkeypatch.setattr("resperturb.audits.ask._draws", lambda *_: pytest.fail("it was asked before"))
    monkeypatch.setattr("resperturb.audits.shadow.fit_attack", lambda *_, **__: pytest.fail("it was fitted before"))
    again = audit_run(run, **SETTINGS, on_stage=lambda *stage: stages.append(stage))
    assert again == found
    assert ("training shadow models", 6, 6) in stages
    assert "models to train" not in caplog.text


def test_an_attack_network_that_does_not_learn_is_told_of_and_the_rest_stands(
    audited: tuple[Run, AuditResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, whole = audited
    monkeypatch.setattr("resperturb.audits.shadow_network.LEARNING_MARGIN", -1.0)  # none learns as much as that
    monkeypatch.setattr("resperturb.audits.shadow._kept", lambda target, asked: None)
    found = audit_run(run, **SETTINGS)
    assert {one.full_name for one in found.attacks} == {
        one.full_name for one in whole.attacks if not one.name.startswith("shadow")
    }
    assert sum("did not learn" in caveat for caveat in found.caveats) == 4
    assert not any("did not learn" in caveat for caveat in whole.caveats)
    save_audit(whole, run.path)


def test_every_candidate_is_in_half_of_the_shadows(audited: tuple[Run, AuditResult]) -> None:
    run, _ = audited
    queried = candidate_images(run.config.data)
    shadows = shadow_configs(run.config, 4)
    times = np.sum([queried.members(config.data) for config in shadows], axis=0)
    assert set(times[: len(queried)].tolist()) == {2}
    assert set(times[len(queried) :].tolist()) == {0}
    assert {config.perturbation.gamma for config in shadows} == {NOISE["gamma"]}
    assert len({config.seed for config in [*shadows, run.config]}) == 5


def test_the_coins_of_shadows_are_not_those_of_the_target(audited: tuple[Run, AuditResult]) -> None:
    run, _ = audited
    data = run.config.data.model_copy(update={"part": "audit", "subset_seed": 2})
    target = run.config.model_copy(update={"data": data})
    assert {config.data.subset_seed // 2 for config in shadow_configs(target, 4)} & {1} == set()


def test_a_shadow_that_did_not_learn_is_refused_with_the_numbers(
    audited: tuple[Run, AuditResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = audited
    monkeypatch.setattr("resperturb.audits.assess.share_correct", lambda answers, who: 0.1)
    with pytest.raises(ResperturbError, match=r"did not learn: its accuracy .* is 0\.100, the target's is 0\.\d+"):
        audit_run(run, **SETTINGS)


def test_one_run_needs_no_shadow(tmp_path: Path) -> None:
    run = train(tiny_config(data={"limit": 160, "part": "audit", "subset_seed": 5}), runs=tmp_path / "runs")
    found = audit_run(run, shadows=0)
    assert not shadow_folder(run).exists()
    assert {one.name for one in found.attacks} == {name for name in ATTACKS if not ATTACKS[name].shadows}
    assert found.epsilon_lower.neighbours == "add_remove"
    assert found.verdict == "nothing proven"
    assert found.exposed is None


def test_a_model_of_all_images_is_audited_by_its_canaries(tmp_path: Path) -> None:
    data = {"limit": 40, "part": "all", "canaries": {"out_of_distribution": 30}}
    run = train(tiny_config(data=data, epochs=1), runs=tmp_path)
    found = audit_run(run, shadows=0)
    assert found.candidates == {"out_of_distribution": 30}
    assert (run.path / "attacks" / "loss-served.json").exists()


def test_without_canaries_its_recipe_is_audited_on_halves_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "resperturb")
    run = train(tiny_config(data={"limit": 120, "part": "all"}, epochs=15, batch_size=10), runs=tmp_path)
    found = audit_run(run, shadows=0)
    assert "1 models to train (0 there already), each on half of the images: about" in caplog.text
    assert any("audited is its recipe" in caveat for caveat in found.caveats)
    assert found.candidates == {"record": 108}
    assert found.population == 12
    assert 30 < found.model.records < 80 < run.result.records
    assert read_audit(run.path).to_dict() == found.to_dict()


def test_the_model_of_its_recipe_is_trained_beside_the_shadow_models(tmp_path: Path) -> None:
    run = train(tiny_config(data={"limit": 120, "part": "all"}, epochs=15, batch_size=10), runs=tmp_path)
    stages: list[tuple[str, int, int]] = []
    found = audit_run(run, shadows=4, draws=(1,), jobs=1, on_stage=lambda *stage: stages.append(stage))
    assert [stage for stage in stages if stage[0].startswith("training")] == [
        ("training shadow models", done, 5) for done in range(6)
    ]
    assert found.shadows.count == 4
    half = run.config.data.model_copy(update={"part": "half", "subset_seed": 0})
    models = [open_run(path.parent) for path in shadow_folder(run).glob("*/config.json")]
    [attacked] = [one for one in models if one.config.data == half]
    assert found.model.records == attacked.result.records
    assert found.model.test_accuracy == attacked.result.test_accuracy


def test_what_cannot_be_audited_is_refused(audited: tuple[Run, AuditResult], tmp_path: Path) -> None:
    run, _ = audited
    shadow = run.config.model_copy(update={"data": run.config.data.model_copy(update={"part": "shadow_train"})})
    with pytest.raises(UsageError, match="a shadow of the paper's attack"):
        audit_run(passed_off_as(run, shadow, tmp_path / "shadow"), **SETTINGS)
    with pytest.raises(UsageError, match="not finished"):
        audit_run(Run(tmp_path, run.config), **SETTINGS)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"shadows": 5}, "even number"),
        ({"shadows": 2}, "at least 4"),
        ({"draws": ()}, "draws"),
        ({"draws": (0, 4)}, "draws"),
        ({"delta": 0.0}, "delta"),
        ({"confidence": 1.0}, "confidence"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    audited: tuple[Run, AuditResult], settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        audit_run(audited[0], **{**SETTINGS, **settings})


def test_noise_decides_how_a_model_is_asked(audited: tuple[Run, AuditResult]) -> None:
    run, _ = audited

    def accesses(**changes: object) -> list[str]:
        return [query.access for query in queries_of(run.config.model_copy(update=changes), (1, 4))]

    assert accesses() == ["served", "weights"]
    assert accesses(perturbation=None) == ["served"]
    assert accesses(perturbation=Additive(0.0)) == ["served"]
    assert accesses(perturbation=Additive(0.0, input_std=1.0)) == ["served", "weights"]
    assert accesses(model="en3-resnet8") == ["served", "weights", "networks"]
    assert accesses(augment="crop") == ["served", "weights", "augmented"]


def test_a_guarantee_that_an_attack_contradicts_is_refuted(
    audited: tuple[Run, AuditResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, whole = audited
    # Far more noise than the run was trained with: then so much could not have leaked.
    small = dataclasses.replace(whole.guarantee, epsilon=1e-3, assumptions=())
    monkeypatch.setattr("resperturb.training.run.Run.guarantee", lambda run, delta: small)
    monkeypatch.setattr(
        "resperturb.audits.assess.Comparison.bound",
        lambda design, scores, attack: dataclasses.replace(design.nothing(""), epsilon=1.0, unmet=()),
    )
    found = audit_run(run, **SETTINGS)
    assert found.verdict == "refuted"
    assert "in at most 5% of audits" in found.verdict_sentence
    save_audit(whole, run.path)


def test_the_models_are_asked_where_the_engine_works_and_only_the_answers_come_back(
    audited: tuple[Run, AuditResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target too, whose folder a node of a cluster does not have; and shadows that were trained and not asked."""
    run, expected = audited
    folder = tmp_path / "runs"
    shutil.copytree(run.path.parent, folder)
    for answers in folder.rglob("signals"):
        shutil.rmtree(answers)
    for attacks in folder.rglob("attacks"):
        shutil.rmtree(attacks)
    worked: list[str] = []

    def elsewhere(tasks: Sequence[Task], jobs: int | None, tell: Tell) -> None:
        for number, task in enumerate(tasks):
            node = tmp_path / f"node-{number}"
            node.mkdir()
            task.work(node)
            files = collected(task, node)
            assert all(name.startswith("signals/") for name in files)
            task.receive(files)
            worked.append(task.folder.name)
            tell(task, None)
        monkeypatch.setattr(Run, "load_model", lambda run: pytest.fail("asked by the command itself"))

    found = audit_run(open_run(folder / run.path.name), **SETTINGS, engine=elsewhere)
    assert len(worked) == 7  # with the two shadows of the paper's attack
    assert run.path.name in worked
    assert [one.metrics for one in found.attacks] == [one.metrics for one in expected.attacks]
