"""The rules that decide what is a junction: one test for each, and what they are applied to."""

import logging
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import resperturb as rp
from resperturb.errors import UsageError
from resperturb.perturbation.junctions import all_sums
from resperturb.perturbation.perturb import perturbed_junctions
from resperturb.perturbation.sums import reader as reader_module
from resperturb.perturbation.sums.rules import Judgement, from_caller, judge
from resperturb.perturbation.sums.values import BRANCH, GATED, LIGHT, LINEAR, PLAIN, PRODUCT, PROJECTION, Path, Value

WIDTH = 6


def value(least: int, most: int | None = None, names: str = "", tensor: int = 0) -> Value:
    path = Path(least, least if most is None else most, frozenset((0, name) for name in names.split()))
    return Value({tensor: path})


# The rules


def test_rule_1_a_tensor_added_to_itself_is_no_junction() -> None:
    assert judge(value(PLAIN), value(PLAIN)) is None


@pytest.mark.parametrize("branch", [LIGHT, PROJECTION, BRANCH, GATED, PRODUCT])
def test_rule_2_a_tensor_and_a_function_of_it_are_a_junction(branch: int) -> None:
    for left, right, side in ((value(PLAIN), value(branch), "left"), (value(branch), value(PLAIN), "right")):
        judgement = judge(left, right)
        assert judgement is not None
        assert (judgement.shortcut, judgement.problem) == (side, "")


def test_rule_2_holds_where_a_shortcut_is_plain_in_some_blocks_and_projected_in_others() -> None:
    judgement = judge(value(PLAIN, PROJECTION), value(BRANCH))
    assert judgement is not None
    assert judgement.shortcut == "left"


@pytest.mark.parametrize(("shortcut", "branch"), [(LIGHT, BRANCH), (PROJECTION, LINEAR), (LINEAR, BRANCH)])
def test_rule_3_a_projection_and_a_branch_are_a_junction(shortcut: int, branch: int) -> None:
    judgement = judge(value(branch, names="conv1 conv2"), value(shortcut, names="downsample"))
    assert judgement is not None
    assert judgement.shortcut == "right"
    assert (
        judgement.reason == "the right side is a projection of what the other is computed from through conv1, conv2"
    )


def test_rule_4_two_projections_are_one_linear_layer() -> None:
    assert judge(value(PROJECTION, names="conv_1x1"), value(PROJECTION, names="conv_kxk")) is None


@pytest.mark.parametrize("other", [PROJECTION, BRANCH, GATED, PRODUCT])
def test_rule_5_scores_and_positional_biases_are_attention(other: int) -> None:
    assert judge(value(PRODUCT), value(other)) is None


@pytest.mark.parametrize(("left", "right"), [(BRANCH, BRANCH), (LINEAR, LINEAR), (GATED, GATED), (LINEAR, GATED)])
def test_rule_6_all_else_is_unclear(left: int, right: int) -> None:
    judgement = judge(value(left, names="a"), value(right, names="b"))
    assert judgement is not None
    assert judgement.shortcut is None
    assert judgement.problem in ("both sides are transformed", "a side is a gate")


def test_sides_that_derive_from_no_common_tensor_are_no_junction() -> None:
    assert judge(value(PLAIN, tensor=0), value(BRANCH, tensor=1)) is None
    assert from_caller(value(PLAIN, tensor=0), value(BRANCH, tensor=1)) == "left"
    assert from_caller(value(BRANCH, tensor=0), value(BRANCH, tensor=1)) is None


def test_a_sum_explained_by_a_later_tensor_is_not_traced_to_an_earlier_one() -> None:
    names = ("stem conv_1x1", "stem conv_kxk")
    sides = [
        Value({0: value(BRANCH, names=both).paths[0], 1: value(PROJECTION, names=both.split()[1]).paths[0]})
        for both in names
    ]
    assert judge(*sides) is None


# What they are applied to


class Parts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.f = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
        self.relu_gain = nn.Linear(WIDTH, WIDTH)
        self.other = nn.Linear(WIDTH, WIDTH)


class Dictionary(Parts):
    def forward(self, x: Tensor) -> Tensor:
        found = {"shortcut": x, "branch": self.f(x)}
        return found["shortcut"] + found["branch"]


class FilledDictionary(Parts):
    def forward(self, x: Tensor) -> Tensor:
        found = dict(shortcut=x)  # noqa: C408
        found["branch"] = self.f(x)
        return found.get("shortcut") + found["branch"]


class ReluName(Parts):
    """A shortcut whose name has "rel" in it, and a projection named as an activation."""

    def forward(self, relu: Tensor) -> Tensor:
        mask = self.f(relu)
        return self.relu_gain(relu) + mask


@pytest.mark.parametrize("kind", [Dictionary, FilledDictionary, ReluName])
def test_junctions_are_found_whatever_they_are_called_and_kept_in(kind: type[nn.Module]) -> None:
    model = rp.perturb(kind(), rp.Multiplicative(gamma=0.5))
    x = torch.randn(2, WIDTH)
    assert len(perturbed_junctions(model)) == 1
    assert not model(x).equal(model(x))


class UnknownKey(Parts):
    def __init__(self) -> None:
        super().__init__()
        self.keys = ("a", "b")

    def forward(self, x: Tensor) -> Tensor:
        found = {}
        found[self.keys[0]] = x
        found[self.keys[1]] = self.f(x)
        return found[self.keys[0]] + found[self.keys[1]]


