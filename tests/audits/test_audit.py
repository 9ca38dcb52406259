"""A whole audit of a small run: what it keeps, what it reuses, what it refuses, and that it finds the leak."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from resperturb.attacks.registry import ATTACKS
from resperturb.auditing.metrics import auc
from resperturb.audits.audit import GROUPED, Settings, audit, caveats_on, plain, queries_of
from resperturb.audits.candidates import candidates
from resperturb.audits.outcome import load_scores
from resperturb.audits.shadow import shadow_folder
from resperturb.audits.shadows import shadow_configs
from resperturb.audits.verdict import Bounds
from resperturb.data.images import ImageSet
from resperturb.errors import ResperturbError, UsageError
from resperturb.report.collect import ReportedRun
from resperturb.training.loop import train
from resperturb.training.run import Run, open_run
from tests.conftest import passed_off_as, tiny_config

SETTINGS = Settings(shadows=4, jobs=1, draws=(1, 3), resamples=50)
CANARIES = {"mislabelled": 12, "blank": 6, "near_duplicate": 6}
NOISE = {"name": "additive", "gamma": 0.1}


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("audited")
    data = {"limit": 120, "canaries": CANARIES}
    config = tiny_config(data=data, epochs=15, batch_size=10, lr=0.05, perturbation=NOISE)
    run = train(config, runs=folder)
    return run, audit(run, SETTINGS)


def entry(found: dict[str, Any], name: str, view: str) -> dict[str, Any]:
    [one] = [entry for entry in found["attacks"] if (entry["attack"], entry["view"]) == (name, view)]
    return one


def test_it_finds_what_a_network_learned_by_heart(audited: tuple[Run, dict[str, Any]]) -> None:
    _, found = audited
    measured = entry(found, "rmia-online", "noise off")["by_kind"]
    assert measured["record"]["auc"] > 0.65
    assert measured["canaries"]["auc"] > 0.75
    assert measured["record"]["members"] == measured["record"]["nonmembers"] == 30


def test_it_attacks_in_every_way_and_measures_every_kind(audited: tuple[Run, dict[str, Any]]) -> None:
    _, found = audited
    assert {entry["attack"] for entry in found["attacks"]} == {*ATTACKS, "shadow", "shadow-adaptive"}
    assert {entry["access"] for entry in found["attacks"]} == {"noise on", "noise off"}
    assert found["candidates"] == {"record": 60, **CANARIES}
    for one in found["attacks"]:
        learned = one["attack"].startswith("shadow")
        assert set(one["by_kind"]) == {"record"} if learned else {"record", *CANARIES, "canaries"}
        for measured in one["by_kind"].values():
            low, high = measured["auc_interval"]
            assert low <= measured["auc"] <= high
            assert set(measured["tpr_at_fpr"]) == {"0", "0.001", "0.01", "0.1"}


def test_it_is_kept_in_the_run_and_headlines_are_in_its_report(audited: tuple[Run, dict[str, Any]]) -> None:
    run, found = audited
    assert json.loads((run.path / "audit.json").read_text()) == json.loads(json.dumps(plain(found)))
    scores = load_scores(run.path, "rmia-online-noise-off")
    kept = entry(found, "rmia-online", "noise off")["by_kind"]["record"]
    assert auc(scores.members, scores.nonmembers) == kept["auc"]
    names = {attack.name for attack in ReportedRun("run", run).attacks}
    assert "bavaria, noise on, 3 draws, mean logit" in names
    assert {"shadow", "shadow-adaptive", "shadow-3-draws"} <= names
    line = ReportedRun("run", run).to_dict()
    assert line["attack"]["auc"] == max(
        entry["by_kind"]["record"]["auc"] for entry in found["attacks"] if entry["headline"]
    )


def test_bounds_are_corrected_and_stand_beside_the_proof(audited: tuple[Run, dict[str, Any]]) -> None:
    _, found = audited
    bounded = [one["epsilon_lower"] for one in found["attacks"] if one["epsilon_lower"]]
    assert len(bounded) == 4
    assert [bound["confidence"] for bound in bounded] == pytest.approx([1 - 0.05 / 4] * 4)
    assert found["epsilon_lower"]["epsilon"] == max(bound["epsilon"] for bound in bounded)
    assert "best of 4 attacks" in found["epsilon_lower"]["correction"]
    # The additive proof is about replacing an image, so the canaries are compared in pairs.
    assert found["epsilon_lower"]["design"] == "pairs"
    assert found["epsilon_lower"]["candidates"] == 24
    assert found["epsilon_upper"]["epsilon"] > 1000
    assert found["verdict"].startswith("gap of ")


def test_the_most_exposed_are_named(audited: tuple[Run, dict[str, Any]]) -> None:
    _, found = audited
    exposed = found["exposed"]
    assert exposed["metrics"]["members"] + exposed["metrics"]["nonmembers"] == 20
    assert exposed["metrics"]["auc"] > 0.7
    assert exposed["worst"]["kind"] in {"record", *CANARIES}
    assert exposed["worst"]["separation"] > 2


def test_a_second_audit_trains_nothing_and_finds_the_same(
    audited: tuple[Run, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, found = audited
    stages: list[tuple[str, int, int]] = []
    monkeypatch.setattr("resperturb.training.loop._train", lambda *_: pytest.fail("it was trained before"))
    monkeypatch.setattr("resperturb.attacks.signals._draws", lambda *_: pytest.fail("it was asked before"))
    again = audit(run, SETTINGS, lambda *stage: stages.append(stage))
    assert again == found
    assert ("training shadows", 6, 6) in stages


def test_an_attack_network_that_does_not_learn_is_told_of_and_the_rest_stands(
    audited: tuple[Run, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, whole = audited
    monkeypatch.setattr("resperturb.audits.shadow.LEARNING_MARGIN", -1.0)  # no network learns as much as this asks
    found = audit(run, SETTINGS)
    assert [entry["attack"] for entry in found["attacks"]] == [
        entry["attack"] for entry in whole["attacks"] if not entry["attack"].startswith("shadow")
    ]
    assert sum("did not learn" in caveat for caveat in found["caveats"]) == 4
    assert not any("did not learn" in caveat for caveat in whole["caveats"])


def test_every_candidate_is_in_half_of_the_shadows(audited: tuple[Run, dict[str, Any]]) -> None:
    run, _ = audited
    asked = candidates(run.config.data)
    shadows = shadow_configs(run.config, 4)
    times = np.sum([asked.members(config.data) for config in shadows], axis=0)
    assert set(times[: len(asked)].tolist()) == {2}
    assert set(times[len(asked) :].tolist()) == {0}
    assert {config.perturbation["gamma"] for config in shadows} == {NOISE["gamma"]}
    assert len({config.seed for config in [*shadows, run.config]}) == 5


def test_the_coins_of_shadows_are_not_those_of_the_target(audited: tuple[Run, dict[str, Any]]) -> None:
    run, _ = audited
    data = run.config.data.model_copy(update={"part": "audit", "subset_seed": 2})
    target = run.config.model_copy(update={"data": data})
    assert {config.data.subset_seed // 2 for config in shadow_configs(target, 4)} & {1} == set()


def test_a_shadow_that_did_not_train_is_refused(audited: tuple[Run, dict[str, Any]], tmp_path: Path) -> None:
    run, found = audited
    shadow = open_run(shadow_folder(run) / found["shadows"]["hashes"][0])
    before = shadow.result
    shadow.finish(dataclasses.replace(before, test_accuracy=0.1))
    try:
        with pytest.raises(ResperturbError, match="did not train"):
            audit(run, SETTINGS)
    finally:
        shadow.finish(before)


def test_one_run_needs_no_shadow(tmp_path: Path) -> None:
    run = train(tiny_config(data={"limit": 160, "part": "audit", "subset_seed": 5}), runs=tmp_path / "runs")
    found = audit(run, Settings(shadows=0, resamples=50))
    assert not shadow_folder(run).exists()
    assert {entry["attack"] for entry in found["attacks"]} == {name for name in ATTACKS if not ATTACKS[name].shadows}
    assert found["epsilon_lower"]["design"] == "coins"
    assert found["verdict"] == "nothing is proven"
    assert found["exposed"] is None


def test_a_model_of_all_images_is_audited_by_its_canaries(tmp_path: Path) -> None:
    data = {"limit": 40, "part": "all", "canaries": {"out_of_distribution": 30}}
    run = train(tiny_config(data=data, epochs=1), runs=tmp_path)
    found = audit(run, Settings(shadows=0, resamples=50))
    assert found["candidates"] == {"out_of_distribution": 30}
    assert (run.path / "attacks" / "loss-noise-off.json").exists()


def changed(run: Run, folder: Path, **data: object) -> Run:
    config = run.config.model_copy(update={"data": run.config.data.model_copy(update=data)})
    return passed_off_as(run, config, folder)


def test_a_target_whose_split_is_unknown_is_refused(audited: tuple[Run, dict[str, Any]], tmp_path: Path) -> None:
    run, _ = audited
    with pytest.raises(UsageError, match="on all of its images and without canaries"):
        audit(changed(run, tmp_path / "all", part="all", canaries=None), SETTINGS)
    with pytest.raises(UsageError, match="a shadow of the paper's attack"):
        audit(changed(run, tmp_path / "shadow", part="shadow_train"), SETTINGS)
    with pytest.raises(UsageError, match="not finished"):
        audit(Run(tmp_path, run.config), SETTINGS)


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
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        Settings(**settings)


def test_noise_decides_how_a_model_is_asked(audited: tuple[Run, dict[str, Any]]) -> None:
    run, _ = audited

    def accesses(**changes: object) -> list[str]:
        other = dataclasses.replace(run, config=run.config.model_copy(update=changes))
        return [query.access for query in queries_of(other, (1, 4))]

    assert accesses() == ["noise on", "noise off"]
    assert accesses(perturbation={"name": "none"}) == ["noise off"]
    assert accesses(perturbation={"name": "additive", "gamma": 0.0}) == ["noise off"]
    assert accesses(perturbation={"name": "additive", "gamma": 0.0, "input_std": 1.0}) == ["noise on", "noise off"]
    assert accesses(model="en3-resnet8") == ["noise on", "noise off", "networks apart"]


def test_records_that_were_put_in_by_groups_bound_nothing(
    audited: tuple[Run, dict[str, Any]], tmp_path: Path
) -> None:
    run, _ = audited
    plain_run = changed(run, tmp_path, canaries=None)
    asked = candidates(plain_run.config.data)
    images = asked.images
    groups = np.array([str(i // 2) for i in range(len(images))])
    grouped = ImageSet(images.images, images.labels, images.classes, groups, images.name)
    members = asked.members(plain_run.config.data)[: len(asked)]
    asked_of_groups = dataclasses.replace(asked, images=grouped)
    assert set(caveats_on(asked_of_groups)) - set(caveats_on(asked)) == {GROUPED}
    bounds = Bounds.of(plain_run, asked_of_groups, members, 1e-5, 0.95, 1)
    assert bounds.at(members.astype(float)) is None
    verdict = bounds.verdict([])
    assert verdict["epsilon_lower"]["epsilon"] == 0
    assert "group" in verdict["epsilon_lower"]["refusal"]


def test_a_proof_that_an_attack_contradicts_is_refuted(audited: tuple[Run, dict[str, Any]], tmp_path: Path) -> None:
    run, _ = audited
    # Far more noise than the run was trained with: then so much could not have leaked.
    loud = run.config.model_copy(update={"perturbation": {"name": "additive", "gamma": 1e6}})
    liar = changed(passed_off_as(run, loud, tmp_path / "loud"), tmp_path / "plain", canaries=None)
    asked = candidates(liar.config.data)
    members = asked.members(liar.config.data)[: len(asked)]
    bounds = Bounds.of(liar, asked, members, 1e-5, 0.95, 1)
    bound = bounds.at(members.astype(float))
    assert bound is not None
    verdict = bounds.verdict([{"attack": "oracle", "view": "all", "epsilon_lower": bound.to_dict()}])
    assert verdict["epsilon_upper"]["epsilon"] < 0.1 < verdict["epsilon_lower"]["epsilon"]
    assert verdict["verdict"] == "refuted"
