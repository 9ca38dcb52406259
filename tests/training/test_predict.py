"""Many draws average the noise away, and measurements can be repeated."""

import importlib

import pytest
import torch

from resperturb import models
from resperturb.perturbation import Additive, noise_off, perturb
from resperturb.training.predict import normalize, predict, predict_draws

predicting = importlib.import_module("resperturb.training.predict")  # the function has the module's name
SCALE = {"mean": 0.5, "std": 0.25}


@pytest.fixture
def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return perturb(models.build("resnet8", num_classes=4, in_channels=1), Additive(0.5)).eval()


@pytest.fixture
def images() -> torch.Tensor:
    return torch.randint(0, 256, (64, 1, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_pixels_are_mapped_to_the_scale_of_the_model() -> None:
    assert normalize(torch.tensor([0, 51, 255], dtype=torch.uint8), 0.5, 0.25).tolist() == pytest.approx(
        [-2, -1.2, 2]
    )


def test_a_seed_repeats_the_predictions_and_no_seed_does_not(model: torch.nn.Module, images: torch.Tensor) -> None:
    assert predict(model, images, seed=1, **SCALE).equal(predict(model, images, seed=1, **SCALE))
    assert not predict(model, images, seed=1, **SCALE).equal(predict(model, images, seed=2, **SCALE))
    torch.manual_seed(3)
    first = predict(model, images, **SCALE)
    torch.manual_seed(3)
    assert not first.equal(predict(model, images, **SCALE))


def test_k_draws_shrink_the_noise_by_the_root_of_k(model: torch.nn.Module, images: torch.Tensor) -> None:
    def spread(draws: int) -> float:
        answers = torch.stack([predict(model, images, draws=draws, seed=s, **SCALE) for s in range(24)])
        return float(answers.var(dim=0).mean())

    # 64 images x 4 logits x 23 degrees of freedom: the ratio's standard error is a few percent.
    assert spread(1) / spread(9) == pytest.approx(9, rel=0.25)


def test_predictions_do_not_depend_on_how_images_are_batched(model: torch.nn.Module, images: torch.Tensor) -> None:
    with noise_off(model):
        one = predict(model, images, batch_size=64, **SCALE)
        other = predict(model, images, batch_size=7, **SCALE)
    assert torch.allclose(one, other, atol=1e-5)


def test_predicting_leaves_a_model_in_its_mode(model: torch.nn.Module, images: torch.Tensor) -> None:
    model.train()
    predict(model, images, **SCALE)
    assert model.training


def test_draws_of_a_batch_are_computed_together_and_differ(model: torch.nn.Module, images: torch.Tensor) -> None:
    draws = list(predict_draws(model, images, draws=3, batch_size=24, seed=1, **SCALE))
    assert [draw.shape for draw in draws] == [torch.Size([64, 4])] * 3
    assert not (draws[0] == draws[1]).all(dim=1).any()
    assert not (draws[0] == draws[2]).all(dim=1).any()
    assert (
        torch.stack(draws)
        .mean(dim=0)
        .allclose(predict(model, images, draws=3, batch_size=24, seed=1, **SCALE), atol=1e-5)
    )


def test_more_draws_than_fit_into_one_call(
    model: torch.nn.Module, images: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predicting, "DRAWS_AT_ONCE", 2)
    draws = list(predict_draws(model, images, draws=5, seed=1, **SCALE))
    assert len(torch.stack(draws)[:, 0].unique(dim=0)) == 5
