"""The paper's attack finds what is there, finds nothing where nothing is, and refuses to flatter."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from resperturb.auditing.metrics import auc
from resperturb.audits import shadow
from resperturb.audits.ask import query_seed
from resperturb.audits.outcome import MembershipScores, load_scores, measures, roc_points, save_outcome
from resperturb.errors import ResperturbError, UsageError
from resperturb.training.loop import train
from resperturb.training.run import Run, open_run
from tests.conftest import tiny_config


def test_it_sees_a_model_that_learned_its_images_by_heart(attacked_run: Run) -> None:
    found = json.loads((attacked_run.path / "attacks" / "shadow.json").read_text())
    assert attacked_run.result.train_accuracy > 0.95
    assert found["auc"] > 0.6
    assert found["auc_interval"][0] < found["auc"] < found["auc_interval"][1]
    assert found["members"] == found["nonmembers"] == 100
    assert [row["threshold"] for row in found["thresholds"]] == [0.5, 0.6, 0.7, 0.8]
    assert found["target"]["gap"] == attacked_run.result.gap
    scores = load_scores(attacked_run.path, "shadow")
    assert auc(scores.members, scores.nonmembers) == found["auc"]


def test_the_same_attack_gives_the_same_scores(attacked_run: Run, tmp_path: Path) -> None:
    before = load_scores(attacked_run.path, "shadow")
    [shadow_run] = (open_run(path) for path in shadow.shadow_folder(attacked_run).iterdir())
    again = shadow.shadow_attack(attacked_run, shadow_run)
    np.testing.assert_array_equal(before.members, again.members)


def test_the_shadow_shares_nothing_with_the_target_but_its_recipe() -> None:
    target = tiny_config(model="en2-resnet8", perturbation={"name": "additive", "gamma": 1.0})
    plain = shadow.shadow_config(target, adaptive=False)
    assert (plain.data.part, plain.perturbation, plain.model) == ("shadow_train", {"name": "none"}, "resnet8")
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


def test_the_features_are_the_three_highest_probabilities_sorted() -> None:
    logits = torch.log(torch.tensor([[0.1, 0.6, 0.05, 0.25]]))
    assert shadow.top_probabilities(logits)[0].tolist() == pytest.approx([0.6, 0.25, 0.1])
    assert shadow.top_probabilities(logits[:, :2]).shape == (1, 2)


def test_an_attack_network_that_cannot_learn_is_an_error_not_privacy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shadow, "LEARNING_RATES", (0.0,))
    monkeypatch.setattr(shadow, "TRIES", 1)
    outsiders = torch.rand(200, 3, generator=torch.Generator().manual_seed(0))
    members = outsiders + torch.tensor([0.9, 0.0, 0.0])
    with pytest.raises(ResperturbError, match="did not learn"):
        shadow.fit_attack(members, outsiders, seed=1)


def test_a_start_that_ends_with_one_answer_for_everybody_is_not_the_last_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fit_once, dead = shadow._fit_once, torch.nn.Linear(3, 2)
    torch.nn.init.zeros_(dead.weight)
    monkeypatch.setattr(shadow, "_fit_once", lambda *given: dead if given[-1] == 0 else fit_once(*given))
    features = torch.rand(400, 3, generator=torch.Generator().manual_seed(0))
    # A difference smaller than the margin: a dead network would pass for one that has learned all there is.
    network, _ = shadow.fit_attack(features[:200] + 0.005, features[200:], seed=0)
    assert len(np.unique(shadow.membership(network, features))) > 1
    monkeypatch.setattr(shadow, "_fit_once", lambda *given: dead)
    with pytest.raises(ResperturbError, match="did not learn"):
        shadow.fit_attack(features, features, seed=0)


def test_where_every_start_dies_at_the_rate_of_the_paper_a_smaller_one_is_taken_and_told() -> None:
    generator = torch.Generator().manual_seed(0)
    members, outsiders = (
        shadow.top_probabilities(torch.randn(6000, 10, generator=generator) * scale) for scale in (2.1, 2.0)
    )
    network, learning_rate = shadow.fit_attack(members, outsiders, seed=0)
    assert learning_rate < shadow.LEARNING_RATES[0]
    assert auc(shadow.membership(network, members), shadow.membership(network, outsiders)) > 0.5


def test_no_difference_gives_an_auc_of_one_half() -> None:
    generator = torch.Generator().manual_seed(1)
    features = torch.rand(4000, 3, generator=generator).sort(dim=1, descending=True).values
    network, _ = shadow.fit_attack(features[:1000], features[1000:2000], seed=0)
    members, outsiders = (shadow.membership(network, part) for part in (features[2000:3000], features[3000:]))
    # The standard error of the AUC of 1000 against 1000 is 0.013.
    assert auc(members, outsiders) == pytest.approx(0.5, abs=0.05)


def test_scores_survive_the_disk_and_damage_is_named(tmp_path: Path) -> None:
    scores = MembershipScores(np.array([0.9, 0.5]), np.array([0.1, 0.5]))
    save_outcome(tmp_path, "x", scores, measures(scores))
    np.testing.assert_array_equal(load_scores(tmp_path, "x").members, scores.members)
    path = tmp_path / "attacks" / "x.npz"
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(ResperturbError, match="cannot be read"):
        load_scores(tmp_path, "x")


def test_a_long_roc_curve_is_thinned_but_keeps_its_ends() -> None:
    rng = np.random.default_rng(0)
    fpr, tpr = roc_points(MembershipScores(rng.normal(1, 1, 20_000), rng.normal(0, 1, 20_000)))
    assert len(fpr) <= 401
    assert (fpr[0], tpr[0], fpr[-1], tpr[-1]) == (0, 0, 1, 1)
    assert fpr == sorted(fpr)
    assert np.trapezoid(tpr, fpr) == pytest.approx(0.76, abs=0.01)  # Phi(1 / sqrt(2))
