"""A whole audit of a small run: what it keeps, reuses and refuses, and that it finds the leak."""

import dataclasses
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from resperturb.attacks.registry import ATTACKS
from resperturb.attacks.signals import Query, Signals, signals_of
from resperturb.auditing import Job, audit_trainee, open_scores, read_audit
from resperturb.auditing.ask import ask
from resperturb.auditing.assess import Settings
from resperturb.auditing.design import one_target
from resperturb.auditing.fit import FitTask
from resperturb.auditing.store import save_audit
from resperturb.bounds import AttackResult, AuditResult
from resperturb.bounds.audit_result import RECORD
from resperturb.bounds.metrics import auc
from resperturb.engine.task import Task, Tell, collected
from resperturb.errors import UsageError
from resperturb.perturbation import Additive, noise_off
from resperturb.training.audited import (
    AskedRun,
    RunTrainee,
    audit_run,
    recipe_candidates,
    table_of,
    target_candidates,
)
from resperturb.training.config import CanaryConfig, DataConfig
from resperturb.training.inputs import load_inputs
from resperturb.training.loop import train
from resperturb.training.predict import predict
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


def test_it_finds_the_leak_of_a_network_that_memorised(audited: tuple[Run, AuditResult]) -> None:
    _, found = audited
    metrics = attack(found, "rmia-online", "weights").metrics
    assert metrics["record"].auc > 0.65
    assert metrics["canaries"].auc > 0.75
    assert metrics["record"].members == metrics["record"].nonmembers == 30
    assert found.leaks


def test_it_attacks_in_every_way_and_measures_every_kind(audited: tuple[Run, AuditResult]) -> None:
    _, found = audited
    assert {one.name for one in found.attacks} >= set(ATTACKS)
    assert {one.access for one in found.attacks} == {"served", "weights"}
    assert found.candidates == {"record": 60, **CANARIES}
    for one in found.attacks:
        assert set(one.metrics) == {"record", *CANARIES, "canaries"}
        for metrics in one.metrics.values():
            assert metrics.auc_interval.low <= metrics.auc <= metrics.auc_interval.high
            assert [point.fpr for point in metrics.tpr_at_fpr] == [0.0, 0.001, 0.01, 0.1]
    assert [one.auc for one in found.attacks] == sorted((one.auc for one in found.attacks), reverse=True)


def test_it_is_kept_in_the_run_with_the_scores_of_fixed_attacks(audited: tuple[Run, AuditResult]) -> None:
    run, found = audited
    assert read_audit(run.path / "audit", run.digests).to_dict() == found.to_dict()
    kept = open_scores(run.path / "audit", found.digests["scores"])
    assert set(kept.attacks) == {one.key for one in found.fixed}
    scores = kept.pooled("rmia-online-weights", "record")
    assert auc(scores.members, scores.nonmembers) == attack(found, "rmia-online", "weights").auc


def test_bounds_are_corrected_and_compared_with_the_proof(audited: tuple[Run, AuditResult]) -> None:
    _, found = audited
    bounds = [one.lower_bound for one in found.attacks if one.lower_bound is not None]
    assert len(bounds) >= 4
    assert {round(bound.confidence, 9) for bound in bounds} == {round(1 - 0.05 / 4, 9)}
    assert found.epsilon_lower.epsilon == max(bound.epsilon for bound in bounds)
    assert found.epsilon_lower.confidence == 0.95
    assert "best of 4 fixed attacks" in found.epsilon_lower.correction
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


