"""The paper's attack finds what is there, finds nothing where nothing is, and refuses to flatter."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from resperturb.audits import shadow
from resperturb.audits.ask import query_seed
from resperturb.audits.result import KeptAttack, keep_attack, kept_attacks
from resperturb.bounds.attack_metrics import attack_metrics
from resperturb.bounds.audit_result import AttackResult, AttackScores
from resperturb.bounds.metrics import auc, roc_points
from resperturb.errors import ResperturbError, UsageError
from resperturb.training.loop import train
from resperturb.training.run import Run, open_run
from tests.conftest import tiny_config


def kept(run: Run) -> KeptAttack:
    [found] = kept_attacks(run.path)
    return found


def test_it_sees_a_model_that_memorised_its_images(attacked_run: Run) -> None:
    found = kept(attacked_run).result
    metrics = found.metrics["record"]
    assert attacked_run.result.train_accuracy > 0.95
    assert found.auc > 0.6
    assert metrics.auc_interval.low < metrics.auc < metrics.auc_interval.high
    assert metrics.members == metrics.nonmembers == 100
    assert [row["threshold"] for row in found.details["thresholds"]] == [0.5, 0.6, 0.7, 0.8]
    scores = kept(attacked_run).scores
    assert auc(scores.members, scores.nonmembers) == found.auc


def test_an_attack_that_was_made_is_not_made_again(attacked_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    before = kept(attacked_run).result
    monkeypatch.setattr(shadow, "fit_attack", lambda *given, **more: pytest.fail("it was fitted before"))
    assert shadow.run_shadow_attack(attacked_run) == before


def test_an_attack_that_failed_is_not_fitted_again(attacked_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = []

    def fails(*given: object, seed: int) -> None:
        fitted.append(seed)
        raise shadow.AttackFailedError("every neuron is dead.")

    monkeypatch.setattr(shadow, "fit_attack", fails)
    for seed in (7, 7, 8):
        with pytest.raises(shadow.AttackFailedError, match="every neuron is dead"):
            shadow.run_shadow_attack(attacked_run, seed=seed)
    assert fitted == [7, 8]


def test_the_same_attack_gives_the_same_scores(attacked_run: Run, tmp_path: Path) -> None:
    before = kept(attacked_run).scores
    [shadow_run] = (open_run(path) for path in shadow.shadow_folder(attacked_run).iterdir())
    again = shadow.shadow_attack(attacked_run, shadow_run)
    np.testing.assert_array_equal(before.members, again.scores.members)


def test_the_shadow_shares_nothing_with_the_target_but_its_recipe() -> None:
    target = tiny_config(model="en2-resnet8", perturbation={"name": "additive", "gamma": 1.0})
    plain = shadow.shadow_config(target, adaptive=False)
    assert (plain.data.part, plain.perturbation, plain.model) == ("shadow_train", None, "resnet8")
    assert plain.epochs == target.epochs
    assert plain.seed != target.seed
    adaptive = shadow.shadow_config(target, adaptive=True)
    assert (adaptive.perturbation, adaptive.model) == (target.perturbation, target.model)


def test_a_shadow_never_draws_the_noise_of_the_target(tmp_path: Path) -> None:
    target = tiny_config(perturbation={"name": "additive", "gamma": 1.0})
    runs = [Run(tmp_path, config) for config in (target, shadow.shadow_config(target, adaptive=True))]
    seeds = [query_seed(run, *half) for run in runs for half in ((), (0,), (1,))]
    assert len(set(seeds)) == 6


def test_one_standard_shadow_serves_targets_of_every_noise() -> None:
    shadows = {
        shadow.shadow_config(tiny_config(perturbation=noise), adaptive=False).digest
        for noise in ({"name": "none"}, {"name": "additive", "gamma": 1.0}, {"name": "multiplicative", "gamma": 2.0})
    }
    assert len(shadows) == 1


def test_the_papers_attacker_does_not_know_of_dp_sgd_and_the_adaptive_one_does() -> None:
    target = tiny_config(
        method={"name": "dpsgd", "noise_multiplier": 2.0}, perturbation={"name": "additive", "gamma": 1}
    )
    standard = shadow.shadow_config(target, adaptive=False)
    assert standard.digest == shadow.shadow_config(tiny_config(), adaptive=False).digest
    assert (standard.method.private, standard.norm, standard.schedule) == (False, "batch", "he")
    assert shadow.shadow_config(target, adaptive=True).method == target.method
    # What was asked for by name stays.
    chosen = tiny_config(method={"name": "dpsgd"}, schedule="constant")
    assert shadow.shadow_config(chosen, adaptive=False).schedule == "constant"


def test_a_shadow_that_did_not_train_is_refused_with_the_numbers(attacked_run: Run, tmp_path: Path) -> None:
    untrained = train(tiny_config(lr=1e-9, epochs=1, data={"limit": 400, "part": "shadow_train"}), runs=tmp_path)
    with pytest.raises(ResperturbError, match=r"did not train: its test accuracy is 0\.\d+, the target's 0\.\d+"):
        shadow.shadow_attack(attacked_run, untrained)
    shadow.check_shadow(untrained, untrained)  # a target that has learned nothing needs no better


def test_a_target_of_which_nobody_was_left_out_cannot_be_attacked(attacked_run: Run) -> None:
    everyone = dataclasses.replace(
        attacked_run,
        config=attacked_run.config.model_copy(
            update={"data": attacked_run.config.data.model_copy(update={"part": "all"})}
        ),
    )
    with pytest.raises(UsageError, match="--part target_train"):
        shadow.run_shadow_attack(everyone)


def result(scores: AttackScores) -> AttackResult:
    metrics = attack_metrics(scores.members, scores.nonmembers)
    return AttackResult("x", "nobody", "weights", 1, None, True, {"record": metrics})


def test_scores_survive_the_disk_and_damage_is_named(tmp_path: Path) -> None:
    scores = AttackScores(np.array([0.9, 0.5]), np.array([0.1, 0.5]))
    keep_attack(tmp_path, result(scores), scores, {"weights": "1"})
    [back] = kept_attacks(tmp_path)
    np.testing.assert_array_equal(back.scores.members, scores.members)
    assert back.result == result(scores)
    path = tmp_path / "attacks" / "x-weights.npz"
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(ResperturbError, match="x-weights.npz is damaged"):
        kept_attacks(tmp_path)


def test_a_long_roc_curve_is_thinned_but_keeps_its_ends() -> None:
    rng = np.random.default_rng(0)
    fpr, tpr = roc_points(rng.normal(1, 1, 20_000), rng.normal(0, 1, 20_000))
    assert len(fpr) <= 401
    assert (fpr[0], tpr[0], fpr[-1], tpr[-1]) == (0, 0, 1, 1)
    assert fpr == sorted(fpr)
    assert np.trapezoid(tpr, fpr) == pytest.approx(0.76, abs=0.01)  # Phi(1 / sqrt(2))
