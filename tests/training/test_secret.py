"""Training noise comes from a secret that only its owner can read, and that does not outlive the training."""

import os
import shutil
import stat
from pathlib import Path

import pytest
from safetensors.torch import load_file

from resperturb.errors import ResperturbError
from resperturb.training.config import TrainConfig
from resperturb.training.loop import InterruptedTrainingError, Update, train
from resperturb.training.run import Run
from tests.conftest import tiny_config as seeded_config

NOISE = {"name": "additive", "gamma": 0.5}


def tiny_config(**changes: object) -> TrainConfig:
    return seeded_config(**{"seeded_noise": False, "data": {"image_size": 8}, "perturbation": NOISE, **changes})


def same(one: Run, other: Run) -> bool:
    a, b = load_file(one.model_path), load_file(other.model_path)
    return all(a[name].equal(b[name]) for name in a)


def interrupt_at(step: int):  # type: ignore[no-untyped-def]
    def press(update: Update) -> None:
        if update.step == step:
            os.kill(os.getpid(), 2)

    return press


@pytest.mark.parametrize("method", ["sgd", "dpsgd"])
def test_a_stopped_training_resumes_with_its_own_noise_and_forgets_it(tmp_path: Path, method: str) -> None:
    config = tiny_config(method=method)
    with pytest.raises(InterruptedTrainingError):
        train(config, out=tmp_path / "one", on_update=interrupt_at(5))
    secret = tmp_path / "one" / ".secret"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    bits = secret.read_bytes()
    assert len(bits) == 16
    shutil.copytree(tmp_path / "one", tmp_path / "other")
    one, other = (train(config, out=tmp_path / name) for name in ("one", "other"))
    assert same(one, other)
    assert not same(one, train(config, out=tmp_path / "new"))
    for file in one.path.rglob("*"):
        content = file.read_bytes()
        assert bits not in content
        assert bits.hex().encode() not in content


def test_an_interrupted_training_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    """The same secret, with and without an interruption."""
    config = tiny_config(augment=True)
    with pytest.raises(InterruptedTrainingError):
        train(config, out=tmp_path / "stopped", on_update=interrupt_at(5))
    (tmp_path / "whole").mkdir()
    shutil.copy(tmp_path / "stopped" / ".secret", tmp_path / "whole" / ".secret")
    assert same(train(config, out=tmp_path / "stopped"), train(config, out=tmp_path / "whole"))


def test_no_two_runs_share_noise_even_with_one_secret(tmp_path: Path) -> None:
    one, other = Run(tmp_path, tiny_config()), Run(tmp_path, tiny_config(seed=1))
    assert one.noise_secret() == one.noise_secret()
    assert one.noise_secret() != other.noise_secret()


def test_a_damaged_secret_is_noticed(tmp_path: Path) -> None:
    (tmp_path / ".secret").write_bytes(b"short")
    with pytest.raises(ResperturbError, match="damaged"):
        Run(tmp_path, tiny_config()).noise_secret()


def test_seeded_noise_meets_no_assumption_of_secrecy() -> None:
    assert tiny_config().secrecy.status == "enforced"
    assert seeded_config().secrecy.status == "not met"
