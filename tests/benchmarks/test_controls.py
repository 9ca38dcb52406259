"""Controls: a network without noise, held back by ordinary means to the accuracy that the noise costs."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.controls import CONTROLS, at_equal_accuracy
from resperturb.errors import UsageError
from resperturb.training.run import Run
from tests.conftest import tiny_config


def run(tmp_path: Path, accuracy: float) -> Run:
    made = Run(tmp_path / str(accuracy), tiny_config())
    made.__dict__["result"] = SimpleNamespace(test_accuracy=accuracy)
    return made


def test_a_control_changes_one_thing_and_takes_the_noise_away() -> None:
    target = tiny_config(epochs=40, perturbation={"name": "additive", "gamma": 1.0})
    plain = tiny_config(epochs=40).model_dump()
    for control in CONTROLS:
        configs = control.configs(target)
        assert len({config.digest for config in configs}) == len(control.strengths)
        for config in configs:
            changed = {key for key, value in config.model_dump().items() if value != plain[key]}
            expected = {
                "early stopping": {"epochs"},
                "weight decay": {"weight_decay"},
                "dropout": {"dropout"},
                "label smoothing": {"label_smoothing"},
                "noiseless ensemble": {"model"},
            }
            assert changed == expected[control.name]


def test_early_stopping_is_a_shorter_training_with_its_learning_rate_lowered_in_time() -> None:
    target = tiny_config(epochs=40)
    [early] = [control for control in CONTROLS if control.name == "early stopping"]
    for config in early.configs(target):
        assert config.epochs < target.epochs
        assert config.learning_rate(config.epochs - 1) == target.learning_rate(target.epochs - 1)


def test_the_nearest_accuracy_is_chosen(tmp_path: Path) -> None:
    runs = [run(tmp_path, accuracy) for accuracy in (0.9, 0.72, 0.6)]
    assert at_equal_accuracy(runs, 0.7) is runs[1]
    with pytest.raises(UsageError, match="no run"):
        at_equal_accuracy([], 0.7)
