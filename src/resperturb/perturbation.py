"""The mechanism: Gaussian noise in every residual mapping, in training and at test time.

- :class:`Additive` (Strategy I): ``x + F(x) + gamma n`` in every block, and ``input + input_std n`` before the first.
- :class:`Multiplicative` (Strategy II): ``x + F(x) + gamma x~ n``, with ``|x~| = max(|x|, floor)``, and
  ``output_std |x| n`` on the outputs of the last layer.

``n`` is standard normal, fresh for every call, block, example and element. :func:`perturb` changes a model in place;
the noise is on in ``train()`` and in ``eval()``, and :func:`noise_off` is the only way to silence it.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from resperturb.errors import UsageError
from resperturb.junctions import junctions
from resperturb.noise import NoiseSource


@dataclass(frozen=True)
class Additive:
    """Strategy I: constant noise on the input and on every residual sum.

    ``input_std`` is the paper's pi; left out, it is ``gamma / 2`` as in all of the paper's experiments.
    ``clip_radius`` shortens every input to at most this Euclidean norm first, which turns the radius that a privacy
    budget must otherwise assume into one that is enforced.
    ``scale="batch_std"`` multiplies gamma by the standard deviation of the whole batch at each junction, as the code
    of EnResNet (arXiv:1811.10745) does. It is there for comparison: noise that depends on the batch carries
    information from one example to another, and no bound of this package covers it.

    >>> Additive(gamma=0.5)
    Additive(gamma=0.5, input_std=0.25, clip_radius=None, scale='constant')
    """

    gamma: float
    input_std: float | None = None
    clip_radius: float | None = None
    scale: Literal["constant", "batch_std"] = "constant"

    name = "additive"

    def __post_init__(self) -> None:
        _check_level(self, "gamma")
        if self.input_std is None:
            object.__setattr__(self, "input_std", self.gamma / 2)
        _check_level(self, "input_std")
        if self.clip_radius is not None:
            _check_level(self, "clip_radius")
            if self.clip_radius == 0:
                raise UsageError("Additive: clip_radius must be positive; 0 would erase every input.")
        if self.scale not in ("constant", "batch_std"):
            raise UsageError(f"Additive: scale must be 'constant' or 'batch_std', not {self.scale!r}.")

    def apply(self, total: Tensor, shortcut: Tensor | None, noise: Tensor) -> Tensor:
        """Return ``total + gamma noise``."""
        if self.scale == "batch_std":
            return total + self.gamma * total.detach().std() * noise
        return torch.add(total, noise, alpha=self.gamma)


@dataclass(frozen=True)
class Multiplicative:
    """Strategy II: noise in proportion to the shortcut's value.

    ``floor`` (the paper's eta) is the least magnitude that the noise is scaled by; ``output_std`` (its pi) is the
    noise of the last layer, in units of the norm of that layer's input. Both are 0 in the paper's experiments, and
    must be positive for its Theorem 2.

    >>> Multiplicative(gamma=2.0)
    Multiplicative(gamma=2.0, floor=0.0, output_std=0.0)
    """

    gamma: float
    floor: float = 0.0
    output_std: float = 0.0

    name = "multiplicative"

    def __post_init__(self) -> None:
        for field in ("gamma", "floor", "output_std"):
            _check_level(self, field)

    def apply(self, total: Tensor, shortcut: Tensor | None, noise: Tensor) -> Tensor:
        """Return ``total + gamma x~ noise`` with ``x~`` the shortcut's value, no smaller than the floor."""
        assert shortcut is not None  # perturb() refuses networks without shortcuts
        if self.floor > 0:
            # The paper writes sgn(x) max(|x|, floor); at x = 0 the floor must hold too, so 0 counts as positive.
            shortcut = torch.copysign(shortcut.abs().clamp_min(self.floor), shortcut)
        return torch.addcmul(total, shortcut, noise, value=self.gamma)


Strategy = Additive | Multiplicative
M = TypeVar("M", bound=nn.Module)


def _check_level(strategy: Strategy, field: str) -> None:
    value = getattr(strategy, field)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value < 0:
        raise UsageError(f"{type(strategy).__name__}: {field} must be a finite number, zero or more, not {value!r}.")
    object.__setattr__(strategy, field, float(value))


def strategy_to_dict(strategy: Strategy | None) -> dict[str, Any]:
    """Describe a strategy as plain data.

    >>> strategy_to_dict(Multiplicative(2.0))
    {'name': 'multiplicative', 'gamma': 2.0, 'floor': 0.0, 'output_std': 0.0}
    """
    return {"name": "none"} if strategy is None else {"name": strategy.name, **asdict(strategy)}


def strategy_from_dict(description: dict[str, Any]) -> Strategy | None:
    """Build the strategy that :func:`strategy_to_dict` described.

    >>> strategy_from_dict({"name": "additive", "gamma": 1.0})
    Additive(gamma=1.0, input_std=0.5, clip_radius=None, scale='constant')
    """
    parameters = dict(description)
    name = parameters.pop("name", None)
    if name == "none" and not parameters:
        return None
    kind = {"additive": Additive, "multiplicative": Multiplicative}.get(str(name))
    if kind is None:
        raise UsageError(f"unknown perturbation {name!r}; known are additive, multiplicative and none.")
    known = {field.name for field in fields(kind)}
    needed = {field.name for field in fields(kind) if field.default is MISSING}
    if (wrong := parameters.keys() - known) or (wrong := needed - parameters.keys()):
        raise UsageError(f"perturbation {name!r} takes {sorted(known)}; check {sorted(wrong)}.")
    strategy: Strategy = kind(**parameters)
    return strategy


@dataclass
class _JunctionNoise:
    """The noise of one junction. All junctions of a model share the strategy and the source."""

    strategy: Strategy
    source: NoiseSource

    def __call__(self, total: Tensor, shortcut: Tensor | None, training: bool) -> Tensor:
        if self.strategy.gamma == 0 or self.source.silenced:
            return total
        return self.strategy.apply(total, shortcut, self.source.normal(total, training))


@dataclass
class _InputNoise:
    """A forward pre-hook: shorten the input to the clip radius, then add noise to it."""

    strategy: Additive
    source: NoiseSource
    seen: int = 0
    clipped: int = 0

    def __call__(self, module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        for position, value in enumerate(args):
            if _is_image_batch(value):
                return (*args[:position], self._noised(value, module.training), *args[position + 1 :]), kwargs
        for name, value in kwargs.items():
            if _is_image_batch(value):
                return args, {**kwargs, name: self._noised(value, module.training)}
        raise UsageError(
            f"{type(module).__name__} was called without a floating-point batch, so its input noise has nowhere "
            "to go; pass images as a float tensor."
        )

    def _noised(self, batch: Tensor, training: bool) -> Tensor:
        if self.strategy.clip_radius is not None:
            norms = batch.flatten(1).float().norm(dim=1)
            factors = (self.strategy.clip_radius / norms).clamp(max=1.0)
            self.seen += len(batch)
            self.clipped += int((factors < 1).sum())
            batch = batch * factors.to(batch.dtype).view(-1, *[1] * (batch.dim() - 1))
        if not self.strategy.input_std or self.source.silenced:
            return batch
        return torch.add(batch, self.source.normal(batch, training), alpha=self.strategy.input_std)


@dataclass
class _OutputNoise:
    """A forward hook on the last linear layer: ``w.x + output_std |x| n``, independently for each output."""

    strategy: Multiplicative
    source: NoiseSource

    def __call__(self, module: nn.Module, args: Any, output: Tensor) -> Tensor:
        if self.source.silenced:
            return output
        norm = args[0].norm(dim=-1, keepdim=True)
        noise = self.source.normal(output, module.training)
        return torch.addcmul(output, norm, noise, value=self.strategy.output_std)


def _is_image_batch(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point() and value.dim() >= 2


def perturb(model: M, strategy: Strategy, *, seed: int | None = None) -> M:
    """Put ``strategy`` into every junction of ``model``, in place, and return the model.

    ``seed`` makes the noise of *predictions* repeatable. Whoever knows it can subtract the noise from every answer:
    leave it out unless you are testing.

    >>> from resperturb import models
    >>> model = perturb(models.build("resnet8", num_classes=10), Additive(gamma=0.5))
    >>> strategy_of(model)
    Additive(gamma=0.5, input_std=0.25, clip_radius=None, scale='constant')
    """
    if not isinstance(strategy, Additive | Multiplicative):
        raise UsageError(f"perturb needs an Additive or a Multiplicative strategy, not {strategy!r}.")
    if (present := strategy_of(model)) is not None:
        raise UsageError(f"the model is perturbed already, by {present}; start from a fresh one.")
    found = junctions(model)
    if not found:
        raise UsageError(f"{type(model).__name__} has no residual junction that resperturb understands.")
    if isinstance(strategy, Multiplicative) and not all(junction.has_shortcut for junction in found):
        raise UsageError(
            "multiplicative noise is scaled by the shortcut's value, and this network has no skip connections; "
            "use Additive."
        )
    source = NoiseSource(seed)
    for junction in found:
        junction.set_noise(_JunctionNoise(strategy, source))
    for member in _members(model):
        if isinstance(strategy, Additive):
            if strategy.input_std or strategy.clip_radius is not None:
                member.register_forward_pre_hook(_InputNoise(strategy, source), with_kwargs=True)
        elif strategy.output_std:
            _last_linear(member).register_forward_hook(_OutputNoise(strategy, source))
    return model


def _members(model: nn.Module) -> list[nn.Module]:
    """The networks that see the input: the members of an ensemble, each noised by itself, or the model."""
    members = getattr(model, "members", None)
    return list(members) if isinstance(members, nn.ModuleList) else [model]


def _last_linear(model: nn.Module) -> nn.Linear:
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not layers:
        raise UsageError(f"{type(model).__name__} has no linear layer for output_std to go to.")
    return layers[-1]


def _noises(model: nn.Module) -> list[_JunctionNoise]:
    return [j.noise for j in junctions(model) if isinstance(j.noise, _JunctionNoise)]


def strategy_of(model: nn.Module) -> Strategy | None:
    """Say what perturbs ``model``; None if nothing does."""
    noises = _noises(model)
    return noises[0].strategy if noises else None


@contextmanager
def noise_off(model: nn.Module) -> Iterator[None]:
    """Silence the noise of ``model`` inside a ``with`` block: what an attacker who holds the weights can always do.

    It holds for the whole model, in every thread that uses it.

    >>> from resperturb import models
    >>> model = perturb(models.build("resnet8", num_classes=10), Additive(gamma=0.5)).eval()
    >>> x = torch.zeros(1, 3, 32, 32)
    >>> with noise_off(model):
    ...     bool(model(x).equal(model(x)))
    True
    >>> bool(model(x).equal(model(x)))
    False
    """
    sources = {id(noise.source): noise.source for noise in _noises(model)}.values()
    for source in sources:
        source.silenced += 1
    try:
        yield
    finally:
        for source in sources:
            source.silenced -= 1


@contextmanager
def seeded_predictions(model: nn.Module, seed: int | None) -> Iterator[None]:
    """Make the noise of predictions repeatable inside a ``with`` block, for measurements that can be repeated.

    Whoever knows the seed can subtract the noise. None changes nothing.
    """
    sources = {id(noise.source): noise.source for noise in _noises(model)}.values()
    before = [source.seed for source in sources]
    if seed is not None:
        for source in sources:
            source.reseed(seed)
    try:
        yield
    finally:
        if seed is not None:
            for source, old in zip(sources, before, strict=True):
                source.reseed(old)


def clipping_of(model: nn.Module) -> tuple[int, int]:
    """Count how many inputs ``clip_radius`` shortened since the model was perturbed, and how many there were."""
    hooks = [h for m in model.modules() for h in m._forward_pre_hooks.values() if isinstance(h, _InputNoise)]
    return sum(hook.clipped for hook in hooks), sum(hook.seen for hook in hooks)