def test_a_second_audit_neither_trains_nor_queries_and_has_the_same_result(
    audited: tuple[Run, AuditResult], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, found = audited
    monkeypatch.setattr("resperturb.training.loop._train", lambda *_: pytest.fail("it was trained before"))
    monkeypatch.setattr(Run, "load_model", lambda run: pytest.fail("it was asked before"))
    assert audit_run(run, **SETTINGS) == found
    assert "models to train" not in capsys.readouterr().err


def test_other_draws_query_again_without_training(
    audited: tuple[Run, AuditResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = copy_of(audited[0], tmp_path)
    monkeypatch.setattr("resperturb.training.loop._train", lambda *_: pytest.fail("it was trained before"))
    assert audit_run(run, **{**SETTINGS, "draws": (1, 2)}).draws == (1, 2)


def test_damaged_predictions_are_queried_again(
    audited: tuple[Run, AuditResult], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = copy_of(audited[0], tmp_path)
    models = run.path / "audit" / "models"
    (models / "000.npz").write_bytes((models / "000.npz").read_bytes()[:50])
    shutil.copy(models / "002.npz", models / "001.npz")
    assert audit_run(run, **SETTINGS).attacks == audited[1].attacks
    assert "000.npz is damaged" in caplog.text
    assert "001.npz belongs to another run (other model, rows" in caplog.text


def test_the_audit_of_another_design_is_refused(audited: tuple[Run, AuditResult]) -> None:
    with pytest.raises(UsageError, match="holds another audit"):
        audit_run(audited[0], models=6)


def test_shadow_models_share_the_recipe_and_no_seed(audited: tuple[Run, AuditResult]) -> None:
    run, _ = audited
    shadows = [open_run(path).config for path in sorted((run.path / "audit" / "models").glob("00?"))]
    assert len(shadows) == 4
    rows = [config.data.rows.numbers for config in shadows if config.data.rows is not None]
    assert set(np.bincount(np.concatenate(rows)).tolist()) <= {0, 2}
    assert [config.seed for config in shadows] == [1_000_004, 1_000_004, 1_000_005, 1_000_005]
    assert {config.perturbation.gamma for config in shadows if config.perturbation is not None} == {NOISE["gamma"]}
    assert len({config.digest for config in shadows}) == 4


def test_one_run_needs_no_shadow(tmp_path: Path) -> None:
    run = train(tiny_config(data={"limit": 160, "part": "audit", "subset_seed": 5}), runs=tmp_path / "runs")
    found = audit_run(run, shadows=0)
    assert [path.name for path in (run.path / "audit" / "models").iterdir()] == ["000.npz"]
    assert {one.name for one in found.attacks} == {name for name in ATTACKS if not ATTACKS[name].shadows}
    assert found.epsilon_lower.neighbours == "add_remove"
    assert found.verdict == "nothing proven"
    assert found.exposed is None


def test_a_model_of_all_images_is_audited_by_its_canaries(tmp_path: Path) -> None:
    data = {"limit": 40, "part": "all", "canaries": {"out_of_distribution": 30}}
    run = train(tiny_config(data=data, epochs=1), runs=tmp_path)
    found = audit_run(run, shadows=4, jobs=1)
    assert found.candidates == {"out_of_distribution": 30}
    assert found.subject == "this model"
    assert found.model.records == run.result.records
    shadows = [open_run(path).result.records for path in (run.path / "audit" / "models").glob("00?")]
    assert min(shadows) > 40  # the images are in every model


def test_without_canaries_its_recipe_is_audited_on_halves_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = train(tiny_config(data={"limit": 120, "part": "all"}, epochs=15, batch_size=10), runs=tmp_path)
    found = audit_run(run, shadows=4, draws=1, jobs=1)
    assert "5 models to train (0 there already): about" in capsys.readouterr().err
    assert any("audited is the recipe" in caveat for caveat in found.caveats)
    assert (found.subject, found.shadows.count) == ("models of this recipe", 4)
    assert (found.candidates, found.population) == ({"record": 108}, 12)
    assert 30 < found.model.records < 80 < run.result.records
    assert read_audit(run.path / "audit", run.digests).to_dict() == found.to_dict()


def test_every_model_of_a_recipe_is_a_target_once(tmp_path: Path) -> None:
    data = {"limit": 120, "part": "target_train", "canaries": {"blank": 8}}
    run = train(tiny_config(data=data, epochs=1, batch_size=10), runs=tmp_path)
    found = audit_run(run, models=6, draws=1, jobs=1)
    assert (found.targets, found.subject) == (6, "models of this recipe")
    assert found.candidates == {"record": 108, "blank": 8}
    assert open_scores(run.path / "audit").members.shape == (6, 116)
    with pytest.raises(UsageError, match="give one of them"):
        audit_run(run, models=6, shadows=4)


def test_a_guarantee_is_that_of_models_on_half_of_the_images(tmp_path: Path) -> None:
    """Fewer records are sampled at a larger rate, so each has a weaker guarantee."""
    method = {"name": "dpsgd", "noise_multiplier": 1.0}
    config = tiny_config(data={"limit": 120, "part": "all"}, epochs=2, method=method, seeded_noise=False)
    run = train(config, runs=tmp_path)
    found = audit_run(run, shadows=0)
    records = found.model.records
    assert records < 80 < run.result.records
    steps = run.config.epochs * math.ceil(records / run.config.batch_size)
    proven = run.config.method.guarantee(run.config, records, steps, found.delta)
    assert found.guarantee.epsilon == proven.epsilon > 1.2 * run.guarantee(found.delta).epsilon
    whole = RunTrainee(run.config).guarantee(found.delta, run.result.records)
    assert whole.epsilon == run.guarantee(found.delta).epsilon


def test_units_are_groups_and_every_canary_is_one(tmp_path: Path) -> None:
    groups = np.array([f"patient {i // 4}" for i in range(200)])
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "data.npz", images=rng.integers(0, 255, (200, 12, 12)), labels=rng.integers(0, 2, 200), who=groups
    )
    data = DataConfig(
        spec=str(tmp_path / "data.npz"), group_column="who", part="audit", canaries=CanaryConfig(clean=3, blank=2)
    )
    candidates, members, chance = target_candidates(data)
    trained, recipe = load_inputs(data).train.groups, recipe_candidates(data)
    assert (candidates.unit, chance) == ("who", "coins")
    for found in (candidates, recipe):
        records = found.kinds == RECORD
        assert len(np.unique(found.units[~records])) == 5
        assert not set(found.units[records].tolist()) & set(found.units[~records].tolist())
        own = trained[found.rows[: len(found)][records]]
        assert len(np.unique(own)) == len(np.unique(found.units[records])) < records.sum()
        # The population is whole units.
        assert not set(own) & set(trained[found.rows[len(found) :]])
    for unit in np.unique(candidates.units):
        assert len(set(members[candidates.units == unit].tolist())) == 1


@pytest.mark.parametrize("part", ["target_train", "audit", "half", "all"])
@pytest.mark.parametrize("canaries", [None, CanaryConfig(mislabelled=10, blank=6)])
def test_a_model_is_trained_on_exactly_its_members(part: Any, canaries: CanaryConfig | None) -> None:
    if part == "all" and canaries is None:
        return  # models of the recipe are
    data = DataConfig(spec="fashion-sample", limit=200, part=part, canaries=canaries, subset_seed=3)
    candidates, members, chance = target_candidates(data)
    inputs = load_inputs(data)
    rows = np.sort(np.concatenate([candidates.rows[: len(candidates)][members], candidates.always]))
    shown = table_of(data).select(rows).images[:]
    assert np.array_equal(shown.numpy(), inputs.members().images.numpy())
    again = load_inputs(tiny_config(data=dict(data)).on_rows(rows, seed=0).data).members()
    assert np.array_equal(shown.numpy(), again.images.numpy())
    assert np.array_equal(candidates.labels, table_of(data).labels.numpy()[candidates.rows])
    assert chance == ("cut" if part == "target_train" else "coins")
    held = candidates.rows[len(candidates) :]
    assert len(held) > 0
    assert not set(held.tolist()) & {*candidates.rows[: len(candidates)].tolist(), *candidates.always.tolist()}
    made = inputs.canaries
    assert made is None or not set(made.left_out.tolist()) & set(candidates.rows.tolist())


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Run:
    noise = {"name": "additive", "gamma": 0.5}
    config = tiny_config(model="en2-resnet8", epochs=1, perturbation=noise, data={"limit": 80})
    return train(config, runs=tmp_path_factory.mktemp("noisy"))


def test_a_run_is_queried_with_its_noise_without_it_and_network_by_network(noisy: Run) -> None:
    found, rows = AskedRun(noisy, noisy.config.data, 0), np.array([60, 3, 9, 85])
    table = table_of(noisy.config.data).select(rows)

    def one(query: Query) -> Signals:
        return signals_of(found.outputs(rows, query), table.labels.numpy(), query.averages)

    assert [query.access for query in found.queries(rows, (1, 3))] == ["served", "weights", "networks"]
    on = one(Query("served", (1, 3)))
    assert (on.confidence.std(axis=1) > 0).all()
    off = one(Query("weights"))
    model = noisy.load_model()
    with noise_off(model):
        logits = predict(model, table.images, mean=noisy.config.mean, std=noisy.config.std)
    assert np.allclose(off.confidence, signals_of([logits], table.labels.numpy()).confidence, atol=1e-4)
    apart = one(Query("networks", (2,)))
    assert np.allclose(apart.average("mean_confidence", 2), off.average("mean_confidence", 1), atol=1e-4)
    assert not np.allclose(apart.confidence[:, 0], apart.confidence[:, 1])


def test_two_models_do_not_share_their_noise(noisy: Run, tmp_path: Path) -> None:
    # The same weights under another name or number: equal predictions could only come from equal noise.
    other = passed_off_as(noisy, noisy.config.model_copy(update={"seed": 1}), tmp_path)
    rows, data = np.arange(60), noisy.config.data
    labels = table_of(data).labels.numpy()[rows]
    first, *others = (
        np.diff(signals_of(asked.outputs(rows, Query("served", (2,))), labels, (2,)).confidence)[:, 0]
        for asked in (AskedRun(noisy, data, 0), AskedRun(other, data, 0), AskedRun(noisy, data, 1))
    )
    for differences in others:  # sixty independent pairs: a correlation of 0.55 is four standard errors away
        assert abs(np.corrcoef(first, differences)[0, 1]) < 0.55


def test_a_very_noisy_model_with_one_draw_is_not_taken_for_a_shuffling_one(tmp_path: Path) -> None:
    noise = {"name": "additive", "gamma": 50.0}
    run = train(tiny_config(epochs=1, perturbation=noise, data={"limit": 80}), runs=tmp_path)
    rows = np.arange(80)
    labels = table_of(run.config.data).labels.numpy()[rows]
    assert set(ask(AskedRun(run, run.config.data, 0), rows, labels, (1,))) == {"served", "weights"}


def test_a_run_that_cannot_be_audited_is_refused(audited: tuple[Run, AuditResult], tmp_path: Path) -> None:
    run, _ = audited
    shadow = run.config.model_copy(update={"data": run.config.data.model_copy(update={"part": "shadow_train"})})
    with pytest.raises(UsageError, match="a model of another run's attack or audit"):
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


def test_noise_decides_how_a_model_is_queried(audited: tuple[Run, AuditResult]) -> None:
    run, _ = audited

    def accesses(**changes: object) -> list[str]:
        changed = Run(run.path, run.config.model_copy(update=changes))
        return [query.access for query in AskedRun(changed, run.config.data, 0).queries(np.arange(3), (1, 4))]

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
    monkeypatch.setattr(RunTrainee, "guarantee", lambda trainee, delta, records: small)
    monkeypatch.setattr(
        "resperturb.auditing.assess.Comparison.bound",
        lambda design, scores, attack: dataclasses.replace(design.nothing(""), epsilon=1.0, unmet=()),
    )
    found = audit_run(run, **SETTINGS)
    assert found.verdict == "refuted"
    assert "in at most 5% of audits" in found.verdict_sentence
    save_audit(whole, run.path / "audit")


def test_the_engine_trains_and_queries_models_and_returns_them(
    audited: tuple[Run, AuditResult], tmp_path: Path
) -> None:
    run, expected = audited
    folder = tmp_path / "run"
    shutil.copytree(run.path, folder, ignore=shutil.ignore_patterns("audit"))
    begun = folder / "audit" / "models" / "001" / "checkpoint.safetensors"
    worked: list[int] = []

    def elsewhere(tasks: Sequence[Task], jobs: int | None, tell: Tell) -> None:
        begun.parent.mkdir(parents=True)
        begun.write_bytes(b"a secret of a training that was begun here")
        for number, task in enumerate(tasks):
            assert isinstance(task, FitTask)
            node = tmp_path / f"node-{number}"
            task.work(node, "cpu")
            task.receive(collected(task, node))
            worked.append(task.job.number)
            tell(task, None)

    found = audit_run(open_run(folder), **SETTINGS, engine=elsewhere)
    assert worked == [1, 2, 3, 4]
    assert not begun.exists()
    for path in (folder / "audit" / "models").glob("00?"):
        assert open_run(path).result.records > 0
    # The noise of the trainings is secret, so their numbers differ.
    assert {one.full_name for one in found.attacks} == {one.full_name for one in expected.attacks}


def test_a_recipe_can_be_given_to_the_core(audited: tuple[Run, AuditResult], tmp_path: Path) -> None:
    """A run's folder opens as a trainee."""
    from resperturb.report.folders import open_folder

    trainee = open_folder(audited[0].path).trainee()
    [model] = trainee.fit(Job(3, np.arange(40), 7, tmp_path / "model"))
    assert next(iter(model.outputs(np.arange(5), Query("weights")))).shape == (5, 10)
    candidates = recipe_candidates(audited[0].config.data)
    found = audit_trainee(
        trainee, candidates, one_target(candidates.units, 0, 0), Settings((1,)), out=tmp_path / "audit"
    )
    assert found.model.description == trainee.description


def copy_of(run: Run, folder: Path) -> Run:
    shutil.copytree(run.path, folder / "copy")
    return open_run(folder / "copy")
