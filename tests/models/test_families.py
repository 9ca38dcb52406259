"""Stock networks of torchvision, timm and transformers: the noise is where the equation says, in one line."""

import ast
import copy
import math
from collections.abc import Callable
from types import MethodType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import resperturb as rp
from resperturb.errors import UsageError
from resperturb.noise.source import NoiseSource

torchvision = pytest.importorskip("torchvision")
timm = pytest.importorskip("timm")
transformers = pytest.importorskip("transformers")

# Adds a shortcut and a branch, with the noise of the strategy under test.
Noisy = Callable[[Tensor, Tensor], Tensor]


def torchvision_block(block: Any, x: Tensor, noisy: Noisy) -> Tensor:
    out = block.bn1(block.conv1(x)).relu()
    out = block.bn2(block.conv2(out))
    if hasattr(block, "conv3"):
        out = block.bn3(block.conv3(out.relu()))
    return noisy(x if block.downsample is None else block.downsample(x), out).relu()


def timm_resnet_block(block: Any, x: Tensor, noisy: Noisy) -> Tensor:
    out = block.bn2(block.conv2(block.bn1(block.conv1(x)).relu()))
    if hasattr(block, "conv3"):
        out = block.bn3(block.conv3(out.relu()))
    return noisy(x if block.downsample is None else block.downsample(x), out).relu()


def timm_resnetv2_block(block: Any, x: Tensor, noisy: Noisy) -> Tensor:
    active = block.norm1(x)
    out = block.conv2(block.norm2(block.conv1(active)))
    if hasattr(block, "conv3"):
        out = block.conv3(block.norm3(out))
    return noisy(x if block.downsample is None else block.downsample(active), out)


def timm_convnext_block(block: Any, x: Tensor, noisy: Noisy) -> Tensor:
    out = block.conv_dw(x)
    if block.use_conv_mlp:
        out = block.mlp(block.norm(out))
    else:
        out = block.mlp(block.norm(out.permute(0, 2, 3, 1))).permute(0, 3, 1, 2)
    if block.gamma is not None:
        out = out * block.gamma.reshape(1, -1, 1, 1)
    return noisy(block.shortcut(x), out)


def hf_resnet_block(block: Any, x: Tensor, noisy: Noisy) -> Tensor:
    return noisy(block.shortcut(x), block.layer(x)).relu()


def hf_convnext_block(block: Any, x: Tensor, noisy: Noisy) -> Tensor:
    out = block.layernorm(block.dwconv(x).permute(0, 2, 3, 1))
    out = block.layer_scale_parameter * block.pwconv2(F.gelu(block.pwconv1(out)))
    return noisy(x, out.permute(0, 3, 1, 2))


def hf_vit_block(block: Any, x: Tensor, noisy: Noisy) -> Tensor:
    attended = block.attention(block.layernorm_before(x))[0]
    x = noisy(x, attended)
    return noisy(x, block.mlp(block.layernorm_after(x)))


def vit(**options: Any) -> nn.Module:
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, image_size=32, patch_size=8,
        num_labels=3, **options,
    )  # fmt: skip
    return transformers.ViTForImageClassification(config)


def hf_resnet(**options: Any) -> nn.Module:
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 2], num_labels=3, **options)
    return transformers.ResNetForImageClassification(config)


def hf_convnext() -> nn.Module:
    config = transformers.ConvNextConfig(
        hidden_sizes=[8, 16], depths=[1, 2], num_stages=2, num_labels=3, layer_scale_init_value=0.5
    )
    return transformers.ConvNextForImageClassification(config)


def stock(name: str) -> Callable[[], nn.Module]:
    return lambda: getattr(torchvision.models, name)(num_classes=3)


def of_timm(name: str, **options: Any) -> Callable[[], nn.Module]:
    return lambda: timm.create_model(name, num_classes=3, **options)


