"""Published recipes: settings by name, which options override, and the network that they need."""

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from resperturb.cli import app
from resperturb.errors import UsageError
from resperturb.training.config import make_config
from resperturb.training.recipes import read_recipe, recipes
from resperturb.training.run import open_run

DATA = {"spec": "fashion-sample", "limit": 60, "image_size": 16}


def test_a_recipe_trains_by_its_settings_and_options_override_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RESPERTURB_CACHE", str(tmp_path / "cache"))
    command = [
        "train",
        "--data",
        "fashion-sample",
        "--limit",
        "60",
        "--image-size",
        "16",
        "--out",
        str(tmp_path / "run"),
    ]
    options = ["--recipe", "handcrafted-cnn", "--batch-size", "30", "--epochs", "1", "--target-epsilon", "8"]
    done = CliRunner().invoke(app, [*command, *options])
    assert done.exit_code == 0, done.output
    run = open_run(tmp_path / "run")
    assert run.config.method.to_dict()["clip"] == 0.1
    assert (run.config.lr, run.config.batch_size) == (4.0, 30)
    assert 0 < run.guarantee().epsilon <= 8
    model = run.load_model()
    # The network that its authors train on MNIST.
    assert [layer.out_channels for layer in model.head if isinstance(layer, torch.nn.Conv2d)] == [16, 32]
    images = torch.rand(3, 1, 16, 16, generator=torch.Generator().manual_seed(0)).mul(255).round().div(255)
    assert model(images).shape == (3, 10)
    assert not any(parameter.requires_grad for parameter in model.extractor.network(1, (16, 16)).parameters())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "dp-head", "model_args": {"head": "cnn", "reduction": "none"}}, "a DP head is linear"),
        ({"method": "dpsgd", "features": "scattering", "model_args": {"head": "deep"}}, "no head 'deep'"),
        ({"method": "dpsgd", "features": "scattering", "model_args": {"head": "cnn"}}, "reduction=none"),
    ],
)
def test_heads_that_do_not_fit_are_refused(settings: dict[str, object], message: str) -> None:
    from resperturb.training.network import check_network

    with pytest.raises(UsageError, match=message):
        check_network(make_config(data=DATA, **settings))


@pytest.mark.parametrize("name", recipes())
def test_a_recipe_follows_the_name_of_the_data_unless_one_is_named(name: str) -> None:
    by_name = {
        data: read_recipe(name, data)
        for data in ("mnist", "fashion-sample", "zalando-datasets/fashion_mnist", "cifar10", "./xrays")
    }
    assert by_name["fashion-sample"] == by_name["zalando-datasets/fashion_mnist"] == read_recipe(f"{name}:fashion")
    assert by_name["mnist"] == read_recipe(f"{name}:mnist", "cifar10")
    assert by_name["./xrays"] == by_name["cifar10"]
    rates = [by_name[data]["lr"] for data in ("mnist", "fashion-sample")]
    assert rates[0] != rates[1]
    for settings in by_name.values():
        assert make_config(data=DATA, **settings).method.to_dict()["target_epsilon"] == 3


def test_a_linear_recipe_trains_and_the_amount_of_noise_is_an_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RESPERTURB_CACHE", str(tmp_path / "cache"))
    command = ["train", "--data", "fashion-sample", "--limit", "60", "--image-size", "16", "--seeded-noise"]
    options = ["--recipe", "handcrafted-linear", "--batch-size", "30", "--epochs", "2", "--noise-multiplier", "0"]
    done = CliRunner().invoke(app, [*command, *options, "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    run = open_run(tmp_path / "run")
    assert (run.config.method.to_dict()["noise_multiplier"], run.config.lr) == (0, 63500)
    assert run.result.train_accuracy > 0.3


@pytest.mark.parametrize(
    ("name", "message"), [("magic", "known are handcrafted-cnn"), ("handcrafted-cnn:x", "mnist")]
)
def test_a_recipe_that_there_is_not_is_refused(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_recipe(name)
