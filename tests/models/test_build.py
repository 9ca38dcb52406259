"""The paper's networks."""

import math

import pytest
import torch
from torch import nn

import resperturb as rp
from resperturb.errors import UsageError
from resperturb.models import Ensemble, ResNet


@pytest.mark.parametrize("depth", [8, 14, 20, 32, 44, 56, 110])
def test_a_resnet_has_6n_plus_2_layers(depth: int) -> None:
    model = rp.models.build(f"resnet{depth}", num_classes=10)
    convolutions = [m for m in model.modules() if isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3)]
    assert len(convolutions) + 1 == depth  # and one linear layer; shortcuts are 1x1
    assert len(rp.junctions(model)) == (depth - 2) // 2
    assert sorted({c.out_channels for c in convolutions}) == [16, 32, 64]


@pytest.mark.parametrize("size", [16, 17, 28, 32, 50, 96])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_any_image_size_and_number_of_channels(size: int, channels: int) -> None:
    model = rp.models.build("resnet8", num_classes=7, in_channels=channels).eval()
    assert model(torch.zeros(2, channels, size, size)).shape == (2, 7)


def test_convolutions_are_he_initialised() -> None:
    torch.manual_seed(0)
    model = rp.models.build("resnet20", num_classes=10)
    for module in model.modules():
        if isinstance(module, nn.Conv2d) and module.weight.numel() > 2000:
            fan_out = module.out_channels * math.prod(module.kernel_size)
            n = module.weight.numel()
            assert module.weight.var().item() == pytest.approx(2 / fan_out, rel=5 * math.sqrt(2 / n))


def test_group_norm_leaves_no_batch_statistics() -> None:
    model = rp.models.build("resnet8", num_classes=10, norm="group")
    assert not any(isinstance(m, nn.BatchNorm2d) for m in model.modules())
    x = torch.randn(4, 3, 16, 16)
    torch.testing.assert_close(model(x)[:1], model(x[:1]))  # an example's output does not depend on the batch


def test_without_skips_there_is_no_identity_path() -> None:
    with_skip = rp.models.build("resnet8", num_classes=10)
    without = rp.models.build("resnet8", num_classes=10, skip=False)
    for model, survives in ((with_skip, True), (without, False)):
        assert isinstance(model, ResNet)
        block = model.blocks[0]
        nn.init.zeros_(block.conv2.weight)
        x = torch.randn(2, 16, 8, 8)
        assert block(x).equal(x if survives else torch.zeros_like(x))
    assert not any("shortcut" in name for name, _ in without.named_parameters())
    rp.perturb(without, rp.Additive(gamma=0.5))
    assert not without(torch.zeros(2, 3, 16, 16)).equal(without(torch.zeros(2, 3, 16, 16)))


def test_an_ensemble_averages_logits_of_networks_that_differ() -> None:
    model = rp.models.build("en3-resnet8", num_classes=5).eval()
    assert isinstance(model, Ensemble)
    x = torch.randn(2, 3, 16, 16)
    networks = [network(x) for network in model.networks]
    torch.testing.assert_close(model(x), torch.stack(networks).mean(0))
    assert not torch.isclose(networks[0], networks[1]).any()


def test_building_follows_torchs_seed() -> None:
    def weights() -> torch.Tensor:
        torch.manual_seed(3)
        return rp.models.build("resnet8", num_classes=10).stem.weight

    assert weights().equal(weights())


@pytest.mark.parametrize(
    "request_",
    [
        {"name": "resnet9"},
        {"name": "resnet"},
        {"name": "en0-resnet8"},
        {"name": "vgg"},
        {"name": 8},
        {"name": "resnet8", "norm": "layer"},
        {"name": "resnet8", "num_classes": 1},
        {"name": "resnet8", "in_channels": 0},
    ],
)
def test_wrong_requests_are_refused(request_: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        rp.models.build(**{"num_classes": 10, **request_})  # type: ignore[arg-type]
