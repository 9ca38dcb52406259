"""Training is reproducible, resumable, and stops with a reason."""

import fcntl
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from resperturb.errors import ResperturbError, UsageError
from resperturb.noise import normals
from resperturb.perturbation import Additive, strategy_of
from resperturb.training.audited import recipe_candidates, target_candidates
from resperturb.training.config import DataConfig
from resperturb.training.inputs import load_inputs
from resperturb.training.loop import InterruptedTrainingError, Update, evaluate, train
from resperturb.training.predict import normalize
from resperturb.training.run import Run, open_run
from resperturb.training.steps import epoch_order
from tests.conftest import tiny_config

NOISE = {"name": "additive", "gamma": 0.5}


def weights(run: Run) -> dict[str, torch.Tensor]:
    return load_file(run.model_path)


def same(one: Run, other: Run) -> bool:
    a, b = weights(one), weights(other)
    return a.keys() == b.keys() and all(a[name].equal(b[name]) for name in a)


def test_the_seed_decides_everything_the_training_noise_included(tmp_path: Path) -> None:
    one = train(tiny_config(perturbation=NOISE), runs=tmp_path / "a")
    again = train(tiny_config(perturbation=NOISE), runs=tmp_path / "b")
    assert same(one, again)
    assert one.result.train_accuracy == again.result.train_accuracy
    torch.manual_seed(12345)
    assert not same(one, train(tiny_config(perturbation=NOISE, seed=1), runs=tmp_path / "c"))


def test_a_run_keeps_its_settings_weights_and_metrics(tmp_path: Path) -> None:
    run = train(tiny_config(perturbation=NOISE), runs=tmp_path)
    assert run.path.name == run.config.digest
    assert open_run(run.path) == run
    assert strategy_of(run.load_model()) == Additive(0.5)
    assert [entry.epoch for entry in run.metrics()] == [1, 2, 3]
    assert run.result.records == 60
    assert run.result.gap == pytest.approx(run.result.train_accuracy - run.result.test_accuracy)
    assert not run.checkpoint_path.exists()


def test_a_model_that_is_loaded_again_is_as_accurate_as_was_measured(tmp_path: Path) -> None:
    run = train(tiny_config(perturbation=NOISE, epochs=6), runs=tmp_path)
    test = load_inputs(run.config.data).test
    assert evaluate(run.load_model(), test, run.config, draws=1).accuracy == run.result.test_accuracy


def test_a_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    train(tiny_config(), runs=tmp_path)
    updates: list[Update] = []
    train(tiny_config(), runs=tmp_path, on_update=updates.append)
    assert updates == []


class Stop(Exception):
    """Simulates a crash."""


def crash_at(step: int):  # type: ignore[no-untyped-def]
    def update(update: Update) -> None:
        if update.step == step:
            raise Stop

    return update


@pytest.mark.parametrize("crashes", [[1], [4], [5, 8]])
def test_a_crashed_training_ends_with_the_same_weights(tmp_path: Path, crashes: list[int]) -> None:
    config = tiny_config(perturbation=NOISE, augment=True)
    whole = train(config, runs=tmp_path / "whole")
    for step in crashes:
        with pytest.raises(Stop):
            train(config, runs=tmp_path / "crashed", on_update=crash_at(step))
    resumed = train(config, runs=tmp_path / "crashed")
    assert same(whole, resumed)
    assert [entry.loss for entry in whole.metrics()] == [entry.loss for entry in resumed.metrics()]


def test_ctrl_c_saves_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    config = tiny_config(perturbation=NOISE)
    whole = train(config, runs=tmp_path / "whole")

    def press(update: Update) -> None:
        if update.step == 5:
            os.kill(os.getpid(), 2)

    with pytest.raises(InterruptedTrainingError, match="epoch 2 of 3, after batch 2 of 3.*same command"):
        train(config, runs=tmp_path / "stopped", on_update=press)
    steps: list[int] = []
    resumed = train(config, runs=tmp_path / "stopped", on_update=lambda update: steps.append(update.step))
    assert steps[0] == 6
    assert same(whole, resumed)


def test_a_training_does_not_go_on_with_another_generator_of_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noisy, plain = tiny_config(perturbation=NOISE), tiny_config()
    for config in (noisy, plain):
        with pytest.raises(Stop):
            train(config, runs=tmp_path, on_update=crash_at(5))
    with monkeypatch.context() as elsewhere:
        here = normals.kernel()
        elsewhere.setattr(normals, "kernel", lambda: None if here else object())  # a machine with other compilers
        with pytest.raises(ResperturbError, match=r"noise of .* was drawn by .*; resume it where it was started"):
            train(noisy, runs=tmp_path)
        assert train(plain, runs=tmp_path).result.environment.get("noise") is None
    finished = train(noisy, runs=tmp_path)
    assert finished.result.environment["noise"] == normals.generator_name(torch.device("cpu"))


def test_a_damaged_checkpoint_is_noticed(tmp_path: Path) -> None:
    config = tiny_config()
    with pytest.raises(Stop):
        train(config, runs=tmp_path, on_update=crash_at(5))
    [checkpoint] = tmp_path.glob("*/checkpoint.safetensors")
    checkpoint.write_bytes(checkpoint.read_bytes()[:-100])
    with pytest.raises(ResperturbError, match="damaged"):
        train(config, runs=tmp_path)


