"""The trainer's recipe under every defence: checkpoints, served predictions, canaries, bad input."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from resperturb.attacks.signals import Query
from resperturb.auditing import Job
from resperturb.cli import app
from resperturb.data import load_pair
from resperturb.data.loading import load_column
from resperturb.data.records import Columns
from resperturb.errors import UsageError
from resperturb.frontiers import Study, recipe_study
from resperturb.frontiers.defence import DEFENCES
from resperturb.frontiers.recipe import QueriedNetwork, RecipeTrainee

RECIPE = {
    "data": {"spec": "fashion-sample", "image_size": 8, "limit": 100},
    "epochs": 3,
    "batch_size": 16,
    "lr": 0.05,
    "seeded_noise": True,
}
JOB = Job(0, np.arange(0, 60, 2), 7, Path())


def study(*defences: str, recipe: dict[str, object] = RECIPE, **changes: object) -> Study:
    return recipe_study(recipe, defences=defences, strengths=1, models=8, **changes)  # type: ignore[arg-type]


def trainee(defence: str) -> RecipeTrainee:
    found = next(one for one in study(defence).settings if one.defence == defence).trainee
    assert isinstance(found, RecipeTrainee)
    return found


def weights(one: object) -> torch.Tensor:
    assert isinstance(one, QueriedNetwork)
    return torch.cat([value.flatten().double() for value in one.model.state_dict().values()])


@pytest.mark.parametrize("defence", ["additive", "dropout"])
def test_queries_at_checkpoints_leave_the_training_as_it_is(defence: str) -> None:
    """With seeded noise one random state runs through the training."""
    recipe = trainee(defence)
    stages, last = [], None
    for one in recipe.fit(JOB):
        stages.append(one.stage)
        for query in one.queries(np.arange(2), (2,)):
            answers = list(one.outputs(np.arange(20), query))
            assert np.allclose(np.exp(answers).sum(axis=2), 1)
        last = weights(one)
    undisturbed = None
    for one in recipe.fit(JOB):
        undisturbed = weights(one)
    assert stages == ["epoch-0001", "epoch-0002", "epoch-0003"]
    assert last is not None
    assert undisturbed is not None
    assert torch.equal(last, undisturbed)


def test_hamp_serves_values_of_random_images_and_its_weights_give_its_own() -> None:
    *_, network = trainee("hamp").fit(JOB)
    served, own = (next(network.outputs(np.arange(40), Query(access))) for access in ("served", "weights"))  # type: ignore[arg-type]
    assert [query.access for query in network.queries(np.arange(1), (16,))] == ["served", "weights"]
    assert np.array_equal(served.argmax(axis=1), own.argmax(axis=1))
    assert not np.allclose(np.sort(served, axis=1), np.sort(own, axis=1))
    backwards = next(network.outputs(np.arange(40)[::-1].copy(), Query("served")))
    assert np.array_equal(served, backwards[::-1])  # the random image belongs to the row


def test_canaries_are_of_the_kinds_that_expose_the_defences_and_their_sources_are_not_queried() -> None:
    found = study("additive", "dpsgd", canaries=4, recipe={**RECIPE, "seeded_noise": False})
    kinds = found.candidates.kinds
    assert {kind: int((kinds == kind).sum()) for kind in set(kinds)} == {
        "record": 88,
        "mislabelled": 2,
        "blank": 2,
    }
    assert {one.defence: one.canary for one in found.settings} == {
        "none": "mislabelled",
        "additive": "mislabelled",
        "dpsgd": "blank",
    }
    assert len(np.intersect1d(found.candidates.rows, np.arange(100))) == 98
    private = next(one for one in found.settings if one.formal)
    assert 0 < private.trainee.guarantee(1e-5, 45).epsilon < np.inf


def test_defences_that_a_network_does_not_support_are_left_out_unless_named() -> None:
    recipe = {**RECIPE, "model": "timm:resnet18"}
    with pytest.raises(UsageError, match=r"^dropout 0\.3: "):
        recipe_study(recipe, defences=("dropout",), strengths=1)
    found = recipe_study(recipe, strengths=1)
    assert any(one.startswith("dropout 0.3: ") for one in found.left_out)
    assert {"none", "weight-decay", "additive"} <= {one.defence for one in found.settings}


def test_a_change_that_changes_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match=r"weight decay 0\.005: it changes nothing of 'no defence'"):
        recipe_study({**RECIPE, "weight_decay": 5e-3}, defences=("weight-decay",), strengths=1)


def test_a_column_of_subgroups_is_in_the_order_of_the_images(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    codes = np.arange(60)
    images = rng.integers(0, 250, (60, 8, 8, 3), dtype=np.uint8)
    images[:, 0, 0, 0] = codes
    sex = np.where(codes % 3 == 0, "f", "m")
    file = tmp_path / "scans.npz"
    np.savez(file, images=images, labels=codes % 2, patient=codes // 2, sex=sex)
    for limit in (None, 20):
        train, _ = load_pair(str(file), group_column="patient", limit=limit)
        found = load_column(str(file), "sex", Columns(group="patient"), limit)
        assert found.tolist() == sex[train.images[:, 0, 0, 0].numpy()].tolist()


def command(*arguments: str) -> object:
    return CliRunner().invoke(app, ["frontier", *arguments], catch_exceptions=True)


SMALL = ("--data", "fashion-sample", "--image-size", "8", "--limit", "100", "--epochs", "1", "--models", "8")


def test_the_command_estimates_its_time_trains_and_reports(tmp_path: Path) -> None:
    out, recipe = tmp_path / "out", tmp_path / "recipe.yaml"
    recipe.write_text("batch_size: 8\nlr: 0.05\nepochs: 6\n")
    small = [option for option in SMALL if option not in ("--epochs", "1")]
    chosen = (*small, "--defences", "weight-decay", "--strengths", "1", "--out", str(out), "--jobs", "1", "--json")
    chosen = (*chosen, "--config", str(recipe))
    dry = command(*chosen, "--dry-run")
    assert list(json.loads(dry.stdout)["seconds"]) == ["no defence", "weight decay 0.005"]  # type: ignore[attr-defined]
    assert not out.exists()
    found = json.loads(command(*chosen, "--max-accuracy-loss", "0.5").stdout)  # type: ignore[attr-defined]
    assert [one["name"] for one in found["settings"]] == ["no defence", "weight decay 0.005"]
    assert "accuracy at least" in found["recommendation"]["sentence"]
    assert {path.name for path in out.iterdir()} >= {"frontier.json", "frontier.html", "no-defence"}
    assert "<svg" in (out / "frontier.html").read_text()


def test_the_study_ends_if_models_without_a_defence_learn_nothing(tmp_path: Path) -> None:
    result = command(*SMALL, "--defences", "weight-decay", "--out", str(tmp_path / "out"), "--jobs", "1")
    assert "the models of 'no defence' did not learn: their test accuracy is 0." in str(result.exception)  # type: ignore[attr-defined]
    assert not (tmp_path / "out" / "weight-decay-0.005" / "models").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name the images"),
        ((*SMALL, "--defences", "additve"), "did you mean 'additive'"),
        ((*SMALL, "--max-auc", "1.5"), "must lie between 0 and 1"),
        ((*SMALL, "--hours", "0", "--defences", "weight-decay"), "hours must be above 0"),
        (("--data", "fashion-sample", "--limit", "30", "--defences", "weight-decay"), "needs 40"),
        ((*SMALL, "--hours", "1e-9", "--defences", "weight-decay"), "are too few: 8 models of 'no defence' alone"),
        ((*SMALL, "--defences", "weight-decay", "--subgroup-column", "sex"), "sex"),
    ],
)
def test_bad_input_is_one_sentence_and_trains_nothing(
    arguments: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    result = command(*arguments, "--out", str(out))
    assert isinstance(result.exception, UsageError)  # type: ignore[attr-defined]
    assert message in str(result.exception)  # type: ignore[attr-defined]
    assert not out.exists()


def test_every_defence_names_its_canary() -> None:
    assert {DEFENCES[name].canary for name in DEFENCES} == {"mislabelled", "near_duplicate", "blank"}
