"""Weights on disk carry their noise; a file that is not understood changes nothing."""

import json
import pickle
import re
import resource
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import resperturb as rp
from resperturb.errors import ResperturbError, UsageError
from resperturb.files import SEAL, sealed
from resperturb.perturbation.perturb import perturbation_record, perturbed_junctions

STRATEGY = rp.Additive(gamma=0.5, clip_radius=30.0)


def fresh() -> nn.Module:
    return rp.models.build("resnet8", num_classes=3, in_channels=1)


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return list(one) == list(other) and all(one[name].equal(other[name]) for name in one)


@pytest.fixture
def saved(tmp_path: Path) -> tuple[nn.Module, Path]:
    model = rp.perturb(fresh(), STRATEGY)
    rp.save(model, tmp_path / "model.safetensors")
    return model, tmp_path / "model.safetensors"


@pytest.mark.parametrize("strategy", [STRATEGY, rp.Multiplicative(gamma=1.0, floor=0.1), None])
def test_a_bare_model_gets_the_weights_and_the_noise(
    strategy: rp.Additive | rp.Multiplicative | None, tmp_path: Path
) -> None:
    model = fresh() if strategy is None else rp.perturb(fresh(), strategy)
    path = tmp_path / "model.safetensors"
    rp.save(model, path)
    for source in (fresh(), fresh):
        loaded = rp.load(source, path).eval()
        assert same(weights(loaded), weights(model))
        assert rp.strategy_of(loaded) == strategy
        x = torch.ones(1, 1, 16, 16)
        assert loaded(x).equal(loaded(x)) == (strategy is None)


def test_only_the_targets_get_their_noise_back(tmp_path: Path) -> None:
    rp.save(rp.perturb(fresh(), STRATEGY, targets=["blocks.0", "blocks.2"]), tmp_path / "model")
    assert perturbed_junctions(rp.load(fresh, tmp_path / "model")) == ["blocks.0", "blocks.2"]


def test_a_perturbed_model_must_be_perturbed_as_the_file_says(saved: tuple[nn.Module, Path]) -> None:
    model, path = saved
    assert same(weights(rp.load(rp.perturb(fresh(), STRATEGY), path)), weights(model))
    other = rp.perturb(fresh(), rp.Additive(gamma=0.1))
    before = weights(other)
    with pytest.raises(UsageError, match="override="):
        rp.load(other, path)
    assert same(weights(other), before)
    assert rp.strategy_of(rp.load(other, path, override=rp.Additive(gamma=0.1))) == rp.Additive(gamma=0.1)
    assert same(weights(other), weights(model))


def test_override_takes_the_place_of_the_files_strategy(saved: tuple[nn.Module, Path]) -> None:
    stronger = rp.Multiplicative(gamma=3.0)
    assert rp.strategy_of(rp.load(fresh, saved[1], override=stronger)) == stronger
    with pytest.raises(UsageError, match="override"):
        rp.load(fresh, saved[1], override="none")  # type: ignore[arg-type]


def test_a_perturbed_model_does_not_take_unperturbed_weights(tmp_path: Path) -> None:
    rp.save(fresh(), tmp_path / "plain")
    with pytest.raises(UsageError, match="none"):
        rp.load(rp.perturb(fresh(), STRATEGY), tmp_path / "plain")


def test_equal_models_give_equal_files_under_the_models_own_names(saved: tuple[nn.Module, Path]) -> None:
    model, path = saved
    again = path.with_name("again")
    rp.save(nn.DataParallel(model), again)
    assert again.read_bytes() == path.read_bytes()
    assert load_file(path).keys() == model.state_dict().keys()