Block = Callable[[Any, Tensor, Noisy], Tensor]
FAMILIES: dict[str, tuple[Callable[[], nn.Module], Block, int, str]] = {
    "torchvision resnet18": (stock("resnet18"), torchvision_block, 8, "layer1.0"),
    "torchvision resnet50": (stock("resnet50"), torchvision_block, 16, "layer1.0"),
    "torchvision wide_resnet50_2": (stock("wide_resnet50_2"), torchvision_block, 16, "layer1.0"),
    "torchvision resnext50": (stock("resnext50_32x4d"), torchvision_block, 16, "layer1.0"),
    "timm resnet": (of_timm("resnet10t"), timm_resnet_block, 4, "layer1.0"),
    "timm resnet, bottleneck": (of_timm("resnet14t"), timm_resnet_block, 4, "layer1.0"),
    "timm resnetv2": (of_timm("resnetv2_18"), timm_resnetv2_block, 8, "stages.0.blocks.0"),
    "timm resnetv2, bottleneck": (of_timm("resnetv2_50"), timm_resnetv2_block, 16, "stages.0.blocks.0"),
    "timm convnext": (of_timm("convnext_atto", ls_init_value=0.5), timm_convnext_block, 12, "stages.0.blocks.0"),
    "transformers ResNet": (hf_resnet, hf_resnet_block, 3, "resnet.encoder.stages.0.layers.0"),
    "transformers ResNet, basic": (
        lambda: hf_resnet(layer_type="basic"), hf_resnet_block, 3, "resnet.encoder.stages.0.layers.0",
    ),
    "transformers ConvNext": (hf_convnext, hf_convnext_block, 3, "convnext.encoder.stages.0.layers.0"),
    "transformers ViT": (vit, hf_vit_block, 4, "vit.layers.0:attention"),
}  # fmt: skip


def known_noise(like: Tensor) -> Tensor:
    return torch.linspace(-9, 9, like.numel()).reshape(like.shape).cos()


def logits(output: Any) -> Tensor:
    return getattr(output, "logits", output)


def by_hand(model: nn.Module, blocks: list[str], block: Block, noisy: Noisy) -> nn.Module:
    """The stock model with the forward pass of its blocks written out by hand."""
    model = copy.deepcopy(model)
    for name in blocks:
        module = model.get_submodule(name)
        module.forward = MethodType(lambda self, x, *args, **kwargs: block(self, x, noisy), module)
    return model


