"""Junctions of user-written networks: found where the equation says, however the sum is written, and nowhere else."""

import copy
import functools
import inspect
import io
import pickle
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import resperturb as rp
from resperturb.errors import UsageError
from resperturb.noise.source import NoiseSource
from resperturb.perturbation import HasJunction, join
from resperturb.perturbation.perturb import perturbed_junctions

WIDTH = 6


def layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))


class Plain(nn.Module):
    """Every block has F and G; each test writes another forward."""

    def __init__(self) -> None:
        super().__init__()
        self.f = layers()
        self.project = nn.Linear(WIDTH, WIDTH)
        self.downsample: nn.Module | None = None
        self.drop_path = nn.Dropout(0.0)
        self.gate = nn.Linear(WIDTH, WIDTH)
        self.scale = nn.Parameter(torch.tensor(0.3))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.f(x)


class BranchFirst(Plain):
    def forward(self, x: Tensor) -> Tensor:
        return self.f(x) + x


class ThenActivated(Plain):
    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.f(x))


class InPlace(Plain):
    def forward(self, x: Tensor) -> Tensor:
        identity = x
        out = self.f(x)
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return F.relu(out)


class InPlaceOnTheShortcut(Plain):
    def forward(self, x: Tensor) -> Tensor:
        x = x * 1.0
        x += self.f(x.clone())  # which keeps its input for the backward pass
        return x


class TorchAdd(Plain):
    def forward(self, x: Tensor) -> Tensor:
        return torch.add(x, self.f(x))


class TorchAddAlpha(Plain):
    def forward(self, x: Tensor) -> Tensor:
        return torch.add(self.f(x), x, alpha=2)


class AddMethod(Plain):
    def forward(self, x: Tensor) -> Tensor:
        return self.f(x).add(x)


class AddInPlaceStatement(Plain):
    def forward(self, x: Tensor) -> Tensor:
        out = self.f(x)
        out.add_(x)
        return out


class Scaled(Plain):
    def forward(self, x: Tensor) -> Tensor:
        return x + self.drop_path(0.5 * self.scale * self.f(x))


class Projected(Plain):
    def forward(self, x: Tensor) -> Tensor:
        return self.f(x) + self.project(x)


class PreActivated(Plain):
    def forward(self, x: Tensor) -> Tensor:
        active = F.relu(x)
        shortcut = self.project(active) if self.downsample is not None else x
        return self.f(active) + shortcut


class Checkpointed(Plain):
    def forward(self, x: Tensor) -> Tensor:
        def inner(x: Tensor) -> Tensor:
            identity = x
            out = self.f(x)
            out += identity
            return out

        return checkpoint(inner, x, use_reentrant=False) if x.requires_grad else inner(x)


class ByMethod(Plain):
    def branch(self, x: Tensor) -> Tensor:
        return self.drop_path(self.f(x))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.branch(x)


class InMethod(Plain):
    def joined(self, branch: Tensor, shortcut: Tensor) -> Tensor:
        return branch + shortcut

    def forward(self, x: Tensor) -> Tensor:
        return self.joined(self.f(x), x)


class Inherited(Plain):
    pass