def test_tied_weights_are_saved_and_loaded(tmp_path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = nn.Linear(3, 3), nn.Linear(3, 3)
            self.other.weight = self.one.weight

        def forward(self, x: Tensor) -> Tensor:
            return x + self.other(torch.relu(self.one(x)))

    model = rp.perturb(Tied(), STRATEGY)
    rp.save(model, tmp_path / "model")
    loaded = rp.load(Tied, tmp_path / "model")
    assert same(weights(loaded), weights(model))
    assert loaded.one.weight is loaded.other.weight


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(Path(__file__).parent / "was-executed"), "w")


def write_pickle(path: Path) -> None:
    path.write_bytes(pickle.dumps(Evil(), protocol=4))


def write_zip(path: Path) -> None:
    torch.save({"weight": torch.zeros(2), "evil": Evil()}, path)


def rewrite_record(path: Path, **changes: object) -> None:
    record = {**perturbation_record(rp.perturb(fresh(), STRATEGY)), **changes}
    save_file(load_file(path), path, {"resperturb": json.dumps(record)})


def drop_a_weight(path: Path) -> None:
    model = rp.perturb(fresh(), STRATEGY)
    tensors = load_file(path)
    del tensors["stem.weight"]
    save_file(tensors, path, {"resperturb": json.dumps(perturbation_record(model))})


def add_a_weight(path: Path) -> None:
    tensors = {**load_file(path), "foreign": torch.zeros(2)}
    save_file(tensors, path, {"resperturb": json.dumps(perturbation_record(rp.perturb(fresh(), STRATEGY)))})


def reshape_a_weight(path: Path) -> None:
    tensors = {**load_file(path), "head.bias": torch.zeros(99)}
    save_file(tensors, path, {"resperturb": json.dumps(perturbation_record(rp.perturb(fresh(), STRATEGY)))})