@pytest.mark.parametrize("family", FAMILIES)
def test_the_output_is_the_one_computed_by_hand(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resperturb.noise.source._is_readable", lambda *tensors: False)  # draw apart from the sum
    monkeypatch.setattr(NoiseSource, "normal", lambda self, like, training: known_noise(like))
    make, block, count, first = FAMILIES[family]
    torch.manual_seed(0)
    model = make().eval()
    x = torch.randn(2, 3, 32, 32)
    found = rp.junctions(model)
    assert len(found) == count
    assert found[0].name == first
    blocks = list(dict.fromkeys(junction.name.partition(":")[0] for junction in found))

    def additive(shortcut: Tensor, branch: Tensor) -> Tensor:
        return shortcut + branch + 0.5 * known_noise(shortcut)

    def multiplicative(shortcut: Tensor, branch: Tensor) -> Tensor:
        return shortcut + branch + 0.5 * shortcut * known_noise(shortcut)

    with torch.no_grad():
        clean = logits(model(x))
        expected = logits(by_hand(model, blocks, block, additive)(x + 0.25 * known_noise(x)))
        perturbed = rp.perturb(copy.deepcopy(model), rp.Additive(gamma=0.5))
        torch.testing.assert_close(logits(perturbed(x)), expected, rtol=1e-4, atol=1e-4)
        assert not torch.allclose(expected, clean)
        expected = logits(by_hand(model, blocks, block, multiplicative)(x))
        perturbed = rp.perturb(copy.deepcopy(model), rp.Multiplicative(gamma=0.5))
        torch.testing.assert_close(logits(perturbed(x)), expected, rtol=1e-4, atol=1e-4)
        assert not torch.allclose(expected, clean)
        assert logits(model(x)).equal(clean), "the model that is not perturbed changed"


@pytest.mark.parametrize("family", ["torchvision resnet18", "timm convnext", "transformers ViT"])
def test_nothing_else_changes(family: str) -> None:
    model = FAMILIES[family][0]()
    other = copy.deepcopy(model)
    kinds = [type(module).__qualname__ for module in model.modules()]
    x = torch.randn(2, 3, 32, 32)
    rp.perturb(model, rp.Additive(gamma=0.5))
    assert [type(module).__qualname__ for module in model.modules()] == kinds
    assert list(model.state_dict()) == list(other.state_dict())
    assert [n for n, _ in model.named_parameters()] == [n for n, _ in other.named_parameters()]
    model.load_state_dict(other.state_dict())  # pretrained weights
    with rp.noise_off(model):
        assert logits(model.eval()(x)).equal(logits(other.eval()(x)))
    outputs = [logits(model(x)), logits(model(x)), logits(copy.deepcopy(model)(x)), logits(model.train()(x))]
    assert len(torch.stack([output.flatten()[0] for output in outputs]).unique()) == 4


@pytest.mark.parametrize(
    ("name", "count"),
    [("mobilenet_v2", 10), ("efficientnet_b0", 9), ("convnext_tiny", 18), ("vit_b_16", 24), ("swin_t", 24)],
)
def test_other_stock_networks_of_torchvision_are_understood(name: str, count: int) -> None:
    with torch.device("meta"):
        assert len(rp.junctions(getattr(torchvision.models, name)())) == count


@pytest.mark.parametrize(
    ("name", "count"),
    [("vit_tiny_patch16_224", 24), ("seresnet18", 8), ("mixer_s16_224", 16), ("nfnet_f0", 12), ("regnetx_002", 13)],
)
def test_other_stock_networks_of_timm_are_understood(name: str, count: int) -> None:
    with torch.device("meta"):
        assert len(rp.junctions(timm.create_model(name))) == count


def test_stock_networks_without_junctions_or_with_others_are_refused() -> None:
    with torch.device("meta"):
        for model in (torchvision.models.vgg11(), torchvision.models.densenet121()):
            with pytest.raises(UsageError, match="no residual junction"):
                rp.perturb(model, rp.Additive(gamma=0.5))


@pytest.mark.parametrize(
    ("name", "count"),
    [("repvgg_a0", 17), ("repvit_m1", 49), ("levit_128s", 20), ("efficientformer_l1", 30), ("fastvit_t8", 34),
     ("botnet26t_256", 8), ("halonet26t", 8), ("coat_lite_tiny", 20), ("ghostnet_050", 16)],
)  # fmt: skip
def test_parallel_layers_two_heads_and_position_terms_are_known_to_be_no_junctions(name: str, count: int) -> None:
    with torch.device("meta"):
        model = timm.create_model(name)
    rp.perturb(model, rp.Additive(gamma=0.5))
    assert len([junction for junction in rp.junctions(model) if junction.noise is not None]) == count


@pytest.mark.parametrize(("name", "count"), [("hrnet_w18_small", 23), ("coat_tiny", 56)])
def test_the_error_of_a_refused_family_names_targets_that_work(name: str, count: int) -> None:
    with torch.device("meta"):
        model = timm.create_model(name)
    with pytest.raises(UsageError, match=r"not understood:\n(.|\n)*targets=") as raised:
        rp.perturb(model, rp.Additive(gamma=0.5))
    rp.perturb(model, rp.Additive(gamma=0.5), targets=ast.literal_eval(str(raised.value).rpartition("targets=")[2]))
    assert len([junction for junction in rp.junctions(model) if junction.noise is not None]) == count


@pytest.mark.parametrize("targets", [["layer3.*", "layer4.1"], "layer3.*"])
def test_targets_choose_among_stock_junctions(targets: list[str] | str) -> None:
    model = rp.perturb(stock("resnet18")(), rp.Additive(gamma=0.5), targets=targets)
    noisy = [junction.name for junction in rp.junctions(model) if junction.noise is not None]
    assert noisy == ["layer3.0", "layer3.1"] + (["layer4.1"] if isinstance(targets, list) else [])


def test_the_noise_of_a_stock_network_has_the_right_size() -> None:
    model = stock("resnet18")().eval()
    block = model.get_submodule("layer1.1")
    rp.perturb(model, rp.Additive(gamma=0.5, input_std=0.0))
    nn.init.zeros_(block.bn2.weight)  # the branch is 0, and a large shortcut keeps the sum from the activation's zero
    with torch.no_grad():
        noise = block(torch.full((4, 64, 32, 32), 100.0)) - 100
    assert noise.mean().abs().item() < 5 * 0.5 / math.sqrt(noise.numel())
    assert noise.std().item() == pytest.approx(0.5, rel=5 / math.sqrt(2 * noise.numel()))


@pytest.mark.parametrize("reentrant", [True, False])
def test_gradient_checkpointing_of_transformers_sees_the_same_draw(reentrant: bool) -> None:
    model = rp.perturb(vit(), rp.Multiplicative(gamma=0.5)).train()
    x = torch.randn(2, 3, 32, 32)

    def gradient() -> Tensor:
        model.zero_grad()
        torch.manual_seed(3)
        logits(model(x)).square().sum().backward()
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    plain = gradient()
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    model.enable_input_require_grads() if reentrant else None
    torch.testing.assert_close(gradient(), plain)
