"""The paper's attackers find what is there, and refuse to flatter; their attack joins the audit by an entry point."""

import dataclasses
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest
from resperturb_reproduction import attack_network, attackers
from resperturb_reproduction.salem import salem

from resperturb.attacks.registry import ATTACKS
from resperturb.bounds import auc
from resperturb.errors import ResperturbError, UsageError
from resperturb.training import audit_run, open_run, train
from resperturb.training.run import Run
from tests.conftest import tiny_config


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that has memorised its images."""
    return train(tiny_config(epochs=40, data={"limit": 400}), out=tmp_path_factory.mktemp("attacked") / "target")


@pytest.fixture(scope="module")
def shadow(target: Run) -> Run:
    return train(attackers.shadow_config(target.config, adaptive=False), out=target.path.parent / "shadow")


def test_it_sees_a_model_that_memorised_its_images(target: Run, shadow: Run) -> None:
    found = attackers.shadow_attack(target, shadow)
    metrics = found.metrics()
    assert target.result.train_accuracy > 0.95
    assert metrics.auc > 0.6
    assert metrics.members == metrics.nonmembers == 100
    assert [row["threshold"] for row in found.thresholds()] == [0.5, 0.6, 0.7, 0.8]
    assert auc(found.scores.members, found.scores.nonmembers) == metrics.auc
    bound = found.lower_bound(1e-5)
    assert (bound.neighbours, bound.candidates) == ("swap", 200)
    again = attackers.shadow_attack(target, shadow)
    np.testing.assert_array_equal(found.scores.members, again.scores.members)


def test_the_shadow_shares_nothing_with_the_target_but_its_recipe() -> None:
    target = tiny_config(model="en2-resnet8", perturbation={"name": "additive", "gamma": 1.0})
    plain = attackers.shadow_config(target, adaptive=False)
    assert (plain.data.part, plain.perturbation, plain.model) == ("shadow_train", None, "resnet8")
    assert plain.epochs == target.epochs
    assert plain.seed != target.seed
    adaptive = attackers.shadow_config(target, adaptive=True)
    assert (adaptive.perturbation, adaptive.model) == (target.perturbation, target.model)


def test_one_standard_shadow_serves_targets_of_every_noise() -> None:
    shadows = {
        attackers.shadow_config(tiny_config(perturbation=noise), adaptive=False).digest
        for noise in ({"name": "none"}, {"name": "additive", "gamma": 1.0}, {"name": "multiplicative", "gamma": 2.0})
    }
    assert len(shadows) == 1


def test_the_papers_attacker_does_not_know_of_dp_sgd_and_the_adaptive_one_does() -> None:
    target = tiny_config(
        method={"name": "dpsgd", "noise_multiplier": 2.0}, perturbation={"name": "additive", "gamma": 1}
    )
    standard = attackers.shadow_config(target, adaptive=False)
    assert standard.digest == attackers.shadow_config(tiny_config(), adaptive=False).digest
    assert (standard.method.private, standard.norm, standard.schedule) == (False, "batch", "he")
    assert attackers.shadow_config(target, adaptive=True).method == target.method
    # What was asked for by name stays.
    chosen = tiny_config(method={"name": "dpsgd"}, schedule="constant")
    assert attackers.shadow_config(chosen, adaptive=False).schedule == "constant"


def test_a_shadow_that_did_not_train_is_refused_with_the_numbers(target: Run, tmp_path: Path) -> None:
    untrained = train(tiny_config(lr=1e-9, epochs=1, data={"limit": 400, "part": "shadow_train"}), runs=tmp_path)
    with pytest.raises(ResperturbError, match=r"did not train: its test accuracy is 0\.\d+, the target's 0\.\d+"):
        attackers.shadow_attack(target, untrained)
    attackers.check_shadow(untrained, untrained)  # a target that has learned nothing needs no better


def test_a_target_of_which_nobody_was_left_out_cannot_be_attacked(target: Run, shadow: Run) -> None:
    data = target.config.data.model_copy(update={"part": "all"})
    everyone = dataclasses.replace(target, config=target.config.model_copy(update={"data": data}))
    with pytest.raises(UsageError, match="--part target_train"):
        attackers.shadow_attack(everyone, shadow)


def test_audits_run_the_attack_like_any_other_and_say_where_it_failed(
    target: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text()
    assert 'salem = "resperturb_reproduction.salem"' in text
    assert EntryPoint("salem", "resperturb_reproduction.salem", "resperturb.attacks").load()
    assert ATTACKS["salem"].score is salem
    found = audit_run(open_run(target.path), shadows=4, jobs=1, quiet=True)
    [one] = [attack for attack in found.attacks if attack.name == "salem"]
    assert (one.view, one.fixed, one.lower_bound) == ("served", False, None)
    assert one.auc > 0.6
    monkeypatch.setattr(attack_network, "LEARNING_MARGIN", -1.0)  # none learns as much as that
    without = audit_run(open_run(target.path), shadows=4, jobs=1, quiet=True)
    assert {attack.name for attack in found.attacks} - {attack.name for attack in without.attacks} == {"salem"}
    assert [
        caveat for caveat in without.caveats if "salem, served, is left out: the attack network did not" in caveat
    ]
    assert "salem" not in {attack.name for attack in audit_run(open_run(target.path), shadows=0, quiet=True).attacks}