class OfSuper(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return x + super().forward(x)


class Private(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.__f = self.f

    def forward(self, x: Tensor) -> Tensor:
        return x + self.__f(x)


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


class Decorated(Plain):
    @logged
    def forward(self, x: Tensor, *, factor: float = 1.0) -> Tensor:
        return x + factor * self.f(x)


def make_local() -> nn.Module:
    halves = 0.5

    class Local(Plain):
        def forward(self, x: Tensor) -> Tensor:
            return x + halves * self.f(x)

    return Local()


class TwoArguments(nn.Module):
    def forward(self, hidden: Tensor, before: Tensor) -> Tensor:
        return hidden + before


class GivesTwo(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.join = TwoArguments()

    def forward(self, x: Tensor) -> Tensor:
        return self.join(self.f(x), x)


class Parts(Plain):
    """The branch goes through a list."""

    def forward(self, x: Tensor) -> Tensor:
        outputs = []
        for layer in self.f:
            outputs.append(layer(x if not outputs else outputs[-1]))
        return outputs[-1] + x


# What the sum is made of: the shortcut, the branch, and what follows.
Pieces = Callable[[Any, Tensor], tuple[Tensor, Tensor]]
STYLES: dict[str, tuple[Callable[[], nn.Module], Pieces, Callable[[Tensor], Tensor]]] = {
    "plain": (Plain, lambda m, x: (x, m.f(x)), lambda y: y),
    "branch first": (BranchFirst, lambda m, x: (x, m.f(x)), lambda y: y),
    "then activated": (ThenActivated, lambda m, x: (x, m.f(x)), F.relu),
    "in place": (InPlace, lambda m, x: (x, m.f(x)), F.relu),
    "in place on the shortcut": (InPlaceOnTheShortcut, lambda m, x: (x, m.f(x)), lambda y: y),
    "torch.add": (TorchAdd, lambda m, x: (x, m.f(x)), lambda y: y),
    "torch.add with alpha": (TorchAddAlpha, lambda m, x: (2 * x, m.f(x)), lambda y: y),
    "add()": (AddMethod, lambda m, x: (x, m.f(x)), lambda y: y),
    "add_()": (AddInPlaceStatement, lambda m, x: (x, m.f(x)), lambda y: y),
    "scaled": (Scaled, lambda m, x: (x, 0.5 * m.scale * m.f(x)), lambda y: y),
    "projected": (Projected, lambda m, x: (m.project(x), m.f(x)), lambda y: y),
    "pre-activated": (PreActivated, lambda m, x: (x, m.f(F.relu(x))), lambda y: y),
    "checkpointed": (Checkpointed, lambda m, x: (x, m.f(x)), lambda y: y),
    "by a method": (ByMethod, lambda m, x: (x, m.f(x)), lambda y: y),
    "in a method": (InMethod, lambda m, x: (x, m.f(x)), lambda y: y),
    "inherited": (Inherited, lambda m, x: (x, m.f(x)), lambda y: y),
    "of super()": (OfSuper, lambda m, x: (x, m[2](m[1](m[0](x)))), lambda y: y),
    "private names": (Private, lambda m, x: (x, m.f(x)), lambda y: y),
    "decorated": (Decorated, lambda m, x: (x, m.f(x)), lambda y: y),
    "in a function": (make_local, lambda m, x: (x, 0.5 * m.f(x)), lambda y: y),
    "in a submodule": (GivesTwo, lambda m, x: (x, m.f(x)), lambda y: y),
    "through a list": (Parts, lambda m, x: (x, m.f(x)), lambda y: y),
}


def known_noise(like: Tensor) -> Tensor:
    return torch.linspace(-1, 1, like.numel(), dtype=like.dtype).reshape(like.shape).cos()


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resperturb.noise.source._is_readable", lambda *tensors: False)  # draw apart from the sum
    monkeypatch.setattr(NoiseSource, "normal", lambda self, like, training: known_noise(like))


@pytest.mark.usefixtures("stub")
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("style", STYLES)
def test_the_noise_lands_on_the_sum_however_it_is_written(style: str, requires_grad: bool) -> None:
    make, pieces, after = STYLES[style]
    torch.manual_seed(0)
    model = make()
    x = torch.randn(3, WIDTH)
    unperturbed = model(x)
    strategies = {
        rp.Additive(gamma=0.5, input_std=0.0): lambda shortcut: 0.5,
        rp.Multiplicative(gamma=0.5): lambda shortcut: 0.5 * shortcut,
    }
    for strategy, size in strategies.items():
        perturbed = rp.perturb(copy.deepcopy(model), strategy)
        given = x.clone().requires_grad_(requires_grad)
        output = perturbed(given)
        reference = x.clone().requires_grad_(requires_grad)
        shortcut, branch = pieces(perturbed, reference)
        expected = after(shortcut + branch + size(shortcut) * known_noise(shortcut))
        torch.testing.assert_close(output, expected)
        assert given.equal(x), "the input was changed"
        if requires_grad:
            output.square().sum().backward()
            expected.square().sum().backward()
            torch.testing.assert_close(given.grad, reference.grad)
    assert model(x).equal(unperturbed), "a model of the same class that is not perturbed changed"


@pytest.mark.usefixtures("stub")
def test_the_projection_of_a_downsampling_block_scales_its_noise() -> None:
    model = InPlace()
    model.downsample = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH))
    rp.perturb(model, rp.Multiplicative(gamma=2.0))
    x = torch.randn(3, WIDTH)
    shortcut = model.downsample(x)
    torch.testing.assert_close(model(x), F.relu(shortcut + model.f(x) + 2 * shortcut * known_noise(shortcut)))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        weights = q @ k.transpose(-2, -1)
        if mask is not None:
            weights = weights + mask
        return weights.softmax(dim=-1) @ v


class Positions(nn.Module):
    """Of the length of the input, but no function of it."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(1, 100, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return self.table[:, : x.size(1)]


class Transformer(nn.Module):
    """Two junctions in one module, and many sums that are none."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(3, WIDTH)
        self.position = nn.Parameter(torch.randn(1, 4, WIDTH))
        self.positions = Positions()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.mlp = layers()
        self.head = nn.Linear(WIDTH, 2)

    def add_positions(self, x: Tensor, length: int) -> Tensor:
        shift = torch.arange(length).view(1, -1, 1) * 0.01
        return x + self.positions(x) + self.interpolated(x) + shift

    def interpolated(self, x: Tensor) -> Tensor:
        return self.position.expand(x.shape[0], -1, -1)

    def forward(self, x: Tensor) -> Tensor:
        outputs: tuple[Tensor, ...] = ()
        x = self.embed(x)
        x = self.add_positions(x, x.shape[1])
        outputs = outputs + (x,)  # noqa: RUF005
        x = x + self.attention(self.norm1(x), mask=torch.zeros(4, 4))
        x = self.mlp(self.norm2(x)) + x
        outputs += (x,)
        return self.head(outputs[-1].mean(dim=1) + 1e-6)


def test_position_embeddings_masks_and_tuples_are_no_junctions() -> None:
    model = Transformer()
    assert [j.name for j in rp.junctions(model)] == ["Transformer:attention", "Transformer:mlp"]
    x = torch.randn(2, 4, 3)
    before = model(x)
    rp.perturb(model, rp.Additive(gamma=0.5))
    assert not model(x).equal(model(x))
    with rp.noise_off(model):
        assert model(x).equal(before)


class Looped(nn.Module):
    """The sums of all layers are one line."""

    def __init__(self) -> None:
        super().__init__()
        pairs = [nn.ModuleList([Attention(), layers()]) for _ in range(3)]
        self.layers = nn.ModuleList(pairs)

    def forward(self, x: Tensor) -> Tensor:
        for attention, mlp in self.layers:
            x = attention(x) + x
            x = mlp(x) + x
        return x


@pytest.mark.usefixtures("stub")
def test_a_sum_in_a_loop_is_noised_every_time() -> None:
    model = Looped()
    x = torch.randn(2, 4, WIDTH)
    expected = x
    for attention, mlp in model.layers:
        expected = attention(expected) + expected + 0.5 * known_noise(expected)
        expected = mlp(expected) + expected + 0.5 * known_noise(expected)
    assert len(rp.junctions(model)) == 2
    rp.perturb(model, rp.Additive(gamma=0.5, input_std=0.0))
    torch.testing.assert_close(model(x), expected)


def test_a_block_that_is_used_twice_draws_twice() -> None:
    block = Plain()
    model = rp.perturb(nn.Sequential(block, block), rp.Additive(gamma=1.0, input_std=0.0))
    assert [j.name for j in rp.junctions(model)] == ["0"]
    drawn = []
    block.register_forward_hook(lambda module, args, output: drawn.append(output - args[0] - module.f(args[0])))
    model(torch.zeros(1, WIDTH))
    assert not torch.isclose(drawn[0], drawn[1]).any()


class NoSkip(Plain):
    def __init__(self, residual: bool) -> None:
        super().__init__()
        self.residual = residual

    def forward(self, x: Tensor) -> Tensor:
        if self.residual:
            return x + self.f(x)
        return self.f(x)


def test_a_sum_that_an_instance_never_runs_is_not_listed_but_waits_there() -> None:
    model = nn.Sequential(NoSkip(True), NoSkip(False))
    assert [j.name for j in rp.junctions(model)] == ["0"]
    rp.perturb(model, rp.Additive(gamma=1.0, input_std=0.0))
    x = torch.zeros(2, WIDTH)
    assert model[1](x).equal(model[1](x))
    model[1].residual = True
    assert not model[1](x).equal(model[1](x))


# What is refused


class Alike(Plain):
    def forward(self, x: Tensor) -> Tensor:
        return self.gate(x).tanh() + self.scale * self.f(x)


class Highway(Plain):
    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.gate(x))
        return gate * self.f(x) + (1 - gate) * x


