"""Gradients of single records equal Opacus's up to rounding, and so do the steps of DP-SGD."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from opacus.grad_sample import GradSampleModule
from opacus.optimizers import DPOptimizer
from torch import Tensor, nn

import resperturb as rp
from resperturb.errors import UsageError
from resperturb.training.grad_sample import grad_sample_hooks

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing")


def opacus_hooks(model: nn.Module) -> GradSampleModule:
    return GradSampleModule(model, loss_reduction="sum")


def gradients(make: Callable[[], nn.Module], hooks: Callable[[nn.Module], Any], x: Tensor) -> dict[str, Tensor]:
    torch.manual_seed(0)
    model = make().train()
    wrapper = hooks(model)
    torch.manual_seed(1)
    model(x).square().sum().backward()
    assert wrapper is not None
    assert all(p.requires_grad for p in model.parameters())
    return {name: p.grad_sample for name, p in model.named_parameters()}


@pytest.mark.parametrize(
    "options",
    [
        {"padding": 1},
        {"stride": 2, "padding": 1, "bias": False},
        {"dilation": 2},
        {"groups": 2, "padding": (1, 0), "stride": (2, 1)},
        {"padding": "same"},
        {"padding": 1, "padding_mode": "circular"},
    ],
    ids=str,
)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_convolution_has_the_gradients_of_its_records_one_by_one(
    options: dict[str, Any], layout: torch.memory_format
) -> None:
    def make() -> nn.Module:
        # The second one's input has a gradient, so that its own batch gradient is left out.
        layers = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 6, 3, **options))
        return layers.to(memory_format=layout)  # type: ignore[call-overload,no-any-return]

    x = torch.randn(5, 3, 9, 8).to(memory_format=layout)
    found = gradients(make, grad_sample_hooks, x)
    torch.manual_seed(0)
    model = make()
    for i in range(len(x)):
        expected = torch.autograd.grad(model(x[i : i + 1]).square().sum(), list(model.parameters()))
        for (name, _), value in zip(model.named_parameters(), expected, strict=True):
            torch.testing.assert_close(found[name][i], value, rtol=1e-4, atol=1e-4, check_stride=False)
    if layout == torch.contiguous_format and "padding_mode" not in options:
        torch.testing.assert_close(found, gradients(make, opacus_hooks, x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("strategy", [None, rp.Additive(0.5), rp.Multiplicative(0.5)])
def test_a_network_has_opacus_gradients_with_and_without_noise(strategy: rp.Additive | None) -> None:
    def make() -> nn.Module:
        model = rp.models.build("resnet8", num_classes=4, norm="group")
        return model if strategy is None else rp.perturb(model, strategy)

    x = torch.randn(6, 3, 16, 16)
    expected = gradients(make, opacus_hooks, x)
    scale = max(float(value.abs().max()) for value in expected.values())
    torch.testing.assert_close(
        gradients(make, grad_sample_hooks, x), expected, rtol=1e-4, atol=1e-5 * scale, check_stride=False
    )


def test_a_step_clips_and_noises_as_with_opacus() -> None:
    x, y = torch.randn(6, 3, 16, 16), torch.randint(0, 4, (6,))

    def weights(hooks: Callable[[nn.Module], Any]) -> dict[str, Tensor]:
        torch.manual_seed(0)
        model = rp.models.build("resnet8", num_classes=4, norm="group").train()
        wrapper = hooks(model)
        optimizer = DPOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.5),
            noise_multiplier=1.1,
            max_grad_norm=0.5,
            expected_batch_size=6,
            generator=torch.Generator().manual_seed(3),
        )
        F.cross_entropy(model(x), y, reduction="sum").backward()
        norms = torch.stack([p.grad_sample.flatten(1).norm(dim=1) for p in model.parameters()]).norm(dim=0)
        assert (norms > 0.5).all()  # every record is clipped
        optimizer.step()
        assert wrapper is not None
        return {name: p.detach() for name, p in model.named_parameters()}

    torch.testing.assert_close(weights(grad_sample_hooks), weights(opacus_hooks), rtol=1e-4, atol=1e-5)


def test_a_forward_pass_that_fails_leaves_the_weights_to_be_trained() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 2, 3))
    grad_sample_hooks(model)
    with pytest.raises(RuntimeError, match="Kernel size"):
        model(torch.zeros(1, 3, 2, 2))
    assert all(p.requires_grad for p in model.parameters())


def test_weights_that_are_frozen_stay_frozen() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 2, 1))
    model[1].weight.requires_grad_(False)
    grad_sample_hooks(model)
    model(torch.zeros(1, 3, 2, 2)).sum().backward()
    assert not model[1].weight.requires_grad
    assert not hasattr(model[1].weight, "grad_sample")


class _InPlace(nn.Module):
    """Adds in place, as the blocks of torchvision and timm do; or overwrites a layer's input."""

    def __init__(self, spoilt: bool = False) -> None:
        super().__init__()
        self.first, self.second, self.norm = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 3, padding=1), nn.GroupNorm(2, 4)
        self.spoilt = spoilt

    def forward(self, x: Tensor) -> Tensor:
        identity = self.first(x)
        hidden = identity * 2
        out: Tensor = self.norm(self.second(hidden))
        if self.spoilt:
            hidden += 1
        out += identity
        return out


def test_a_sum_in_place_behind_a_layer_is_no_obstacle() -> None:
    x = torch.randn(3, 3, 5, 5)
    found = gradients(_InPlace, grad_sample_hooks, x)
    torch.manual_seed(0)
    model = _InPlace()
    for i in range(len(x)):
        expected = torch.autograd.grad(model(x[i : i + 1]).square().sum(), list(model.parameters()))
        for (name, _), gradient in zip(model.named_parameters(), expected, strict=True):
            torch.testing.assert_close(found[name][i], gradient, msg=name)


def test_a_layer_whose_input_is_overwritten_later_is_refused() -> None:
    with pytest.raises(UsageError, match="what a Conv2d was given is overwritten"):
        gradients(lambda: _InPlace(spoilt=True), grad_sample_hooks, torch.randn(3, 3, 5, 5))
