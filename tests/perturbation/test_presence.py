"""Noise removed from a model is noticed by ``strategy_of`` where it can be seen, and by ``verify_noise``."""

import copy
import io
import math
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import resperturb as rp
from resperturb.errors import UsageError
from resperturb.perturbation import NoiseLostError
from resperturb.perturbation.junctions import HasJunction, join


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.f = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 32))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.f(x)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(16, 32)
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.Linear(32, 4)

    def forward_features(self, x: Tensor) -> Tensor:
        return self.blocks(self.stem(x))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.forward_features(x))

    def reset_classifier(self, classes: int) -> None:
        """As networks of timm do."""
        self.head = nn.Linear(32, classes)


X = torch.randn(64, 16, generator=torch.Generator().manual_seed(0))
ADDITIVE = rp.Additive(gamma=0.5)
OUTPUT = rp.Multiplicative(gamma=0.5, output_std=0.1)


def perturbed(strategy: Any) -> Net:
    return rp.perturb(Net(), strategy).eval()


# What is there is found to be there


@pytest.mark.parametrize(
    ("strategy", "kinds"),
    [
        (ADDITIVE, ["input", "junction", "junction"]),
        (rp.Additive(gamma=0.5, input_std=0.0), ["junction", "junction"]),
        (rp.Additive(gamma=0.5, clip_radius=1.0, scale="batch_std"), ["input", "junction", "junction"]),
        (rp.Additive(gamma=0.0, input_std=0.5), ["input"]),
        (OUTPUT, ["junction", "junction", "output"]),
        (rp.Multiplicative(gamma=0.5, floor=0.3), ["junction", "junction"]),
    ],
)
@pytest.mark.parametrize("training", [True, False])
def test_noise_that_is_there_is_measured_with_its_variance(strategy: Any, kinds: list[str], training: bool) -> None:
    model = perturbed(strategy).train(training)
    found = rp.verify_noise(model, X)
    assert found.ok, found.problems
    found.require()
    assert found.strategy == strategy
    assert [place.kind for place in found.places] == kinds
    for place in found.places:
        assert place.std == pytest.approx(1.0, abs=5 / math.sqrt(2 * place.elements))


def test_measuring_leaves_the_model_as_it_was() -> None:
    model = nn.Sequential(nn.BatchNorm1d(16), Net())
    rp.perturb(model, rp.Additive(gamma=0.5, clip_radius=1.0), seed=3)
    model[1].eval()
    state, random = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    modes = [module.training for module in model.modules()]
    hooks = [len(module._forward_pre_hooks) + len(module._forward_hooks) for module in model.modules()]
    assert rp.verify_noise(model, X).ok
    assert all(state[name].equal(value) for name, value in model.state_dict().items())
    assert torch.get_rng_state().equal(random)
    assert modes == [module.training for module in model.modules()]
    assert hooks == [len(module._forward_pre_hooks) + len(module._forward_hooks) for module in model.modules()]
    fresh = nn.Sequential(nn.BatchNorm1d(16), Net())
    fresh.load_state_dict(rp.perturb(fresh, rp.Additive(gamma=0.5, clip_radius=1.0), seed=3).state_dict())
    fresh.load_state_dict(state)
    assert model.eval()(X).equal(fresh.eval()(X)), "the seeded noise goes on where it was"


def test_every_network_of_an_ensemble_and_a_model_inside_another_is_measured() -> None:
    ensemble = rp.perturb(rp.models.build("en2-resnet8", num_classes=2), ADDITIVE)
    found = rp.verify_noise(nn.Sequential(ensemble), torch.zeros(2, 3, 16, 16))
    assert found.ok, found.problems
    assert [place.kind for place in found.places] == ["input"] * 2 + ["junction"] * 6


def test_arguments_may_be_given_by_keyword() -> None:
    assert rp.verify_noise(perturbed(ADDITIVE), {"x": X}).ok
    assert rp.verify_noise(perturbed(ADDITIVE), (X,)).ok


def test_a_model_without_noise_has_none_to_verify() -> None:
    for model in (Net(), rp.perturb(Net(), rp.Additive(gamma=0.0))):
        with pytest.raises(UsageError, match=r"not perturbed|adds no noise"):
            rp.verify_noise(model, X)


# What was taken out


def clear_input_hooks(model: Net) -> None:
    model._forward_pre_hooks.clear()


def clear_all_hooks(model: Net) -> None:
    for module in model.modules():
        module._forward_hooks.clear()
        module._forward_pre_hooks.clear()


def replace_first_layer(model: Net) -> None:
    model.stem = nn.Linear(16, 32)


def replace_block(model: Net) -> None:
    model.blocks[1] = Block()