class Stacked(Parts):
    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([x, self.f(x)]).sum(0)


class StackedFunction(Parts):
    def forward(self, x: Tensor) -> Tensor:
        both = torch.stack((self.f(x), x), dim=1)
        return torch.mean(both, dim=1)


class Concatenated(Parts):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.f(x)], dim=1).view(-1, 2, WIDTH).sum(1)


class Summed(Parts):
    def forward(self, x: Tensor) -> Tensor:
        return sum([x, self.f(x), self.other(x)])  # type: ignore[return-value]


class Fused(Parts):
    def forward(self, x: Tensor) -> Tensor:
        return torch.addcmul(x, torch.ones(WIDTH), self.f(x))


class Interpolated(Parts):
    def forward(self, x: Tensor) -> Tensor:
        return x.lerp(self.f(x), 0.5)


class Indexed(Parts):
    def forward(self, x: Tensor) -> Tensor:
        return x.index_add(0, torch.arange(len(x)), self.f(x))


@pytest.mark.parametrize(
    "kind", [UnknownKey, Stacked, StackedFunction, Concatenated, Summed, Fused, Interpolated, Indexed]
)
def test_sums_that_are_written_otherwise_are_refused(kind: type[nn.Module]) -> None:
    with pytest.raises(UsageError, match="look residual and are not understood"):
        rp.perturb(kind(), rp.Additive(gamma=0.5))


class Dense(Parts):
    """Concatenates as DenseNet does, and pools."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.f(x)], dim=1).mean(dim=1)


class Ensemble(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.models = nn.ModuleList([nn.Linear(WIDTH, 2) for _ in range(3)])

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([model(x) for model in self.models]).mean(0)


class TwoHeads(Parts):
    def forward(self, x: Tensor) -> Tensor:
        x = self.f(x)
        return (self.other(x) + self.relu_gain(x)) / 2


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.positions = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.q(x), self.k(x), self.v(x)
        scores = q @ k.transpose(-1, -2) + self.positions(q) @ q.transpose(-1, -2)
        return scores.softmax(-1) @ v + self.positions(v)


@pytest.mark.parametrize("kind", [Dense, Ensemble, TwoHeads, Attention])
def test_sums_that_are_no_junctions_are_recognised(kind: type[nn.Module]) -> None:
    assert all_sums(kind()) == []


class Adds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(WIDTH, WIDTH)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        return self.dense(hidden).tanh() + mask


class Calls(Parts):
    def __init__(self, residual: bool) -> None:
        super().__init__()
        self.adds = Adds()
        self.residual = residual

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        if self.residual:
            return self.adds(self.f(x), x)
        return self.adds(self.f(x), y)


class Hides(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.adds = Adds()

    def forward(self, x: Tensor) -> Any:
        return torch.vmap(lambda row: vars(self)["_modules"]["adds"](row, row))(x)


def test_the_callers_of_a_module_decide_what_it_adds() -> None:
    assert [junction.name for junction in rp.junctions(Calls(residual=True))] == ["adds"]
    assert rp.junctions(Calls(residual=False)) == []
    assert all_sums(Adds()) == []  # two inputs of a whole model have nothing to do with each other
    with pytest.raises(UsageError, match="a caller that could not be followed"):
        rp.perturb(nn.Sequential(Hides()), rp.Additive(gamma=0.5))


# What is said, and what is not read again


def test_junctions_say_why_they_are_junctions() -> None:
    printed = repr(rp.junctions(nn.Sequential(Dictionary(), ReluName())))
    assert printed.splitlines() == [
        "0: found['shortcut'] + found['branch'] (the left side is what the other is computed from through f)",
        "1: self.relu_gain(relu) + mask (the left side is a projection of what the other is computed from through f)",
    ]
    assert "HasJunction" in repr(rp.junctions(rp.models.build("resnet8", num_classes=2)))


def test_perturb_logs_how_many_junctions_of_how_many_it_took(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="resperturb"):
        rp.perturb(nn.Sequential(Dictionary(), Dictionary()), rp.Additive(gamma=0.5), targets="0")
    assert "at 1 of 2 junctions" in caplog.text


def test_a_refusal_prints_the_targets_that_would_do() -> None:
    model = nn.Sequential(Dictionary(), Stacked(), Dictionary())
    with pytest.raises(UsageError, match=r"targets=\[.*\]") as raised:
        rp.perturb(model, rp.Additive(gamma=0.5))
    line = str(raised.value).rpartition("targets=")[2]
    rp.perturb(model, rp.Additive(gamma=0.5), targets=eval(line))
    assert perturbed_junctions(model) == ["0", "2"]


def test_our_own_networks_are_never_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    follow = reader_module.Reader.read
    monkeypatch.setattr(
        reader_module.Reader, "read", lambda self, module: read.append(type(module).__name__) or follow(self, module)
    )
    rp.perturb(nn.Sequential(Dictionary(), Dictionary()), rp.Additive(gamma=0.5))
    assert read == ["Dictionary", "Dictionary"]
    rp.perturb(rp.models.build("en2-resnet8", num_classes=2), rp.Additive(gamma=0.5))
    assert read == ["Dictionary", "Dictionary"]


def test_a_verdict_has_a_reason_or_a_problem() -> None:
    for left in range(PRODUCT + 1):
        for right in range(PRODUCT + 1):
            judgement = judge(value(left), value(right))
            assert judgement is None or bool(judgement.reason) != bool(judgement.problem)
            assert judgement is None or isinstance(judgement, Judgement)
