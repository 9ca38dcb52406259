"""The mechanism: exactly the paper's equations, with noise that is fresh, independent and on."""

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor, nn

import resperturb as rp
from resperturb.errors import UsageError
from resperturb.noise import Draw, NoiseSource
from resperturb.perturbation import strategy_from_dict, strategy_to_dict
from resperturb.perturbation.junctions import HasJunction, join
from resperturb.perturbation.perturb import perturbed_junctions
from resperturb.perturbation.strategies.additive import shortened


class Block(HasJunction):
    """x + F(x) with an F that can be computed by hand."""

    def __init__(self, slope: float = 0.0) -> None:
        super().__init__()
        self.slope = slope

    def forward(self, x: Tensor) -> Tensor:
        return join(self, x, self.slope * x)


def net(blocks: int = 1) -> nn.Sequential:
    return nn.Sequential(*[Block() for _ in range(blocks)])


def noise_of(model: nn.Module, x: Tensor) -> Tensor:
    """Return what one call adds."""
    with torch.no_grad():
        output: Tensor = model(x) - x
    return output


ADDITIVE = rp.Additive(gamma=0.5, input_std=0.0)


def check_standard_normal(noise: Tensor) -> None:
    """Mean, variance and shape within what chance allows at one in a million."""
    n = noise.numel()
    z = 4.9  # two-sided, 1e-6
    assert abs(noise.mean().item()) < z / math.sqrt(n)
    assert abs(noise.var().item() - 1) < z * math.sqrt(2 / n)
    assert stats.kstest(noise.flatten().numpy(), "norm").pvalue > 1e-6


def correlation(a: Tensor, b: Tensor) -> float:
    """In standard errors, so that about 5 is a one in a million event."""
    return float(np.corrcoef(a.flatten(), b.flatten())[0, 1]) * math.sqrt(a.numel())


@pytest.mark.parametrize("training", [True, False])
def test_additive_noise_is_gamma_times_standard_normal(training: bool) -> None:
    torch.manual_seed(0)
    model = rp.perturb(net(), ADDITIVE).train(training)
    check_standard_normal(noise_of(model, torch.randn(8, 3, 64, 64)) / 0.5)