def test_another_configuration_in_the_same_folder_is_refused_with_the_difference(tmp_path: Path) -> None:
    train(tiny_config(), out=tmp_path / "run")
    with pytest.raises(UsageError, match="epochs: 3 there, 4 asked for"):
        train(tiny_config(epochs=4), out=tmp_path / "run")


def test_a_folder_that_is_no_run_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("important")
    with pytest.raises(UsageError, match="is not a run"):
        train(tiny_config(), out=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_two_processes_do_not_train_the_same_run(tmp_path: Path) -> None:
    run = train(tiny_config(), runs=tmp_path)
    handle = os.open(run.path / ".lock", os.O_RDWR)
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        with pytest.raises(ResperturbError, match="another process"):
            train(tiny_config(), runs=tmp_path)
    finally:
        os.close(handle)


def test_a_diverging_loss_stops_and_says_what_to_change(tmp_path: Path) -> None:
    with pytest.raises(ResperturbError, match=r"not finite.*--lr \(it is 1e\+30\) or --gamma"):
        train(tiny_config(lr=1e30, perturbation=NOISE), runs=tmp_path)


def test_a_network_whose_outputs_are_not_finite_has_not_been_trained(tmp_path: Path) -> None:
    """One step of a huge rate: the loss was taken before it."""
    with pytest.raises(ResperturbError, match=r"answers are not finite.*--lr \(it is 1e\+25\)"):
        train(tiny_config(lr=1e25, epochs=1, batch_size=1000), runs=tmp_path)
    assert not list(tmp_path.glob("**/result.json"))


def test_a_run_whose_images_are_gone_says_where_they_were() -> None:
    with pytest.raises(UsageError, match="--data patches when this was trained"):
        load_inputs(DataConfig(spec="patches", fingerprint="0" * 16))
    with pytest.raises(UsageError, match="no file or folder 'patches'.*check the path.$"):
        load_inputs(DataConfig(spec="patches"))


def test_changed_images_are_noticed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="images have changed"):
        train(tiny_config(data={"fingerprint": "0" * 16}), runs=tmp_path)


def test_every_epoch_has_its_own_order_of_all_records() -> None:
    first, second = epoch_order(50, seed=0, epoch=0), epoch_order(50, seed=0, epoch=1)
    assert sorted(first.tolist()) == sorted(second.tolist()) == list(range(50))
    assert not first.equal(second)
    assert not first.equal(epoch_order(50, seed=1, epoch=0))


def test_the_share_of_clipped_images_is_reported(tmp_path: Path) -> None:
    config = tiny_config(epochs=1, perturbation={"name": "additive", "gamma": 0.5, "clip_radius": 45.0})
    run = train(config, runs=tmp_path)
    images = load_inputs(run.config.data).members().images
    norms = [float(normalize(image, 0.5, 0.25).norm()) for image in images]
    assert 0 < run.result.inputs_clipped < 1
    assert run.result.inputs_clipped == pytest.approx(sum(norm > 45 for norm in norms) / len(norms))


def test_early_stopping_keeps_the_best_epoch_and_resumes(tmp_path: Path) -> None:
    settings = {"data": {"limit": 200, "part": "all"}, "epochs": 30, "patience": 2, "batch_size": 16}
    config = tiny_config(**settings)
    run = train(config, runs=tmp_path / "whole")
    inputs = load_inputs(run.config.data)
    measured = [entry.validation_accuracy or 0.0 for entry in run.metrics()]
    best = measured.index(max(measured))
    assert len(measured) == min(30, best + 3)
    assert len(inputs.validation) == 20
    assert not np.isin(inputs.validation, inputs.member_indices).any()
    assert run.result.records == 180
    again = evaluate(run.load_model(), inputs.train.select(inputs.validation), run.config, draws=1)
    assert again.accuracy == measured[best]
    assert any(f"epoch {best + 1} of {len(measured)}" in note for note in run.result.notes)
    with pytest.raises(Stop):
        train(config, runs=tmp_path / "crashed", on_update=crash_at(12 * (best + 1) + 5))
    assert same(run, train(config, runs=tmp_path / "crashed"))


def test_validation_images_are_neither_members_nor_candidates(tmp_path: Path) -> None:
    data = {"limit": 200, "part": "all", "canaries": {"mislabelled": 10}, "validation": 0.2}
    config = tiny_config(data=data, patience=1, epochs=2)
    validation = load_inputs(config.data).validation
    assert len(validation) == 40
    for found in (recipe_candidates(config.data), target_candidates(config.data)[0]):
        assert not np.isin(validation, found.rows).any()
        assert not np.isin(validation, found.always).any()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"method": "dpsgd"}, "which the guarantee of DP-SGD does not cover"),
        ({"data": {"part": "target_train"}}, "not with the part 'target_train'"),
    ],
)
def test_early_stopping_is_refused_where_it_would_break_something(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        tiny_config(**{"data": {"part": "all"}, **settings}, patience=1)