class Difference(Plain):
    def forward(self, x: Tensor) -> Tensor:
        return x - self.f(x)


def joined_elsewhere(block: nn.Module, x: Tensor) -> Tensor:
    return x + block(x)


class Elsewhere(Plain):
    def forward(self, x: Tensor) -> Tensor:
        return joined_elsewhere(self.f, x)


def added(left: Tensor, right: Tensor) -> Tensor:
    return left + right


class Added(Plain):
    def forward(self, x: Tensor) -> Tensor:
        return added(x, self.f(x))


def biased(scores: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    return scores + rows @ columns


class AttentionByFunction(Plain):
    """Adds in a function what is no shortcut."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.f(x)
        return x + biased(y @ y.T, x, y.T) @ y


class Attribute(Plain):
    def forward(self, x: Tensor) -> Tensor:
        self.out = self.f(x)
        self.out += x
        return self.out


@pytest.mark.parametrize("kind", [Alike, Highway, Difference, Elsewhere, Added, Attribute])
def test_sums_that_look_residual_and_are_not_understood_are_refused_with_a_list(kind: type[nn.Module]) -> None:
    model = nn.Sequential(Plain(), kind())
    x = torch.randn(2, WIDTH)
    before = model(x)
    with pytest.raises(UsageError, match=r"not understood:\n  1.*\nUnderstood: 0.\n.*targets"):
        rp.perturb(model, rp.Additive(gamma=0.5))
    assert model(x).equal(before)
    rp.perturb(model, rp.Additive(gamma=0.5), targets=["0"])
    assert perturbed_junctions(model) == ["0"]
    assert not model(x).equal(model(x))


def test_a_module_that_cannot_be_perturbed_must_be_rewritten() -> None:
    with pytest.raises(UsageError, match=r"Understood: none.\nWrite Difference as x \+ f\(x\) in a method") as raised:
        rp.perturb(Difference(), rp.Additive(gamma=0.5))
    assert "targets" not in str(raised.value)


def test_sums_of_attention_in_a_function_are_no_junctions() -> None:
    model = rp.perturb(AttentionByFunction(), rp.Additive(gamma=0.5))
    assert len(perturbed_junctions(model)) == 1


def test_targets_may_name_a_sum_that_is_not_understood() -> None:
    model = nn.Sequential(Plain(), Alike())
    with pytest.raises(UsageError, match="which side"):
        rp.perturb(model, rp.Multiplicative(gamma=0.5), targets="*")
    rp.perturb(model, rp.Additive(gamma=0.5, input_std=0.0), targets="1")
    x = torch.randn(2, WIDTH)
    assert model[0](x).equal(model[0](x))
    assert not model[1](x).equal(model[1](x))
    with pytest.raises(UsageError, match="cannot be perturbed"):
        rp.perturb(Difference(), rp.Additive(gamma=0.5), targets="*")


@pytest.mark.parametrize("model", [nn.Linear(2, 2), nn.Sequential(nn.Conv2d(3, 3, 3), nn.ReLU()), Attention()])
def test_a_model_without_junctions_is_refused(model: nn.Module) -> None:
    with pytest.raises(UsageError, match="no residual junction"):
        rp.perturb(model, rp.Additive(gamma=0.5))


def test_traced_models_are_refused() -> None:
    traced = torch.fx.symbolic_trace(Plain())
    with pytest.raises(UsageError, match="trace"):
        rp.perturb(traced, rp.Additive(gamma=0.5))
    with pytest.raises(UsageError, match="trace"):
        rp.perturb(torch.jit.trace(Plain(), torch.zeros(1, WIDTH)), rp.Additive(gamma=0.5))


def test_a_module_without_source_is_refused() -> None:
    names: dict[str, Any] = {"Plain": Plain}
    exec("class Unseen(Plain):\n    def forward(self, x):\n        return x + self.f(x)\n", names)
    with pytest.raises(UsageError, match="source"):
        rp.perturb(nn.Sequential(Plain(), names["Unseen"]()), rp.Additive(gamma=0.5))


def other_forward(self: Any, x: Tensor) -> Tensor:
    return x + 2 * self.f(x)


def test_a_forward_put_on_an_instance_is_refused_and_one_put_on_a_class_is_read() -> None:
    class Changed(Plain):
        pass

    model = Changed()
    model.forward = functools.partial(other_forward, model)  # type: ignore[method-assign]
    with pytest.raises(UsageError, match="source of .*Changed"):
        rp.perturb(model, rp.Additive(gamma=0.5))
    Changed.forward = other_forward  # type: ignore[method-assign]
    model = rp.perturb(Changed(), rp.Additive(gamma=0.5, input_std=0.0))
    assert [str(j) for j in rp.junctions(model)] == ["Changed: x + 2 * self.f(x)"]
    assert not model(torch.zeros(2, WIDTH)).equal(model(torch.zeros(2, WIDTH)))


def test_a_source_that_was_edited_since_the_import_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = """
        from torch import nn
        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.f = nn.Linear(2, 2)
            def forward(self, x):
                return x + self.f(x)
    """
    path = tmp_path / "edited_network.py"
    path.write_text(textwrap.dedent(source))
    monkeypatch.syspath_prepend(tmp_path)
    import edited_network  # type: ignore[import-not-found]

    path.write_text(textwrap.dedent(source).replace("x + self.f(x)", "x + self.f(2 * x)"))
    with pytest.raises(UsageError, match="edited"):
        rp.perturb(edited_network.Block(), rp.Additive(gamma=0.5))


def test_a_junction_that_adds_no_tensors_is_refused_when_it_runs() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f = nn.Linear(2, 2)

        def forward(self, x: Any) -> Any:
            return x + self.f.forward(x)

    model = rp.perturb(Odd(), rp.Additive(gamma=0.5, input_std=0.0))
    model.f.forward = lambda x: x  # type: ignore[method-assign]
    with pytest.raises(UsageError, match="no floating-point tensors"):
        model(torch.ones(2, dtype=torch.int64))


# Only the instance that is perturbed is changed


def test_no_other_instance_ever_runs_changed_code() -> None:
    other, model = Decorated(), Decorated()
    function = Decorated.forward.__wrapped__  # type: ignore[attr-defined]
    class_before, names_before, code_before = dict(vars(Decorated)), set(globals()), function.__code__
    rp.perturb(model, rp.Additive(gamma=0.5, input_std=0.0))
    assert dict(vars(Decorated)) == class_before
    assert set(globals()) == names_before
    assert function.__code__ is code_before
    assert type(other) is Decorated
    for fresh in (other, Decorated()):
        assert fresh.forward.__func__.__wrapped__.__code__ is code_before  # type: ignore[attr-defined]
    x = torch.zeros(2, WIDTH)
    assert not model(x, factor=2.0).equal(model(x, factor=2.0))


def test_a_perturbed_instance_is_still_one_of_its_class() -> None:
    model = rp.perturb(Decorated(), rp.Additive(gamma=0.5, input_std=0.0))
    assert isinstance(model, Decorated)
    assert type(model).__name__ == "Decorated"
    assert type(model).__qualname__ == Decorated.__qualname__
    assert repr(model) == repr(Decorated())
    assert inspect.signature(model.forward) == inspect.signature(Decorated().forward)
    again = rp.perturb(Decorated(), rp.Additive(gamma=0.1))
    assert type(again) is type(model), "one class for all instances that are perturbed alike"


class SuperPlain(Plain):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class SuperTwice(SuperPlain):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.f(x)


@pytest.mark.usefixtures("stub")
def test_a_sum_that_super_reaches_is_noised() -> None:
    x = torch.randn(3, WIDTH)
    model = rp.perturb(SuperPlain(), rp.Additive(gamma=0.5, input_std=0.0))
    torch.testing.assert_close(model(x), 2 * (x + model.f(x) + 0.5 * known_noise(x)))
    model = rp.perturb(SuperTwice(), rp.Additive(gamma=0.5, input_std=0.0), targets="*")
    inner = 2 * (x + model.f(x) + 0.5 * known_noise(x))
    torch.testing.assert_close(model(x), inner + model.f(x) + 0.5 * known_noise(x))
    again = copy.deepcopy(model)
    torch.testing.assert_close(again(x), model(x))


def test_errors_in_a_rewritten_method_point_at_its_source() -> None:
    model = rp.perturb(InPlace(), rp.Additive(gamma=0.5, input_std=0.0))
    with pytest.raises(RuntimeError) as error:
        model(torch.zeros(2, WIDTH + 1))
    lines = [str(entry.statement).strip() for entry in error.traceback]
    assert "out = self.f(x)" in lines


def test_a_sum_in_place_keeps_the_type_of_its_left_side() -> None:
    class Mixed(Plain):
        def forward(self, x: Tensor) -> Tensor:
            out = self.f(x).to(torch.float16)
            out += x
            return out

    model = Mixed()
    assert model(torch.zeros(1, WIDTH)).dtype == torch.float16
    rp.perturb(model, rp.Additive(gamma=0.5, input_std=0.0))
    assert model(torch.zeros(1, WIDTH)).dtype == torch.float16


class ThroughTheArgument(nn.Module):
    """Blocks that change the tensor of their caller and return nothing."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f = nn.Linear(WIDTH, WIDTH)

        def forward(self, x: Tensor) -> None:
            x += self.f(x.clone()).relu()

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([self.Block(), self.Block()])

    def forward(self, x: Tensor) -> Tensor:
        x = 1.0 * x
        for block in self.blocks:
            block(x)
        return x


class ThroughAView(Plain):
    def forward(self, x: Tensor) -> Tensor:
        out = x.clone()
        view = out[:, : WIDTH // 2]
        view += self.f(x)[:, : WIDTH // 2]
        return out


class ThroughAnAlias(Plain):
    def forward(self, x: Tensor) -> Tensor:
        out = self.f(x)
        kept = out
        out += x
        return kept


class ThroughAnAliasByAdd(Plain):
    def forward(self, x: Tensor) -> Tensor:
        out = self.f(x)
        kept = [out]
        out.add_(x)
        return kept[0]


ALIASED = [ThroughTheArgument, ThroughAView, ThroughAnAlias, ThroughAnAliasByAdd]


@pytest.mark.parametrize("strategy", [rp.Additive(gamma=0.5, input_std=0.0), rp.Multiplicative(gamma=0.5)])
@pytest.mark.parametrize("make", ALIASED)
def test_a_sum_in_place_that_is_read_by_another_name_has_its_noise(
    make: Callable[[], nn.Module], strategy: rp.Additive
) -> None:
    torch.manual_seed(0)
    plain, x = make(), torch.randn(4, WIDTH)
    model = rp.perturb(copy.deepcopy(plain), strategy)
    for training in (False, True):
        assert not model.train(training)(x).equal(model(x))
    assert rp.verify_noise(model, x).ok
    with rp.noise_off(model):
        torch.testing.assert_close(model(x), plain(x))
        torch.testing.assert_close(_gradients(model, x), _gradients(plain, x))


def _gradients(model: nn.Module, x: Tensor) -> list[Tensor]:
    found = torch.autograd.grad(model(x).square().sum(), list(model.parameters()), allow_unused=True)
    return [gradient for gradient in found if gradient is not None]


@pytest.mark.parametrize("make", ALIASED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_compiled_sum_in_place_has_its_noise_by_every_name(
    make: Callable[[], nn.Module], dtype: torch.dtype
) -> None:
    model = rp.perturb(make().to(dtype), rp.Additive(gamma=0.5, input_std=0.0))
    x = torch.randn(4, WIDTH, dtype=dtype)
    compiled = torch.compile(model, backend="aot_eager")
    with torch.no_grad():
        assert not compiled(x).equal(compiled(x))
    assert not compiled(x).equal(compiled(x))
    compiled(x).float().sum().backward()


def test_a_sum_in_place_of_a_leaf_is_refused_as_without_noise() -> None:
    class OfALeaf(Plain):
        def forward(self, x: Tensor) -> Tensor:
            x += self.f(x)
            return x

    for model in (OfALeaf(), rp.perturb(OfALeaf(), rp.Additive(gamma=0.5, input_std=0.0))):
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place"):
            model(torch.zeros(2, WIDTH, requires_grad=True))


def test_a_sum_in_place_of_whole_numbers_is_refused() -> None:
    class OfWholeNumbers(Plain):
        def forward(self, x: Tensor) -> Tensor:
            out = x.long()
            out += self.f(x)
            return out

    model = rp.perturb(OfWholeNumbers(), rp.Additive(gamma=0.5, input_std=0.0), targets="*")
    with pytest.raises(UsageError, match="adds no floating-point tensors"):
        model(torch.zeros(2, WIDTH))


@pytest.mark.parametrize("strategy", [rp.Additive(gamma=0.5), rp.Multiplicative(gamma=0.5)])
@pytest.mark.parametrize("make", [Plain, InPlace, TorchAdd])
def test_autocast_keeps_types_as_they_were(make: Callable[[], nn.Module], strategy: rp.Additive) -> None:
    model = make()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = model(torch.randn(2, WIDTH)).dtype
        output = rp.perturb(model, strategy)(torch.randn(2, WIDTH))
    assert output.dtype == expected


@pytest.mark.parametrize("make", [Plain, InPlace, Looped, Transformer])
def test_a_pickled_model_keeps_its_noise(make: Callable[[], nn.Module]) -> None:
    model = rp.perturb(make(), rp.Additive(gamma=0.5, input_std=0.0))
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for other in (pickle.loads(pickle.dumps(model)), torch.load(file, weights_only=False)):
        assert rp.strategy_of(other) == rp.strategy_of(model)
        x = torch.randn(2, 4, 3 if make is Transformer else WIDTH)
        assert not other(x).equal(other(x))


BLOCK = """
import sys, torch
from torch import nn
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Linear(2, 2)
    def forward(self, x):
        return x + self.f(x)
"""


def test_a_model_pickled_in_another_process_has_its_noise_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pickled_network.py").write_text(BLOCK)
    script = """
        import torch, pickled_network, resperturb as rp
        torch.save(rp.perturb(pickled_network.Block(), rp.Additive(gamma=0.5, input_std=0.0)), "model.pt")
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], cwd=tmp_path, check=True)
    monkeypatch.syspath_prepend(tmp_path)
    model = torch.load(tmp_path / "model.pt", weights_only=False)
    assert not model(torch.zeros(1, 2)).equal(model(torch.zeros(1, 2)))


def test_a_transformer_layer_of_torch_does_not_take_its_fast_path_past_the_noise() -> None:
    model = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), num_layers=2, enable_nested_tensor=False
    ).eval()
    names = [j.name for j in rp.junctions(model)]
    assert names == ["layers.0:self_attn", "layers.0:linear1", "layers.1:self_attn", "layers.1:linear1"]
    rp.perturb(model, rp.Multiplicative(gamma=0.5))
    with torch.inference_mode():
        assert not model(torch.ones(1, 3, 8)).equal(model(torch.ones(1, 3, 8)))


class SaysItsJunction(HasJunction):
    """Noise inside the branch; the sum, which `perturb` would read as stacked tensors, is no junction."""

    def __init__(self) -> None:
        super().__init__()
        self.f = layers()

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([x, join(self, None, self.f(x))]).sum(dim=0)


class Around(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([SaysItsJunction()])

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def test_sums_of_a_module_that_declares_its_junctions_are_not_read() -> None:
    assert [j.name for j in rp.junctions(Around())] == ["blocks.0"]
