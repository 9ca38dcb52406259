"""A DP head is an ordinary run: it resumes, is verified and audited, and states its guarantee."""

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from resperturb.cli import app
from resperturb.errors import ResperturbError, UsageError
from resperturb.features.networks import OnFeatures
from resperturb.heads import Descent
from resperturb.heads.release import noise_of
from resperturb.heads.rows import rows_of
from resperturb.noise import derive_key
from resperturb.perturbation import load
from resperturb.privacy.dp_head import head_mu
from resperturb.report.collect import open_models
from resperturb.report.page import render
from resperturb.training.audited import audit_run
from resperturb.training.checkpoint import Progress
from resperturb.training.config import TrainConfig, make_config
from resperturb.training.distributed import Execution
from resperturb.training.inputs import load_inputs
from resperturb.training.loop import InterruptedTrainingError, Update, train
from resperturb.training.network import build_model
from resperturb.training.run import Run, guarantee_of, open_run
from resperturb.training.verify import verify_run
from tests.conftest import tiny_config

PATIENTS, EACH, WIDTH = 150, 4, 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of 150 patients, four each, with features of their own in a file."""
    folder = tmp_path_factory.mktemp("patients")
    rng = np.random.default_rng(0)
    arrays: dict[str, np.ndarray] = {}
    for part, patients in (("train", PATIENTS), ("test", 20)):
        ill = np.repeat(np.arange(patients) % 2, EACH)
        arrays[f"x_{part}"] = rng.integers(0, 256, (len(ill), 8, 8), dtype=np.uint8)
        arrays[f"y_{part}"] = np.where(ill, "ill", "well")
        arrays[f"patient_{part}"] = np.repeat([f"{part} {number}" for number in range(patients)], EACH)
        arrays[part] = rng.normal(size=(len(ill), WIDTH)) + ill[:, None]
    features = {part: arrays.pop(part) for part in ("train", "test")}
    np.savez(folder / "data.npz", **arrays)
    np.savez(folder / "features.npz", **features)
    return folder


def config_of(folder: Path, method: dict[str, object] | None = None, **changes: object) -> TrainConfig:
    chosen = {"name": "dp-head", "public_features": True, **(method or {})}
    data = {"spec": str(folder / "data.npz"), "group_column": "patient", **changes.pop("data", {})}  # type: ignore[dict-item]
    defaults = {"features": f"file:{folder / 'features.npz'}", "epochs": 12}
    return make_config(**{**defaults, "data": data, "method": chosen, **changes})


@pytest.fixture(scope="module")
def run(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(config_of(folder), out=tmp_path_factory.mktemp("runs") / "head")


def weights_of(run: Run) -> torch.Tensor:
    return load_file(run.model_path)["head.weight"]


def test_the_guarantee_is_for_a_patient_and_for_public_numbers(run: Run) -> None:
    proven = run.guarantee()
    assert proven.epsilon == pytest.approx(3, abs=1e-6)
    assert proven.protects.startswith("one patient, all of its records")
    assert proven.records == PATIENTS
    assert proven.details["mu"] == head_mu(3.0, 1e-5)
    assert run.config.lr == pytest.approx(0.15 * head_mu(3.0, 1e-5) * PATIENTS / 12)
    assert run.config.batch_size == PATIENTS * EACH
    assert run.result.test_accuracy > 0.6
    assert any("150 patients are few" in note for note in run.result.notes)
    assert run.guarantee(1e-6).epsilon > proven.epsilon


def test_without_a_group_column_it_is_for_a_record(folder: Path, tmp_path: Path) -> None:
    one = train(config_of(folder, data={"group_column": None}), runs=tmp_path)
    assert one.guarantee().protects.startswith("one record, its label included")
    assert one.guarantee().records == PATIENTS * EACH


def test_a_pattern_makes_the_guarantee_one_for_a_group_too(folder: Path) -> None:
    """Contributions are clipped per group wherever there are groups; the guarantee must say the same."""
    config = config_of(folder, data={"group_pattern": r"(?P<person>\d+)$"})
    assert config.method.guarantee(config, 600, 12).protects.startswith("one patient, all of its records")
    config = config_of(folder, data={"group_column": None, "group_pattern": r"(?P<person>\d+)$"})
    assert config.method.guarantee(config, 600, 12).protects.startswith("one person, all of its records")


def test_canaries_are_patients_of_their_own_and_the_guarantee_says_so(folder: Path) -> None:
    def said(**data: object) -> str:
        return str(guarantee_of(config_of(folder, data=data), 600, 1, (8, 8)).assumptions)

    assert "Each canary counts as a patient of its own" in said(canaries={"mislabelled": 4})
    assert "canary" not in said(canaries={"blank": 4})
    assert "canary" not in said(group_column=None, canaries={"mislabelled": 4})
    assert "a record that k canaries" in said(group_column=None, canaries={"near_duplicate": 4}).lower()


def test_more_records_than_settled_for_do_not_add_releases(folder: Path) -> None:
    """A frontier settles for a typical model; one with more records released two sums per epoch, with one noise."""
    config = config_of(folder)
    members = load_inputs(config.data).members()
    settled = config.method.settle(config, members.select(range(len(members) - EACH)))
    steps = settled.method.steps(settled, members, Execution("cpu"))
    assert steps.per_epoch == 1
    steps.take(Progress())
    assert steps.rows.units == PATIENTS


def test_epsilon_grows_with_the_steps_to_the_target(run: Run) -> None:
    claimed = [entry.epsilon for entry in run.metrics()]
    assert claimed == sorted(claimed)
    assert claimed[-1] == run.guarantee().epsilon
    half = run.config.method.guarantee(run.config, run.result.records, 3)
    assert half.details["mu"] == pytest.approx(head_mu(3.0, 1e-5) / 2)


def test_the_weights_are_those_of_the_mechanism(folder: Path, tmp_path: Path) -> None:
    config = config_of(folder, seeded_noise=True, seed=7)
    trained = train(config, runs=tmp_path)
    assert trained.guarantee().claimed_epsilon == math.inf  # anyone who knows the seed can draw the noise again
    train_set = load_inputs(trained.config.data).train
    rows = np.load(folder / "features.npz")["train"].astype(np.float32)
    patients = np.unique(train_set.groups, return_inverse=True)[1]
    prepared = rows_of(rows, train_set.labels.numpy(), 2, patients, PATIENTS)
    settings = Descent(steps=12, largest_rate=trained.config.lr)
    keys = iter(range(12))

    def noise(shape: tuple[int, ...]) -> np.ndarray:
        return noise_of(int.from_bytes(derive_key(b"dp-head", 7, next(keys))))(shape)

    mu = head_mu(3.0, 1e-5)
    expected = settings.fit(prepared, mu, noise)
    np.testing.assert_allclose(weights_of(trained).numpy().T, expected, rtol=1e-9)


@pytest.mark.parametrize("head", ["gradient", "one-shot"])
def test_a_stopped_training_goes_on_with_the_same_noise(folder: Path, tmp_path: Path, head: str) -> None:
    config = config_of(folder, {"head": head}, seeded_noise=True)
    whole = train(config, runs=tmp_path / "whole")

    def stop(update: Update) -> None:
        if update.step == (5 if head == "gradient" else 1):
            signal_stop()

    with pytest.raises((InterruptedTrainingError, KeyboardInterrupt)):
        train(config, runs=tmp_path / "stopped", on_update=stop)
    assert torch.equal(weights_of(train(config, runs=tmp_path / "stopped")), weights_of(whole))
    assert whole.result.test_accuracy > 0.6


def signal_stop() -> None:
    raise KeyboardInterrupt


def test_the_noise_is_secret_and_nothing_of_it_is_left(folder: Path, run: Run, tmp_path: Path) -> None:
    again = train(config_of(folder), runs=tmp_path)
    assert not torch.equal(weights_of(again), weights_of(run))
    assert not again.secrets()
    assert {check.outcome for check in verify_run(open_run(again.path), with_data=True)} <= {"ok", "not checked"}


def test_a_guarantee_cannot_be_edited(run: Run, tmp_path: Path) -> None:
    shutil.copytree(run.path, tmp_path / "edited")
    path = tmp_path / "edited" / "config.json"
    config = json.loads(path.read_text())
    config["method"]["target_epsilon"] = 0.1
    path.write_text(json.dumps(config))
    with pytest.raises(ResperturbError, match=r"config.json is not the file"):
        open_run(tmp_path / "edited").guarantee()


def test_an_audit_of_its_recipe_tests_the_guarantee_per_patient(run: Run, tmp_path: Path) -> None:
    shutil.copytree(run.path, tmp_path / "audited")
    audited = open_run(tmp_path / "audited")
    found = audit_run(audited, shadows=4, jobs=1)
    assert found.groups == PATIENTS - 15  # a tenth is held back, as a population
    assert found.verdict in ("gap", "consistent")
    assert found.tested_guarantee.claimed_epsilon == pytest.approx(3, abs=1e-6)
    # Models on halves: their patients are counted, not those of the run.
    assert found.guarantee.records is not None
    assert 0.3 * PATIENTS < found.guarantee.records < 0.7 * PATIENTS
    page = render(open_models([audited.path]))
    for said in ("one patient, all of its records", "attack AUC at most 0.694"):
        assert said in " ".join(page.split())
    for command in (["compare"], ["gate"], ["verify"], ["evaluate"], ["card", "--out", str(tmp_path / "card.md")]):
        done = CliRunner().invoke(app, [command[0], str(audited.path), *command[1:]])
        assert done.exit_code in (0, 1, 2), done.output
        assert "Traceback" not in done.output
    assert "attack AUC at most 0.694" in (tmp_path / "card.md").read_text()


def test_the_model_predicts_only_by_the_features_it_was_trained_on(run: Run, folder: Path, tmp_path: Path) -> None:
    model = run.load_model()
    assert isinstance(model, OnFeatures)
    test = load_inputs(run.config.data).test
    logits = model(test.images.float() / 255)
    assert float((logits.argmax(1) == test.labels).float().mean()) == pytest.approx(run.result.test_accuracy)
    moved = tmp_path / "features.npz"
    arrays = dict(np.load(folder / "features.npz"))
    np.savez(moved, **{name: 2 * rows for name, rows in arrays.items()})
    other = config_of(folder, features=f"file:{moved}")
    with pytest.raises(UsageError, match="features are not those"):
        load(build_model(other, test), run.model_path)


def test_a_network_for_images_computes_the_features_of_new_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RESPERTURB_CACHE", str(tmp_path / "cache"))
    config = tiny_config(
        method="dp-head", epochs=5, batch_size=1, model_args={"reduction": "none"}, data={"image_size": 16}
    )
    trained = train(config, runs=tmp_path)
    assert trained.config.model == "features:scattering"
    model = trained.load_model()
    new = torch.rand(3, 1, 16, 16, generator=torch.Generator().manual_seed(0)).mul(255).round().div(255)
    assert torch.allclose(model(new)[1:], model(new[1:]), atol=1e-4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": None, "model": "resnet8"}, "name the features: --features scattering"),
        ({"model": "resnet8"}, "drop one"),
        ({"perturbation": {"name": "additive", "gamma": 0.5}}, "no use for --gamma"),
        ({"class_weights": "balanced", "augment": "crop"}, "no use for --class-weights, --augment"),
        ({"normalization": "imagenet"}, "bring their own normalisation"),
        ({"features": "wavelets"}, "unknown feature extractor 'wavelets'"),
        ({"features": "file:/no/such.npz"}, "there is no"),
        ({"method": {"public_features": False}}, "--public-features"),
    ],
)
def test_bad_requests_are_refused_in_a_sentence(
    folder: Path, tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        train(config_of(folder, **changes), runs=tmp_path)  # type: ignore[arg-type]


def test_features_of_a_network_trained_on_the_same_images_are_refused(folder: Path, tmp_path: Path) -> None:
    plain = train(
        make_config(data={"spec": str(folder / "data.npz")}, epochs=1, batch_size=300), out=tmp_path / "plain"
    )
    config = config_of(folder, features="timm:resnet18", weights=str(plain.model_path))
    with pytest.raises(UsageError, match="was trained on the images of"):
        config.method.settle(config, load_inputs(config.data).train)


def test_features_that_are_not_finite_are_refused(folder: Path, tmp_path: Path) -> None:
    arrays = dict(np.load(folder / "features.npz"))
    arrays["train"][5, 2] = np.nan
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(UsageError, match="row 5 of the train features"):
        train(config_of(folder, features=f"file:{tmp_path / 'bad.npz'}"), runs=tmp_path)


def test_equal_images_need_equal_features(folder: Path, tmp_path: Path) -> None:
    arrays = dict(np.load(folder / "data.npz"))
    arrays["x_train"][5] = arrays["x_train"][4]
    np.savez(tmp_path / "data.npz", **arrays)
    np.savez(tmp_path / "features.npz", **{name: -rows for name, rows in np.load(folder / "features.npz").items()})
    config = config_of(folder, data={"spec": str(tmp_path / "data.npz")}, features=f"file:{tmp_path}/features.npz")
    with pytest.raises(UsageError, match="train image 5 has the same pixels as another"):
        train(config, runs=tmp_path)


def test_from_the_command_line(folder: Path, tmp_path: Path) -> None:
    options = ["--method", "dp-head", "--features", f"file:{folder / 'features.npz'}", "--public-features"]
    options += ["--group-column", "patient", "--target-epsilon", "8", "--epochs", "5"]
    done = CliRunner().invoke(
        app, ["train", "--data", str(folder / "data.npz"), *options, "--out", str(tmp_path / "r")]
    )
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    assert "Epsilon 8 at delta 1e-05" in said
    assert "The largest possible attack AUC is 0.881" in said
    assert "one patient, all of its records" in said