DAMAGES = {
    "nothing there": (lambda p: p.unlink(), "no file"),
    "empty": (lambda p: p.write_bytes(b""), "whole safetensors"),
    "cut in the header": (lambda p: p.write_bytes(p.read_bytes()[:100]), "whole safetensors"),
    "cut at the end": (lambda p: p.write_bytes(p.read_bytes()[:-1]), "whole safetensors"),
    "text": (lambda p: p.write_text("gamma = 0.5, and then some more text"), "whole safetensors"),
    "a pickle": (write_pickle, "pickle"),
    "torch.save": (write_zip, "pickle"),
    "no record": (lambda p: save_file(load_file(p), p), "does not say"),
    "a record that is no JSON": (lambda p: save_file(load_file(p), p, {"resperturb": "{"}), "damaged"),
    "a record that is a list": (lambda p: save_file(load_file(p), p, {"resperturb": "[1]"}), "damaged"),
    "a record without fields": (lambda p: save_file(load_file(p), p, {"resperturb": '{"schema": 1}'}), "damaged"),
    "another schema": (lambda p: rewrite_record(p, schema=2), "schema 2"),
    "an unknown strategy": (
        lambda p: rewrite_record(p, strategy={"name": "other"}),
        r"model.* cannot apply: unknown strategy",
    ),
    "a wrong strategy": (
        lambda p: rewrite_record(p, strategy={"name": "additive", "gamma": -1}),
        "model.* cannot apply: .*gamma",
    ),
    "unknown junctions": (lambda p: rewrite_record(p, junctions=["blocks.9"]), "blocks.9"),
    "a missing weight": (drop_a_weight, "lacks weights of ResNet: stem.weight"),
    "a foreign weight": (add_a_weight, "ResNet lacks: foreign"),
    "a weight of another shape": (reshape_a_weight, r"head.bias is \(99,\)"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file_that_is_not_understood_is_refused_and_changes_nothing(
    damage: str, saved: tuple[nn.Module, Path]
) -> None:
    _, path = saved
    apply, message = DAMAGES[damage]
    apply(path)  # type: ignore[operator]
    model = fresh()
    before = weights(model)
    with pytest.raises(UsageError, match=message):
        rp.load(model, path)
    assert same(weights(model), before)
    assert rp.strategy_of(model) is None
    assert not (Path(__file__).parent / "was-executed").exists()


def test_a_header_whose_length_looks_like_a_pickle_is_read(saved: tuple[nn.Module, Path]) -> None:
    model, path = saved
    original = re.sub(rb"sha256:\w{64}", SEAL.encode(), path.read_bytes())
    # Spaces at the end of the header change nothing but its length, whose bytes begin as a pickle does.
    length = int.from_bytes(original[:8], "little")
    header, rest = original[8 : 8 + length], original[8 + length :]
    padded = (length // 256 + 1) * 256 + 0x80
    path.write_bytes(sealed(padded.to_bytes(8, "little") + header.ljust(padded) + rest))
    assert path.read_bytes().startswith(b"\x80")
    assert same(weights(rp.load(fresh, path)), weights(model))


def test_the_previous_file_survives_a_save_that_fails(saved: tuple[nn.Module, Path]) -> None:
    model, path = saved
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))  # as if the disk were full
        with pytest.raises(ResperturbError, match="could not write"):
            rp.save(model, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="folder"):
        rp.save(fresh(), tmp_path)
    with pytest.raises(UsageError, match=r"config\.json"):
        rp.load(fresh(), tmp_path)


def test_a_function_that_returns_no_model_is_refused(saved: tuple[nn.Module, Path]) -> None:
    with pytest.raises(UsageError, match="function that returns one"):
        rp.load(lambda: 3, saved[1])  # type: ignore[type-var, arg-type, return-value]


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    model = rp.perturb(rp.models.build("resnet8", num_classes=2), rp.Additive(gamma=0.5))
    path = tmp_path / "model.safetensors"
    rp.save(model, path)
    content = path.read_bytes()
    header = 8 + int.from_bytes(content[:8], "little")
    record = content.index(b"__metadata__")
    for position in (*range(record, record + 400, 9), *range(header, len(content), len(content) // 40)):
        flipped = bytearray(content)
        flipped[position] ^= 1 << position % 8
        path.write_bytes(flipped)
        with pytest.raises(ResperturbError, match=re.escape(str(path))):
            rp.load(rp.models.build("resnet8", num_classes=2), path)
    path.write_bytes(content)
    rp.load(rp.models.build("resnet8", num_classes=2), path)


def test_a_wrapped_model_is_saved_as_the_network_inside(tmp_path: Path) -> None:
    from lightning_fabric import Fabric
    from torch.optim.swa_utils import AveragedModel

    model = rp.perturb(fresh(), STRATEGY)
    averaged = AveragedModel(model)
    fabric = Fabric(accelerator="cpu", devices=1).setup_module(model)
    compiled = (torch.compile(model), torch.compile(averaged))
    for around in (averaged, *compiled, nn.DataParallel(model), fabric):
        rp.save(around, tmp_path / "model.safetensors")
        loaded = rp.load(fresh(), tmp_path / "model.safetensors").eval()
        assert same(weights(loaded), weights(model))
        assert rp.strategy_of(loaded) == STRATEGY


def test_a_model_in_opacus_wrapper_is_saved_as_the_network_inside(tmp_path: Path) -> None:
    from opacus import GradSampleModule

    def make() -> nn.Module:
        return rp.models.build("resnet8", num_classes=3, in_channels=1, norm="group")

    model = rp.perturb(make(), STRATEGY)
    rp.save(GradSampleModule(model), tmp_path / "model.safetensors")
    assert same(weights(rp.load(make(), tmp_path / "model.safetensors")), weights(model))


def test_a_wrapper_inside_a_model_is_not_saved_under_its_names(tmp_path: Path) -> None:
    from torch.optim.swa_utils import AveragedModel

    model = nn.Sequential(AveragedModel(rp.perturb(fresh(), STRATEGY)))
    with pytest.raises(UsageError, match="save the network inside"):
        rp.save(model, tmp_path / "model.safetensors")
    assert not (tmp_path / "model.safetensors").exists()
