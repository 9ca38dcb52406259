"""Runs that version 0.1 trained still open, under the names that they had; others say who made them."""

import json
from pathlib import Path
from typing import Any

import pytest

from resperturb.errors import ResperturbError
from resperturb.models import build
from resperturb.perturbation import perturb, weights
from resperturb.training.config import make_config
from resperturb.training.method import method_of
from resperturb.training.migrate import from_file, to_file
from resperturb.training.run import open_run

# Written by version 0.1.0: configurations as they stood in config.json, and their hashes.
OLD: dict[str, Any] = json.loads((Path(__file__).parent / "schema1.json").read_text())


@pytest.mark.parametrize("name", OLD)
def test_an_old_configuration_keeps_its_name(name: str) -> None:
    config = from_file(OLD[name]["config"], "config.json")
    assert config.digest == OLD[name]["digest"]
    again = from_file(json.loads(json.dumps(to_file(config, "0.2.0"))), "config.json")
    assert again == config
    assert again.digest == OLD[name]["digest"]


def test_noise_followed_the_seed_unless_dp_sgd_said_otherwise() -> None:
    seeded = {name: from_file(old["config"], "").seeded_noise for name, old in OLD.items()}
    assert [name for name, value in seeded.items() if not value] == ["dpsgd"]


def test_what_schema_1_could_not_say_has_another_name() -> None:
    old = from_file(OLD["plain"]["config"], "")
    assert old.model_copy(update={"seeded_noise": False}).digest != old.digest
    assert old.model_copy(update={"method": method_of("dpsgd"), "norm": "group"}).digest != old.digest


def test_an_old_run_opens_with_its_model(tmp_path: Path) -> None:
    config = OLD["additive"]["config"]
    folder = tmp_path / OLD["additive"]["digest"]
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "result.json").write_text(
        json.dumps(
            {
                "train_accuracy": 1.0,
                "test_accuracy": 0.9,
                "gap": 0.1,
                "draws": 1,
                "records": 60,
                "test_records": 60,
                "classes": ["a", "b"],
                "channels": 1,
                "image_size": [28, 28],
                "seconds": 1.0,
                "environment": {"resperturb": "0.1.0"},
            }
        )
    )
    run = open_run(folder)
    model = perturb(build(run.config.model, num_classes=2, in_channels=1), run.config.perturbation)
    weights.save(model, folder / "model.safetensors")
    loaded = run.load_model()
    assert all(value.equal(model.state_dict()[name]) for name, value in loaded.state_dict().items())
    assert run.config.digest == folder.name


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema": 99}, "schema is 99, and this resperturb reads schemas 1 to 2"),
        ({"colour": "red"}, "colour"),
        ({"model": "resnet9"}, "unknown network 'resnet9'"),
    ],
)
def test_what_cannot_be_read_says_which_version_made_it(tmp_path: Path, change: dict[str, object], said: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**OLD["plain"]["config"], **change}))
    (tmp_path / "result.json").write_text(json.dumps({"environment": {"resperturb": "7.1"}}))
    with pytest.raises(ResperturbError, match=f"written by resperturb 7.1 and cannot be read: .*{said}"):
        open_run(tmp_path)


def test_saying_a_default_of_a_method_does_not_change_the_name() -> None:
    one = make_config(data={"spec": "x"}, method="dpsgd")
    other = make_config(data={"spec": "x"}, method={"name": "dpsgd", "clip": 1.0, "noise_multiplier": 1.1})
    assert one.digest == other.digest