def replace_forward(model: Net) -> None:
    block = model.blocks[0]
    block.forward = lambda x: x + block.f(x)


def replace_head(model: Net) -> None:
    model.head = nn.Linear(32, 7)


def reset_classifier(model: Net) -> None:
    model.reset_classifier(7)


def clear_head_hooks(model: Net) -> None:
    model.head._forward_hooks.clear()


@pytest.mark.parametrize(
    ("strategy", "change", "what"),
    [
        (ADDITIVE, clear_input_hooks, "input"),
        (ADDITIVE, clear_all_hooks, "input"),
        (ADDITIVE, replace_first_layer, "first layer"),
        (ADDITIVE, replace_block, "1 of its 2 junctions"),
        (ADDITIVE, replace_forward, "blocks.0"),
        (OUTPUT, replace_head, "last layer"),
        (OUTPUT, reset_classifier, "last layer"),
        (OUTPUT, clear_head_hooks, "last layer"),
    ],
)
def test_noise_that_was_taken_out_is_not_reported(strategy: Any, change: Callable[[Net], None], what: str) -> None:
    model = perturbed(strategy)
    change(model)
    with pytest.raises(NoiseLostError, match=what):
        rp.strategy_of(model)
    with pytest.raises(NoiseLostError, match=what):
        rp.strategy_of(nn.Sequential(copy.deepcopy(model)))
    found = rp.verify_noise(model, X)
    assert not found.ok
    with pytest.raises(NoiseLostError, match="not all there"):
        found.require()
    with pytest.raises(NoiseLostError):
        rp.save(model, "never-written.safetensors")


@pytest.mark.parametrize("change", [replace_head, reset_classifier, clear_head_hooks])
def test_a_model_refuses_to_predict_without_the_noise_on_its_output(change: Callable[[Net], None]) -> None:
    model = perturbed(OUTPUT)
    change(model)
    with pytest.raises(NoiseLostError, match="would answer without its noise"):
        model(X)


def test_a_head_may_be_replaced_where_it_has_no_noise() -> None:
    model = perturbed(ADDITIVE)
    model.reset_classifier(7)
    assert rp.strategy_of(model) == ADDITIVE
    assert rp.verify_noise(model, X).ok


def test_noise_of_another_size_or_the_same_twice_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from resperturb.noise.source import NoiseSource

    monkeypatch.setattr("resperturb.noise.source._is_readable", lambda *tensors: False)  # draw apart from the sum
    draw = NoiseSource.normal
    model = perturbed(ADDITIVE)
    for wrong, problem in (
        (lambda self, like, training: 0.5 * draw(self, like, training), "times the standard deviation"),
        (lambda self, like, training: torch.zeros_like(like), "no noise"),
        (lambda self, like, training: 0.3 + draw(self, like, training), "mean"),
        (lambda self, like, training: torch.randn(like.shape, generator=torch.Generator().manual_seed(1)), "same"),
    ):
        monkeypatch.setattr(NoiseSource, "normal", wrong)
        found = rp.verify_noise(model, X)
        junctions = [place for place in found.places if place.kind == "junction"]
        assert all(problem in place.problem for place in junctions), found.problems


# The way past the noise on the input


def test_an_interrupt_in_a_forward_pass_does_not_open_the_way_for_parts() -> None:
    model = perturbed(ADDITIVE)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    handle = model.blocks[0].register_forward_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        model(X)
    handle.remove()
    with pytest.raises(UsageError, match="called by itself"):
        model.forward_features(X)
    assert not model(X).equal(model(X))


def test_a_call_in_one_thread_does_not_open_the_way_in_another() -> None:
    model = perturbed(ADDITIVE)
    inside, done = threading.Event(), threading.Event()

    def wait(*_: Any) -> None:
        inside.set()
        done.wait(30)

    model.blocks[0].register_forward_hook(wait)
    thread = threading.Thread(target=model, args=(X,))
    thread.start()
    assert inside.wait(30)
    try:
        with pytest.raises(UsageError, match="called by itself"):
            model.forward_features(X)
    finally:
        done.set()
        thread.join()


# Half precision


class Sum(HasJunction):
    def forward(self, x: Tensor) -> Tensor:
        return join(self, x, 0 * x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "strategy",
    [
        rp.Additive(gamma=1e-4, input_std=0.0),
        rp.Additive(gamma=0.0, input_std=1e-4),
        rp.Multiplicative(gamma=1e-5),
    ],
)
def test_noise_below_the_rounding_of_the_features_is_refused(strategy: Any, dtype: torch.dtype) -> None:
    model = rp.perturb(nn.Sequential(Sum()), strategy).eval()
    x = 1 + torch.rand(1000, 10).to(dtype)
    with pytest.raises(NoiseLostError, match="smaller than the rounding"):
        model(x)
    assert not rp.verify_noise(model, x).ok
    assert not model(x.float()).equal(model(x.float()))


