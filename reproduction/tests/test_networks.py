"""The variants of ResNet8: as large as it, their noise where they say."""

from pathlib import Path

import pytest
import torch
from resperturb_reproduction import networks
from resperturb_reproduction.reproduce.declarations import Cell
from resperturb_reproduction.reproduce.plan import target_config
from resperturb_reproduction.reproduce.presets import Scale

from resperturb.models import build
from resperturb.perturbation import Additive, junctions, noise_off, perturb
from resperturb.training import open_run, train

NAMES = ("inside_resnet8", "post_activation_resnet8")


@pytest.mark.parametrize("name", NAMES)
def test_it_is_built_by_name_about_as_large_as_a_resnet8(name: str) -> None:
    sizes = [
        sum(p.numel() for p in build(network, num_classes=10).parameters())
        for network in (f"resperturb_reproduction.networks:{name}", "resnet8")
    ]
    assert sizes[0] == pytest.approx(sizes[1], rel=0.01)


@pytest.mark.parametrize("name", NAMES)
def test_each_block_has_one_junction_and_noise_changes_the_answer(name: str) -> None:
    model = perturb(getattr(networks, name)(num_classes=10), Additive(1.0), seed=0).eval()
    assert len(junctions(model)) == 3
    x = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    with noise_off(model):
        quiet = model(x)
    assert not model(x).equal(quiet)


def test_noise_inside_the_branch_leaves_the_shortcut_alone() -> None:
    block = networks.InsideBlock(16, 16, 1).train()
    x = torch.randn(4, 16, 8, 8, generator=torch.Generator().manual_seed(0))
    noisy = perturb(torch.nn.Sequential(block), Additive(1000.0, input_std=0.0), seed=0)
    # BatchNorm divides by the scale of the noise: however large, what reaches the sum is not.
    assert float((noisy(x) - x).detach().abs().max()) < 20


def test_noise_on_a_post_activation_sum_is_as_large_as_gamma() -> None:
    block = networks.PostActivationBlock(16, 16, 1).train()
    x = torch.randn(4, 16, 8, 8, generator=torch.Generator().manual_seed(0))
    noisy = perturb(torch.nn.Sequential(block), Additive(1000.0, input_std=0.0), seed=0)
    assert float(noisy(x).detach().max()) > 2000


@pytest.mark.parametrize("name", NAMES)
def test_it_is_trained_as_a_resnet8_is_and_read_back(name: str, tmp_path: Path) -> None:
    scale = Scale("fashion-sample", 1, 1, limit=80, batch_size=20)
    networks_of = {
        network: target_config(Cell("cifar10", additive=0.5, network=network), scale, seed=0)
        for network in ("", name.removesuffix("_resnet8"))
    }
    standard, other = (config.model_dump(exclude={"model", "network_fingerprint"}) for config in networks_of.values())
    assert other == standard
    run = train(networks_of[name.removesuffix("_resnet8")], runs=tmp_path)
    assert len(junctions(open_run(run.path).load_model())) == 3