@pytest.mark.parametrize("training", [True, False])
def test_multiplicative_noise_is_scaled_by_each_element_of_the_shortcut(training: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(8, 3, 64, 64)
    model = rp.perturb(net(), rp.Multiplicative(gamma=0.7)).train(training)
    check_standard_normal(noise_of(model, x) / (0.7 * x))


def test_the_input_gets_half_of_gamma_by_default() -> None:
    x = torch.zeros(4, 3, 64, 64)
    model = rp.perturb(net(), rp.Additive(gamma=2.0))
    assert noise_of(model, x).var().item() == pytest.approx(4 + 1, rel=0.05)  # gamma^2 + (gamma / 2)^2
    model = rp.perturb(net(), rp.Additive(gamma=2.0, input_std=3.0))
    assert noise_of(model, x).var().item() == pytest.approx(4 + 9, rel=0.05)


def test_the_equations_with_a_known_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resperturb.noise.source._is_readable", lambda *tensors: False)  # draw apart from the sum
    monkeypatch.setattr(NoiseSource, "normal", lambda self, like, training: torch.full_like(like, 2.0))
    x = torch.tensor([[1.0, -3.0]])
    model = nn.Sequential(Block(slope=0.5))
    additive = rp.perturb(copy.deepcopy(model), rp.Additive(gamma=0.25, input_std=1.0))
    assert additive(x).equal(1.5 * (x + 2.0) + 0.25 * 2.0)
    multiplicative = rp.perturb(copy.deepcopy(model), rp.Multiplicative(gamma=0.25))
    assert multiplicative(x).equal(1.5 * x + 0.25 * x * 2.0)


@pytest.mark.parametrize("strategy", [rp.Additive(0.5), rp.Multiplicative(0.5), rp.Multiplicative(0.5, floor=0.2)])
def test_noise_that_is_added_where_it_is_drawn_is_the_same_noise(
    strategy: rp.Additive, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    model = rp.perturb(rp.models.build("resnet8", num_classes=3), strategy, seed=1)
    x = torch.randn(2, 3, 8, 8)

    def outcome() -> list[Tensor]:
        torch.manual_seed(2)
        model.zero_grad()
        model.train()(x).square().sum().backward()
        return [p.grad for p in model.parameters() if p.grad is not None]

    fast = outcome()
    monkeypatch.setattr("resperturb.noise.source._is_readable", lambda *tensors: False)
    torch.testing.assert_close(fast, outcome(), rtol=1e-3, atol=1e-4)


class Ones(Draw):
    def addcmul(self, x: Tensor, factor: Tensor, scale: float) -> Tensor:
        return x + scale * factor


@settings(deadline=None)
@given(st.floats(0.01, 3.0), st.lists(st.floats(-5, 5, width=32), min_size=1, max_size=8))
def test_the_floor_keeps_the_sign_and_bounds_the_magnitude(floor: float, values: list[float]) -> None:
    x = torch.tensor(values)
    scale = rp.Multiplicative(gamma=1.0, floor=floor).apply(torch.zeros_like(x), x, Ones(NoiseSource(), False))
    expected = [-max(-v, floor) if v < 0 else max(v, floor) for v in x.tolist()]
    torch.testing.assert_close(scale, torch.tensor(expected))


def test_the_floor_holds_at_zero() -> None:
    model = rp.perturb(net(), rp.Multiplicative(gamma=1.0, floor=0.5))
    assert noise_of(model, torch.zeros(4, 64, 64)).std().item() == pytest.approx(0.5, rel=0.05)
    assert noise_of(rp.perturb(net(), rp.Multiplicative(gamma=1.0)), torch.zeros(4, 4)).abs().max() == 0


def test_output_noise_is_scaled_by_the_norm_of_the_last_layers_input() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Block(), nn.Linear(4, 3, bias=False))
    x = torch.randn(1, 4).expand(20_000, 4)
    clean = model(x).detach()
    rp.perturb(model, rp.Multiplicative(gamma=0.0, output_std=0.1))
    with torch.no_grad():
        check_standard_normal((model(x) - clean) / (0.1 * x.norm(dim=1, keepdim=True)))


@pytest.mark.parametrize("training", [True, False])
def test_noise_is_independent_across_calls_examples_elements_and_blocks(
    training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Tensor] = []
    draw = NoiseSource.normal
    monkeypatch.setattr("resperturb.noise.source._is_readable", lambda *tensors: False)  # draw apart from the sum
    monkeypatch.setattr(NoiseSource, "normal", lambda self, like, t: drawn.append(draw(self, like, t)) or drawn[-1])
    torch.manual_seed(0)
    model = rp.perturb(net(blocks=2), ADDITIVE).train(training)
    x = torch.zeros(2, 40_000)
    model(x)
    model(x)
    first, second, again, _ = drawn
    assert len(drawn) == 4
    assert abs(correlation(first, again)) < 5, "calls"
    assert abs(correlation(first, second)) < 5, "blocks"
    assert abs(correlation(first[0], first[1])) < 5, "examples"
    assert abs(correlation(first[0, 1:], first[0, :-1])) < 5, "elements"


def test_ensemble_members_are_noised_independently_inputs_included() -> None:
    model = rp.models.Ensemble([net(), net()])
    rp.perturb(model, rp.Additive(gamma=1.0, input_std=1.0))
    x = torch.zeros(1, 40_000)
    with torch.no_grad():
        one, other = (network(x) for network in model.networks)
        assert abs(correlation(one, other)) < 5
        assert noise_of(model, x).var().item() == pytest.approx(
            2 / 2, rel=0.05
        )  # the mean of two halves the variance


@pytest.mark.parametrize("strategy", [rp.Additive(gamma=0.0), rp.Multiplicative(gamma=0.0)])
@pytest.mark.parametrize("training", [True, False])
def test_gamma_zero_is_the_unperturbed_net_bit_for_bit(strategy: rp.Additive, training: bool) -> None:
    torch.manual_seed(0)
    model = rp.models.build("resnet8", num_classes=4).train(training)
    x = torch.randn(2, 3, 16, 16)
    expected = copy.deepcopy(model)(x)
    assert rp.perturb(model, strategy)(x).equal(expected)


def test_nothing_but_noise_is_added_to_a_model() -> None:
    model = rp.models.build("resnet8", num_classes=4)
    kind, keys, names = type(model), list(model.state_dict()), [n for n, _ in model.named_parameters()]
    assert rp.perturb(model, ADDITIVE) is model
    assert type(model) is kind
    assert list(model.state_dict()) == keys
    assert [n for n, _ in model.named_parameters()] == names
    model.load_state_dict(rp.models.build("resnet8", num_classes=4).state_dict())
    assert rp.strategy_of(model) == ADDITIVE


def test_noise_off_silences_all_of_it_and_only_inside() -> None:
    model = rp.perturb(net(), rp.Additive(gamma=1.0, clip_radius=100.0))
    x = torch.randn(2, 8)
    with rp.noise_off(model), rp.noise_off(model):
        assert model(x).equal(x)
    assert not model(x).equal(x)
    with pytest.raises(RuntimeError), rp.noise_off(model):
        raise RuntimeError
    assert not model(x).equal(x)


def test_a_copy_made_while_noise_is_off_is_noisy() -> None:
    model = rp.perturb(net(), ADDITIVE)
    with rp.noise_off(model):
        other = copy.deepcopy(model)
    assert noise_of(other, torch.zeros(2, 8)).abs().min() > 0


def test_a_deep_copy_keeps_its_noise_and_draws_its_own() -> None:
    model = rp.perturb(net(), ADDITIVE)
    other = copy.deepcopy(model)
    x = torch.zeros(1, 40_000)
    assert rp.strategy_of(other) == ADDITIVE
    assert abs(correlation(noise_of(model, x), noise_of(other, x))) < 5
    with rp.noise_off(other):
        assert other(x).equal(x)
        assert not model(x).equal(x)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_noise_is_on_in_eval_under_every_gradient_mode(context: type) -> None:
    model = rp.perturb(net(), ADDITIVE).eval()
    with context():
        assert (model(torch.zeros(2, 8)) != 0).all()


def test_training_noise_follows_the_seed_and_prediction_noise_does_not() -> None:
    model = rp.perturb(net(), ADDITIVE)
    x = torch.zeros(2, 8)

    def twice(training: bool) -> tuple[Tensor, Tensor]:
        model.train(training)
        torch.manual_seed(7)
        one = model(x)
        torch.manual_seed(7)
        return one, model(x)

    one, other = twice(training=True)
    assert one.equal(other)
    one, other = twice(training=False)
    assert not torch.isclose(one, other).any()


def test_prediction_noise_repeats_only_with_a_requested_seed() -> None:
    x = torch.zeros(2, 8)

    def predictions(seed: int | None) -> Tensor:
        model = rp.perturb(net(), ADDITIVE, seed=seed).eval()
        return torch.stack([model(x), model(x)])

    assert predictions(3).equal(predictions(3))
    assert not predictions(3)[0].equal(predictions(3)[1])
    assert not predictions(3).equal(predictions(4))
    assert not predictions(None).equal(predictions(None))


def test_seeded_predictions_are_so_only_inside() -> None:
    model = rp.perturb(net(), ADDITIVE).eval()
    x = torch.zeros(2, 8)
    with rp.seeded_predictions(model, 5):
        first = model(x)
    with rp.seeded_predictions(model, 5):
        assert model(x).equal(first)
    assert not model(x).equal(first)
    with rp.seeded_predictions(model, None):
        assert not model(x).equal(model(x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_variance_is_right_in_every_precision(dtype: torch.dtype) -> None:
    model = rp.perturb(net(), rp.Additive(gamma=0.5, input_std=0.0))
    output = model(torch.zeros(1, 60_000, dtype=dtype))
    assert output.dtype == dtype
    assert output.double().var().item() == pytest.approx(0.25, rel=5 * math.sqrt(2 / 60_000))


def test_autocast_keeps_the_noise() -> None:
    model = nn.Sequential(nn.Linear(8, 8), Block())
    rp.perturb(model, ADDITIVE)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        one, other = model(torch.zeros(2, 8)), model(torch.zeros(2, 8))
    assert one.dtype == torch.bfloat16
    assert not one.equal(other)


def test_autocast_keeps_the_type_of_noised_outputs() -> None:
    model = nn.Sequential(Block(), nn.Linear(8, 3))
    rp.perturb(model, rp.Multiplicative(gamma=0.5, output_std=0.5))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        one, other = model(torch.ones(2, 8)), model(torch.ones(2, 8))
    assert one.dtype == torch.bfloat16
    assert not one.equal(other)


def test_the_noise_keeps_the_memory_layout() -> None:
    model = rp.perturb(net(), ADDITIVE)
    x = torch.zeros(2, 3, 8, 8).to(memory_format=torch.channels_last)
    assert model(x).is_contiguous(memory_format=torch.channels_last)


def test_clipping_shortens_long_inputs_only() -> None:
    model = rp.perturb(net(), rp.Additive(gamma=0.0, input_std=0.0, clip_radius=5.0))
    x = torch.tensor([[3.0, 3.9], [30.0, 40.0], [0.0, 0.0]])
    assert model(x)[[0, 2]].equal(x[[0, 2]])
    assert model(x)[1].tolist() == pytest.approx([3.0, 4.0], rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_clipping_keeps_its_word_in_every_precision(dtype: torch.dtype) -> None:
    model = rp.perturb(net(), rp.Additive(gamma=0.0, input_std=0.0, clip_radius=30.0))
    x = (3 * torch.randn(500, 3, 16, 16, generator=torch.Generator().manual_seed(0))).to(dtype)
    clipped = model(x)
    assert clipped.dtype == dtype
    norms = clipped.double().flatten(1).norm(dim=1)
    assert norms.max() <= 30.0
    assert norms.min() > 29.5


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from([torch.float64, torch.float32, torch.float16, torch.bfloat16]),
    st.floats(1e-6, 1e6),
    st.lists(st.floats(allow_nan=True, allow_infinity=True, width=16), min_size=1, max_size=4),
    st.sampled_from([1, 3, 100, 150_528]),
)
def test_no_norm_exceeds_the_radius_in_any_precision(
    dtype: torch.dtype, radius: float, values: list[float], times: int
) -> None:
    batch = torch.tensor([values], dtype=dtype).repeat(1, times)
    clipped = shortened(batch, radius)
    assert clipped.dtype == dtype
    assert math.sqrt(math.fsum(value * value for value in clipped[0].double().tolist())) <= radius


def test_the_gradient_flows_through_multiplicative_noise() -> None:
    model = rp.perturb(net(), rp.Multiplicative(gamma=2.0))
    x = torch.ones(1000, requires_grad=True)
    output = model(x)
    output.sum().backward()
    torch.testing.assert_close(x.grad, output.detach())  # x (1 + 2 n) has the slope 1 + 2 n


def test_layers_without_sizes_are_refused() -> None:
    with pytest.raises(UsageError, match="call the model on a batch"):
        rp.perturb(nn.Sequential(net(), nn.LazyLinear(2)), ADDITIVE)


def test_batch_std_scales_the_noise_by_the_batch() -> None:
    x = 3 * torch.randn(1, 40_000)
    model = rp.perturb(net(), rp.Additive(gamma=0.5, input_std=0.0, scale="batch_std"))
    assert noise_of(model, x).std().item() == pytest.approx(1.5, rel=0.05)


@pytest.mark.parametrize(
    "make",
    [
        lambda: rp.Additive(gamma=-1),
        lambda: rp.Additive(gamma=math.nan),
        lambda: rp.Additive(gamma=math.inf),
        lambda: rp.Additive(gamma=1e38),
        lambda: rp.Additive(gamma="0.5"),  # type: ignore[arg-type]
        lambda: rp.Additive(gamma=True),
        lambda: rp.Additive(gamma=None),  # type: ignore[arg-type]
        lambda: rp.Additive(gamma=1, input_std=-0.1),
        lambda: rp.Additive(gamma=1, clip_radius=0),
        lambda: rp.Additive(gamma=1, scale="other"),  # type: ignore[arg-type]
        lambda: rp.Multiplicative(gamma=-1),
        lambda: rp.Multiplicative(gamma=1, floor=-1),
        lambda: rp.Multiplicative(gamma=1, output_std=math.nan),
        lambda: rp.perturb(net(), 0.5),  # type: ignore[arg-type]
        lambda: rp.perturb("resnet18", ADDITIVE),  # type: ignore[type-var]
        lambda: rp.perturb(nn.Linear(2, 2), ADDITIVE),
        lambda: rp.perturb(rp.perturb(net(), ADDITIVE), ADDITIVE),
        lambda: rp.perturb(rp.models.build("resnet8", num_classes=2, skip=False), rp.Multiplicative(1.0)),
        lambda: rp.perturb(net(), rp.Multiplicative(gamma=1, output_std=1)),
    ],
)
def test_wrong_requests_raise_one_clear_error(make: object) -> None:
    with pytest.raises(UsageError, match=r"^\S.*[.]$"):
        make()  # type: ignore[operator]


def test_a_refused_model_is_left_as_it_was() -> None:
    model = net()
    with pytest.raises(UsageError):
        rp.perturb(model, rp.Multiplicative(gamma=1.0, output_std=1.0))  # no linear layer
    assert rp.strategy_of(model) is None
    assert model(torch.ones(1, 2)).equal(torch.ones(1, 2))


def test_strategies_are_frozen_and_travel_as_plain_data() -> None:
    for strategy in (rp.Additive(0.5, clip_radius=3.0), rp.Multiplicative(2.0, floor=0.1), None):
        assert strategy_from_dict(strategy_to_dict(strategy)) == strategy
    with pytest.raises(AttributeError):
        rp.Additive(0.5).gamma = 0.0  # type: ignore[misc]
    for wrong in ({"name": "other"}, {"name": "additive"}, {"name": "additive", "gamma": 1, "gama": 1}, {}):
        with pytest.raises(UsageError):
            strategy_from_dict(wrong)


def test_inputs_by_keyword_are_noised_too() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Block()

        def forward(self, images: Tensor, weights: Tensor | None = None) -> Tensor:
            return self.block(images)

    model = rp.perturb(Net(), rp.Additive(gamma=0.0, input_std=1.0))
    x = torch.zeros(2, 8)
    assert (model(weights=torch.ones(2, 2, dtype=torch.long), images=x) != 0).all()
    assert (model(images=x) != 0).all()


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = Block()

    def forward(self, clinical: Tensor, image: Tensor, lines: Tensor | None = None) -> Tensor:
        return self.block(image) + clinical


def test_input_noise_of_a_network_with_several_inputs_is_refused() -> None:
    clinical, image = torch.zeros(4, 3), torch.zeros(4, 3)
    model = rp.perturb(TwoInputs(), rp.Additive(gamma=0.5))
    for args, kwargs in (((clinical, image), {}), ((clinical,), {"image": image}), ((clinical, [image]), {})):
        with pytest.raises(UsageError, match=r"2 floating-point tensors, .* input_std=0"):
            model(*args, **kwargs)
    with pytest.raises(UsageError, match="2 floating-point tensors"):
        rp.verify_noise(model, (clinical, image))
    clipped = rp.perturb(TwoInputs(), rp.Additive(gamma=0.5, input_std=0.0, clip_radius=1.0))
    with pytest.raises(UsageError, match="2 floating-point tensors"):
        clipped(clinical, image)
    without = rp.perturb(TwoInputs(), rp.Additive(gamma=0.5, input_std=0.0))
    assert not without(clinical, image).equal(without(clinical, image))
    numbers, temperature = torch.zeros(4, 3, dtype=torch.long), torch.tensor(1.0)
    assert model(numbers, image, temperature).shape == (4, 3)


def test_a_call_without_images_is_refused() -> None:
    model = rp.perturb(net(), rp.Additive(gamma=1.0))
    with pytest.raises(UsageError, match="floating-point"):
        model(torch.zeros(2, 8, dtype=torch.uint8))
    assert noise_of(model, torch.zeros(2, 8)).abs().min() > 0


def test_a_part_with_the_first_layer_is_refused_by_itself_because_the_input_noise_would_be_skipped() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(8, 8), Block()), Block())
    rp.perturb(model, rp.Additive(gamma=1.0))
    x = torch.zeros(2, 8)
    for call in (model[0], model[0][0], model.forward):
        with pytest.raises(UsageError, match="called by itself"):
            call(x)
    assert not model(x).equal(model(x))


def test_a_part_called_by_itself_keeps_the_noise_of_its_junctions() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(8, 8), Block()), Block())
    rp.perturb(model, rp.Additive(gamma=1.0))
    assert noise_of(model[1], torch.zeros(2, 8)).abs().min() > 0
    assert rp.strategy_of(model[1]) == rp.Additive(gamma=1.0)
    model = nn.Sequential(nn.Sequential(nn.Linear(8, 8), Block()), Block())
    rp.perturb(model, ADDITIVE)  # there is no input noise to be skipped
    assert not model[0](torch.zeros(2, 8)).equal(model[0](torch.zeros(2, 8)))


def test_a_call_that_fails_does_not_open_the_way_for_parts() -> None:
    model = rp.perturb(nn.Sequential(nn.Linear(8, 8), Block(), nn.Linear(3, 3)), rp.Additive(gamma=1.0))
    with pytest.raises(RuntimeError):
        model(torch.zeros(2, 8))  # the last layer wants 3
    with pytest.raises(UsageError, match="called by itself"):
        model[0](torch.zeros(2, 8))


def test_targets_choose_junctions_by_name_and_pattern() -> None:
    def perturbed(targets: object) -> list[str]:
        return perturbed_junctions(rp.perturb(net(blocks=4), ADDITIVE, targets=targets))  # type: ignore[arg-type]

    assert perturbed(None) == ["0", "1", "2", "3"]
    assert perturbed("2") == ["2"]
    assert perturbed(["3", "[01]"]) == ["0", "1", "3"]
    for wrong in (["nothing"], [], ["1", "nothing"]):
        with pytest.raises(UsageError):
            perturbed(wrong)
