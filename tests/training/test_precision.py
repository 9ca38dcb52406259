"""Automatic precision is measured, decided once, and never lowered where it would cost a guarantee."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from resperturb.errors import UsageError
from resperturb.training import precision as module
from resperturb.training.config import make_config
from resperturb.training.inputs import load_inputs
from resperturb.training.loop import InterruptedTrainingError, Update, train
from resperturb.training.many import train_many
from resperturb.training.precision import LONG_SECONDS, advice, measured_share
from resperturb.training.run import Run, open_run
from tests.conftest import tiny_config

NOISE = {"name": "additive", "gamma": 0.5}
FASTER, SLOWER = 0.5, 0.99


def weights(run: Run) -> dict[str, torch.Tensor]:
    return load_file(run.model_path)


@pytest.mark.parametrize(("share", "chosen"), [(FASTER, "bf16-mixed"), (SLOWER, "32-true")])
def test_a_training_that_measures_first_is_the_one_in_the_precision_it_chose(
    tmp_path: Path, share: float, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[float] = []

    def measure(*given: object) -> float:
        measured.append(measured_share(*given))  # type: ignore[arg-type]  # the real measurement first, then the given one
        return share

    monkeypatch.setattr(module, "measured_share", measure)
    told = train(tiny_config(perturbation=NOISE, precision=chosen), out=tmp_path / "told")
    auto = train(tiny_config(perturbation=NOISE, precision="auto"), out=tmp_path / "auto")
    assert auto.config == told.config
    assert open_run(auto.path).config.precision == chosen
    assert all(value.equal(weights(auto)[name]) for name, value in weights(told).items())
    assert len(measured) == 1
    assert 0 < measured[0] < 50


@pytest.mark.parametrize("named", [True, False])
def test_the_chosen_precision_holds_when_the_training_is_resumed(
    tmp_path: Path, named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = {"out": tmp_path / "run"} if named else {"runs": tmp_path}
    config = tiny_config(precision="auto")

    def stop(update: Update) -> None:
        if update.step == 4:
            raise InterruptedTrainingError

    monkeypatch.setattr(module, "measured_share", lambda *given: FASTER)
    with pytest.raises(InterruptedTrainingError):
        train(config, on_update=stop, **place)  # type: ignore[arg-type]
    monkeypatch.setattr(module, "measured_share", lambda *given: SLOWER)
    resumed = train(config, **place)  # type: ignore[arg-type]
    assert resumed.config.precision == "bf16-mixed"
    whole = train(tiny_config(precision="bf16-mixed"), out=tmp_path / "whole")
    assert all(value.equal(weights(resumed)[name]) for name, value in weights(whole).items())
    if not named:
        assert [run.path for run in train_many([config], tmp_path)] == [resumed.path]


def test_the_time_is_measured_and_torchs_generator_left_alone() -> None:
    config = tiny_config(precision="auto", batch_size=13)
    inputs = load_inputs(config.data)
    state = torch.get_rng_state()
    found = measured_share(config, inputs.members())
    assert torch.get_rng_state().equal(state)
    assert 0.05 < found < 50
    again = config.model_copy(update={"seed": 5, "epochs": 90})
    assert measured_share(again, inputs.members()) == found


def test_noise_that_bf16_would_lose_keeps_a_training_in_32_bits(tmp_path: Path) -> None:
    faint = {"name": "additive", "gamma": 1e-4, "input_std": 0.0}
    run = train(tiny_config(precision="auto", perturbation=faint, epochs=1), runs=tmp_path)
    assert run.config.precision == "32-true"


def test_a_private_training_stays_in_32_bits_and_is_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "measured_share", lambda *given: FASTER)
    run = train(tiny_config(precision="auto", method="dpsgd", epochs=1), runs=tmp_path)
    assert run.config.precision == "32-true"


def test_32_bits_are_the_default_and_other_words_are_refused() -> None:
    assert tiny_config().precision == "32-true"
    with pytest.raises(UsageError, match="precision"):
        make_config(data={"spec": "fashion-sample"}, precision="fast")


def test_a_long_training_in_32_bits_reports_what_bf16_would_save(monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny_config()
    members = load_inputs(config.data).members()
    monkeypatch.setattr(module, "measured_share", lambda *given: FASTER)
    said = advice(config, members, seconds_left=3600.0)
    assert said is not None
    assert "60 min in 32 bits, and in bf16 about 30 min" in said
    assert advice(config, members, LONG_SECONDS - 1) is None
    assert advice(tiny_config(precision="bf16-mixed"), members, 3600.0) is None
    assert advice(tiny_config(method="dpsgd"), members, 3600.0) is None
    monkeypatch.setattr(module, "measured_share", lambda *given: SLOWER)
    assert advice(config, members, 3600.0) is None


def test_the_command_says_so_once(tmp_path: Path) -> None:
    code = """
import sys
from resperturb import progress
from resperturb.training import precision
progress.SECONDS_WATCHED = 0.0
precision.LONG_SECONDS = 0.0
precision.measured_share = lambda *given: 0.5
from resperturb.cli import main
options = "train --data fashion-sample --limit 60 --epochs 2 --batch-size 20 --out".split()
sys.argv = ["resperturb", *options, sys.argv[1]]
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "run")], capture_output=True, text=True, check=True
    )
    assert done.stderr.count("add --precision auto") == 1