def test_noise_on_the_input_that_autocast_would_round_away_is_refused() -> None:
    x = 1 + torch.rand(100, 10)
    faint, loud = (
        rp.perturb(nn.Sequential(nn.Linear(10, 10), Sum()), rp.Additive(gamma=0.5, input_std=std)).eval()
        for std in (1e-4, 0.5)
    )
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with pytest.raises(NoiseLostError, match=r"the input is smaller than the rounding of torch\.bfloat16"):
            faint(x)
        assert rp.verify_noise(loud, x).ok
    assert rp.verify_noise(faint, x).ok


def test_noise_that_bfloat16_would_mostly_round_away_is_refused_and_the_rest_has_its_variance() -> None:
    x = 4 + torch.rand(1000, 100).bfloat16()  # numbers here are 1/32 apart
    with pytest.raises(NoiseLostError, match=r"\d\d% of the elements did not change"):
        rp.perturb(nn.Sequential(Sum()), rp.Additive(gamma=0.01, input_std=0.0))(x)
    model = rp.perturb(nn.Sequential(Sum()), rp.Additive(gamma=0.25, input_std=0.0))
    added = model(x).double() - x.double()
    assert added.std().item() == pytest.approx(0.25, rel=0.02)
    assert rp.verify_noise(model, x).ok


def test_zeros_that_multiplicative_noise_leaves_zero_are_no_rounding() -> None:
    model = rp.perturb(nn.Sequential(Sum()), rp.Multiplicative(gamma=0.5))
    x = torch.randn(100, 100).relu().bfloat16()
    assert not model(x).equal(model(x))


# Weights that travel without their noise


def test_loading_weights_of_a_perturbed_model_into_a_plain_one_warns() -> None:
    model = perturbed(ADDITIVE)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    for state in (model.state_dict(), torch.load(file, weights_only=True)):
        assert list(state) == list(Net().state_dict())
        with pytest.warns(UserWarning, match=r"trained with noise \(additive, gamma=0.5.*Net.*has none"):
            Net().load_state_dict(state)
        with pytest.warns(UserWarning, match="trained with noise"):
            nn.Sequential(Net()).load_state_dict(nn.Sequential(model).state_dict())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            perturbed(ADDITIVE).load_state_dict(state)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Net().load_state_dict(Net().state_dict())


# Tools that rebuild a model


def test_static_quantisation_keeps_noise_or_does_not_report_it() -> None:
    pytest.importorskip("torch.ao.quantization.quantize_fx")
    from torch.ao.quantization import get_default_qconfig_mapping
    from torch.ao.quantization.fx.custom_config import PrepareCustomConfig
    from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

    def quantised(strategy: Any, whole: list[type]) -> nn.Module:
        config = PrepareCustomConfig().set_non_traceable_module_classes(whole)
        mapping = get_default_qconfig_mapping("fbgemm")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            prepared = prepare_fx(perturbed(strategy), mapping, (X,), prepare_custom_config=config)
            prepared(X)
            return convert_fx(prepared)

    with pytest.raises(UsageError, match="called by itself"):
        quantised(ADDITIVE, [])
    block = type(perturbed(OUTPUT).blocks[0])
    kept = quantised(OUTPUT, [block])
    with pytest.raises(NoiseLostError, match="last layer"):
        rp.strategy_of(kept)
    with pytest.raises(NoiseLostError, match="traced graph"):
        rp.strategy_of(quantised(OUTPUT, []))
    only_junctions = quantised(rp.Additive(gamma=0.5, input_std=0.0), [block])
    assert rp.strategy_of(only_junctions) == rp.Additive(gamma=0.5, input_std=0.0)
    assert rp.verify_noise(only_junctions, X).ok


def test_answers_that_no_noise_reaches_are_reported() -> None:
    class Dropped(Net):
        def forward(self, x: Tensor) -> Tensor:
            features = self.stem(x)
            self.blocks(features)
            return self.head(features)

    found = rp.verify_noise(rp.perturb(Dropped(), rp.Additive(gamma=0.5, input_std=0.0)), X)
    assert found.problems == ("model: two calls with noise gave the same answer, so no noise reaches it",)


def test_the_batch_of_a_measurement_is_left_as_it_is() -> None:
    class ChangesItsInput(Net):
        def forward(self, x: Tensor) -> Tensor:
            x += 1
            return super().forward(x)

    batch = X.clone()
    assert rp.verify_noise(rp.perturb(ChangesItsInput(), rp.Additive(gamma=0.5, input_std=0.0)), batch).ok
    assert batch.equal(X)
