"""The paper's attackers find what is there, and refuse to flatter; their attack joins the audit by an entry point."""

from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest
from resperturb_reproduction import attack_network, attackers
from resperturb_reproduction.salem import salem

from resperturb.attacks.registry import ATTACKS
from resperturb.bounds import auc
from resperturb.errors import ResperturbError
from resperturb.training import audit_run, open_run, train
from resperturb.training.run import Run
from tests.conftest import tiny_config


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that has memorised its images."""
    return train(tiny_config(epochs=40, data={"limit": 400}), out=tmp_path_factory.mktemp("attacked") / "target")


@pytest.fixture(scope="module")
def shadow(target: Run) -> Run:
    return train(attackers.shadow_config(target.config), out=target.path.parent / "shadow")


def test_it_sees_a_model_that_memorised_its_images(target: Run, shadow: Run) -> None:
    found = attackers.shadow_attack(target, shadow)
    assert target.result.train_accuracy > 0.95
    assert found.metrics.auc > 0.6
    assert found.metrics.members == found.metrics.nonmembers == 100
    assert auc(found.scores.members, found.scores.nonmembers) == found.metrics.auc
    again = attackers.shadow_attack(target, shadow)
    np.testing.assert_array_equal(found.scores.members, again.scores.members)


def test_the_shadow_shares_nothing_with_the_target_but_its_recipe() -> None:
    target = tiny_config(model="en2-resnet8", perturbation={"name": "additive", "gamma": 1.0})
    shadow = attackers.shadow_config(target)
    assert (shadow.perturbation, shadow.model, shadow.epochs) == (target.perturbation, target.model, target.epochs)
    assert shadow.data.part == "shadow_train"
    assert shadow.seed != target.seed


def test_a_shadow_that_did_not_train_is_refused_with_the_numbers(target: Run, tmp_path: Path) -> None:
    untrained = train(tiny_config(lr=1e-9, epochs=1, data={"limit": 400, "part": "shadow_train"}), runs=tmp_path)
    with pytest.raises(ResperturbError, match=r"did not train: its test accuracy is 0\.\d+, the target's 0\.\d+"):
        attackers.shadow_attack(target, untrained)
    attackers.check_shadow(untrained, untrained)  # a target that has learned nothing needs no better


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
