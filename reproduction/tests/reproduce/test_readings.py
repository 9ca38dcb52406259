"""Readings of the printed rows: trainings that are measured on the way, and what is said of them."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from resperturb_reproduction.figures.readings import readings_figure
from resperturb_reproduction.networks import stem_noise_resnet8
from resperturb_reproduction.reproduce import readings as readings_module
from resperturb_reproduction.reproduce.declarations import BY_ID, READINGS, Cell, Printed
from resperturb_reproduction.reproduce.library import Library
from resperturb_reproduction.reproduce.plan import target_config
from resperturb_reproduction.reproduce.presets import PRESETS, Scale
from resperturb_reproduction.reproduce.readings import ID, Look, Watched, read_trajectory, readings, watch, watched
from resperturb_reproduction.reproduce.results import Computed, made_now

from resperturb.files import plain
from resperturb.perturbation import Additive, perturb
from resperturb.training import Execution, load_inputs, method_of, open_run, train

PRINTED = Printed(0.511, 0.760, 0.695)
SCALE = Scale("fashion-sample", 11, 1, limit=80, batch_size=10)
NOISY = target_config(Cell("cifar10", additive=0.5, paper=PRINTED), SCALE, seed=0)


def test_to_watch_a_training_changes_nothing_in_it(tmp_path: Path) -> None:
    seen: list[Look] = []
    run = watch(NOISY, tmp_path / "watched", seen.append)
    assert run.finished
    assert [look.epoch for look in seen] == [5, 10]
    assert read_trajectory(run.path) == tuple(seen)
    assert all(None not in vars(look).values() for look in seen)
    alone = train(NOISY, out=tmp_path / "alone")
    assert run.model_path.read_bytes() == alone.model_path.read_bytes()
    assert open_run(run.path).result.test_accuracy == alone.result.test_accuracy


def test_a_training_that_is_killed_while_it_is_measured_goes_on_from_there(tmp_path: Path) -> None:
    def die(look: Look) -> None:
        if look.epoch == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        watch(NOISY, tmp_path / "killed", die)
    (tmp_path / "killed" / "reproduce" / "trajectory.jsonl").unlink()  # as if before it was written
    watch(NOISY, tmp_path / "killed")
    watch(NOISY, tmp_path / "whole")
    assert read_trajectory(tmp_path / "killed") == read_trajectory(tmp_path / "whole")


def test_a_network_without_noise_has_no_draws_to_average(tmp_path: Path) -> None:
    config = target_config(Cell("cifar10"), replace(SCALE, epochs=5), seed=0)
    (look,) = read_trajectory(watch(config, tmp_path / "plain").path)
    assert look.averaged_test_accuracy is look.noiseless_test_accuracy is None
    assert 0 <= look.train_accuracy <= 1


def test_what_is_trained_is_watched_kept_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readings_module, "READINGS", READINGS[:2])
    experiment = replace(BY_ID[ID], cells=READINGS[1:2])
    result = readings(experiment, PRESETS["quick"], Library(tmp_path))
    assert [(one.noisy, [look.epoch for look in one.looks]) for one in watched(result)] == [(True, [5])]
    result = readings(BY_ID[ID], PRESETS["quick"], Library(tmp_path))
    assert [(one.noisy, [look.epoch for look in one.looks]) for one in watched(result)] == [(False, [5]), (True, [5])]
    for one in watched(result):
        assert one.end is not None
        assert (one.end.audit.shadows, one.end.answers.draws) == (0, 16)
        assert 0 <= one.end.train_accuracy <= 1
    again = readings(experiment, PRESETS["quick"], Library(tmp_path, may_train=False))
    assert again.numbers == result.numbers
    readings_figure(watched(result)).draw_without_rendering()


def path(*looks: Look, epochs: int = 10) -> Watched:
    return Watched("cifar10", "En1 ResNet8, gamma 4.5, decay 5e-4", True, 0, epochs, PRINTED, looks)


def test_the_nearest_look_need_not_be_the_last() -> None:
    near, beyond = Look(5, 0.75, 0.69, 0.51), Look(10, 0.97, 0.71, 0.60)
    assert path(near, beyond).nearest == near
    assert path(near, beyond).finished
    assert not path(near, epochs=160).finished


def test_trajectories_come_back_from_the_file_as_they_were() -> None:
    found = (path(Look(5, 0.75, 0.69, 0.51)),)
    made = made_now(PRESETS["paper"])
    assert watched(Computed(ID, "computed", (made,), "", {"watched": plain(found)})) == found


def test_every_reading_can_be_configured_and_has_a_name_of_its_own() -> None:
    configs = [target_config(cell, PRESETS["paper"].scale(cell.data, "choice"), 0) for cell in READINGS]
    assert len({config.digest for config in configs}) == len({(c.data, c.name) for c in READINGS}) == len(READINGS)
    assert {config.precision for config in configs} == {"bf16-mixed"}


def test_nesterov_is_what_the_optimizer_does() -> None:
    config = NOISY.model_copy(update={"method": method_of("nesterov")})
    members = load_inputs(config.data).members()
    optimizer = config.method.steps(config, members, Execution()).optimizer
    assert [group["nesterov"] for group in optimizer.param_groups] == [True]


def test_the_stem_has_half_of_the_noise_of_a_block() -> None:
    network = perturb(stem_noise_resnet8(num_classes=10), Additive(gamma=4.0, input_std=0.0), seed=0).eval()
    images = torch.zeros(8, 3, 32, 32)
    assert network.stem(images).std().item() == pytest.approx(2.0, rel=0.02)
