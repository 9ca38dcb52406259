"""A strategy is one class: all other code uses its methods, and never checks which one it is."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import resperturb as rp
from resperturb.errors import UsageError
from resperturb.noise import Draw
from resperturb.perturbation import STRATEGIES, Strategy, register_strategy, strategy_from_dict, strategy_to_dict
from resperturb.perturbation.strategy import TrainingFacts

FACTS = TrainingFacts(epochs=10, batch_size=128, records=1000, input_radius=30.0)


@pytest.fixture
def halving() -> Iterator[type[Strategy]]:
    @register_strategy("halving")
    @dataclass(frozen=True)
    class Halving(Strategy):
        """Noise in proportion to half of the sum."""

        gamma: float = 1.0

        def apply(self, total: Tensor, shortcut: Tensor | None, noise: Draw) -> Tensor:
            return total + self.gamma * total.abs() / 2 * noise.like(total)

        @property
        def is_noisy(self) -> bool:
            return self.gamma > 0

    yield Halving
    del STRATEGIES._found["halving"]


def test_a_users_strategy_perturbs_saves_loads_and_names_itself(halving: type[Strategy], tmp_path: Path) -> None:
    strategy = halving(gamma=0.5)  # type: ignore[call-arg]
    model = rp.perturb(rp.models.build("resnet8", num_classes=2), strategy).eval()
    x = torch.randn(1, 3, 16, 16)
    assert not model(x).equal(model(x))
    rp.save(model, tmp_path / "model.safetensors")
    loaded = rp.load(rp.models.build("resnet8", num_classes=2), tmp_path / "model.safetensors").eval()
    assert rp.strategy_of(loaded) == strategy == strategy_from_dict({"name": "halving", "gamma": 0.5})
    assert strategy_to_dict(strategy) == {"name": "halving", "gamma": 0.5}
    assert strategy.describe() == "halving, gamma=0.5"
    guarantee = strategy.guarantee(FACTS, 1e-5)
    assert guarantee.epsilon == float("inf")
    assert "multiplicative" not in guarantee.setting
    assert "'halving'" in guarantee.setting


def test_a_misspelt_strategy_is_refused_with_the_closest_name() -> None:
    with pytest.raises(UsageError, match=r"unknown strategy 'aditive'; did you mean 'additive'\?"):
        strategy_from_dict({"name": "aditive", "gamma": 1.0})


@pytest.mark.parametrize(
    ("strategy", "noisy"),
    [
        (rp.Additive(0.5), True),
        (rp.Additive(0.0, input_std=0.1), True),
        (rp.Additive(0.0), False),
        (rp.Additive(0.0, clip_radius=1.0), False),
        (rp.Multiplicative(1.0), True),
        (rp.Multiplicative(0.0, output_std=0.1), True),
        (rp.Multiplicative(0.0, floor=1.0), False),
    ],
)
def test_a_strategy_declares_whether_predictions_are_random(strategy: Strategy, noisy: bool) -> None:
    assert strategy.is_noisy is noisy
    model = nn.Sequential(rp.models.build("resnet8", num_classes=2))
    rp.perturb(model, strategy).eval()
    x = torch.randn(1, 3, 16, 16)
    assert (not model(x).equal(model(x))) is noisy


def test_each_strategy_states_its_own_guarantee() -> None:
    proven = rp.Additive(gamma=1.0, input_std=100.0).guarantee(FACTS, 1e-5)
    assert proven.mechanism == "additive"
    assert proven.epsilon < rp.Additive(gamma=1.0, input_std=50.0).guarantee(FACTS, 1e-5).epsilon
    clipped = rp.Additive(gamma=1.0, input_std=100.0, clip_radius=3.0).guarantee(FACTS, 1e-5)
    assert clipped.epsilon < proven.epsilon
    for nothing in (rp.Additive(1.0, input_std=0.0), rp.Additive(1.0, scale="batch_std"), rp.Multiplicative(1.0)):
        assert nothing.guarantee(FACTS, 1e-5).epsilon == float("inf")


def test_no_code_but_a_strategy_checks_which_strategy_it_is() -> None:
    source = Path(rp.__file__).parent
    for path in sorted(source.rglob("*.py")):
        if path.parent.name == "strategies":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            asks = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance"
            assert not asks or not {"Additive", "Multiplicative"} & {
                name.id for name in ast.walk(node) if isinstance(name, ast.Name)
            }, f"{path}:{node.lineno}"  # type: ignore[attr-defined]
