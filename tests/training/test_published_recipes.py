"""Published recipes: settings by name, which options override, and the network that they need."""

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from resperturb.cli import app
from resperturb.errors import UsageError
from resperturb.training.config import make_config
from resperturb.training.recipes import read_recipe
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


def test_a_recipe_that_there_is_not_is_refused() -> None:
    with pytest.raises(UsageError, match="known are handcrafted-cnn"):
        read_recipe("magic")
