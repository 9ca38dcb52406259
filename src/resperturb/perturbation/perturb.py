"""The mechanism: Gaussian noise in every residual mapping, in training and at test time.

- :class:`Additive` (Strategy I): ``x + F(x) + gamma n`` in every block, and ``input + input_std n`` before the first.
- :class:`Multiplicative` (Strategy II): ``x + F(x) + gamma x~ n``, with ``|x~| = max(|x|, floor)``, and
  ``output_std |x| n`` on the outputs of the last layer.

``n`` is standard normal, fresh for every call, block, example and element. :func:`perturb` changes a model in place;
the noise is on in ``train()`` and in ``eval()``, and :func:`noise_off` is the only way to silence it.
"""

import copy
import inspect
import itertools
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, asdict, dataclass, fields
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, fx, nn

from resperturb.errors import UsageError
from resperturb.noise.source import NoiseSource
from resperturb.perturbation.junctions import Junction, all_sums, slots_of
from resperturb.perturbation.sums import unreadable_modules


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
        shortcut = shortcut.to(total.dtype)  # autocast may leave the two sides of a sum in different precisions
        if self.floor > 0:
            # The paper writes sgn(x) max(|x|, floor); at x = 0 the floor must hold too, so 0 counts as positive.
            # Not copysign, which no exporter to ONNX knows.
            magnitude = shortcut.abs().clamp_min(self.floor)
            shortcut = torch.where(shortcut < 0, -magnitude, magnitude)
        return torch.addcmul(total, shortcut, noise, value=self.gamma)


SCHEMA = 1
Strategy = Additive | Multiplicative
M = TypeVar("M", bound=nn.Module)


# Larger ones do not fit single precision once they are multiplied with a draw.
LARGEST_LEVEL = 1e30


def _check_level(strategy: Strategy, field: str) -> None:
    value = getattr(strategy, field)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= LARGEST_LEVEL:
        raise UsageError(
            f"{type(strategy).__name__}: {field} must be a number from 0 to {LARGEST_LEVEL:g}, not {value!r}."
        )
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


class _InputNoise:
    """A forward pre-hook: shorten the input to the clip radius, then add noise to it."""

    def __init__(self, strategy: Additive, source: NoiseSource, parameters: Sequence[str]) -> None:
        self.strategy = strategy
        self.source = source
        self.parameters = tuple(parameters)
        self.seen = torch.zeros((), dtype=torch.int64)
        self.clipped = torch.zeros((), dtype=torch.int64)

    def __call__(self, module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        self.source.entered += 1
        for position, value in enumerate(args):
            if _is_image_batch(value):
                return (*args[:position], self._noised(value, module.training), *args[position + 1 :]), kwargs
        for name in [*(name for name in self.parameters if name in kwargs), *kwargs]:
            if _is_image_batch(kwargs[name]):
                return args, {**kwargs, name: self._noised(kwargs[name], module.training)}
        raise UsageError(
            f"{type(module).__name__} was called without a floating-point batch, so its input noise has nowhere "
            "to go; pass images as a float tensor."
        )

    def _noised(self, batch: Tensor, training: bool) -> Tensor:
        if self.strategy.clip_radius is not None:
            norms = batch.flatten(1).float().norm(dim=1)
            factors = (self.strategy.clip_radius / norms).clamp(max=1.0)
            if _counts(batch):
                self.seen = self.seen + len(batch)
                self.clipped = self.clipped + (factors < 1).sum().to(self.clipped.device)
            # Less by what rounding can add, so that the norm is within the radius in any precision.
            rounding = max(torch.finfo(batch.dtype).eps, 8 * torch.finfo(torch.float32).eps)
            factors = torch.where(factors < 1, factors * (1 - rounding), factors)
            batch = (batch * factors.view(-1, *[1] * (batch.dim() - 1))).to(batch.dtype)
        if not self.strategy.input_std or self.source.silenced:
            return batch
        return torch.add(batch, self.source.normal(batch, training), alpha=self.strategy.input_std)


def _counts(batch: Tensor) -> bool:
    """Whether a batch is real: not one that an exporter, a tracer or vmap passes through."""
    tracing = torch.compiler.is_exporting() or torch._C._get_tracing_state() is not None
    if tracing or not isinstance(batch, Tensor):
        return False
    return torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is None


@dataclass
class _Leave:
    """A forward hook, called also if the forward pass fails: the noisy input of the model is no more."""

    source: NoiseSource

    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:
        self.source.entered -= 1


@dataclass
class _Stem:
    """A forward pre-hook on the first layer, which must not run without the noise on the model's input."""

    source: NoiseSource

    def __call__(self, module: nn.Module, args: Any) -> None:
        if self.source.entered or torch.compiler.is_compiling() or torch._C._current_graph_task_id() != -1:
            return  # in the model, or run again by gradient checkpointing
        raise UsageError(
            "a part of the perturbed model was called by itself, which skips the noise on the model's input; call "
            "the model as model(x), or perturb the part that you call."
        )


@dataclass
class _OutputNoise:
    """A forward hook on the last linear layer: ``w.x + output_std |x| n``, independently for each output."""

    strategy: Multiplicative
    source: NoiseSource

    def __call__(self, module: nn.Module, args: Any, output: Tensor) -> Tensor:
        if self.source.silenced:
            return output
        norm = args[0].norm(dim=-1, keepdim=True).to(output.dtype)  # autocast may have left the input in another
        noise = self.source.normal(output, module.training)
        return torch.addcmul(output, norm, noise, value=self.strategy.output_std)


def _keep_slow_path(module: nn.Module, args: Any) -> None:
    """A forward pre-hook: torch's transformer layer skips its own sums in ``eval()`` unless it has a hook."""


def _is_image_batch(value: Any) -> bool:
    if isinstance(value, fx.Proxy):
        return True
    return isinstance(value, Tensor) and value.is_floating_point() and value.dim() >= 2


def perturb(
    model: M, strategy: Strategy, *, targets: str | Sequence[str] | None = None, seed: int | None = None
) -> M:
    """Put ``strategy`` into the junctions of ``model``, in place, and return the model.

    The junctions are those that ``junctions(model)`` lists: networks of torchvision, timm and transformers are
    understood, and most that are written alike. A model with sums that look residual and are not understood is
    refused with the list of them; ``targets``, names of junctions or patterns such as ``"layer3.*"``, then says where
    the noise goes.

    ``seed`` makes the noise of *predictions* repeatable. Whoever knows it can compute the noise and subtract it from
    every answer, as if there were none: leave it out unless you are testing. Left out, that noise comes from the
    operating system and follows no seed; the noise of training follows ``torch.manual_seed``.

    >>> from resperturb import models
    >>> model = perturb(models.build("resnet8", num_classes=10), Additive(gamma=0.5))
    >>> strategy_of(model)
    Additive(gamma=0.5, input_std=0.25, clip_radius=None, scale='constant')
    """
    if not isinstance(strategy, Additive | Multiplicative):
        raise UsageError(f"perturb needs an Additive or a Multiplicative strategy, not {strategy!r}.")
    if not isinstance(model, nn.Module):
        raise UsageError(f"perturb needs a torch.nn.Module, not {model!r}.")
    if (present := strategy_of(model)) is not None:
        raise UsageError(f"the model is perturbed already, by {present}; start from a fresh one.")
    inner = unwrapped(model)
    if any(nn.parameter.is_lazy(parameter) for parameter in inner.parameters()):
        raise UsageError(
            "some layers do not know their sizes yet (Lazy...): call the model on a batch before perturb."
        )
    chosen = _chosen(inner, targets)
    if isinstance(strategy, Multiplicative):
        _check_shortcuts(chosen)
    members = _members(inner)
    last = [_last_linear(member) for member in members] if getattr(strategy, "output_std", 0) else []
    source = NoiseSource(seed)
    for junction in chosen:
        junction.arm()
    for junction in chosen:
        junction.set_noise(_JunctionNoise(strategy, source))
        if isinstance(junction.module, nn.TransformerEncoderLayer):
            junction.module.register_forward_pre_hook(_keep_slow_path)
    if isinstance(strategy, Additive) and (strategy.input_std or strategy.clip_radius is not None):
        for member in members:
            parameters = list(inspect.signature(type(member).forward).parameters)[1:]
            member.register_forward_pre_hook(_InputNoise(strategy, source, parameters), with_kwargs=True)
            member.register_forward_hook(_Leave(source), always_call=True)
            for stem in _first_layer(member):
                stem.register_forward_pre_hook(_Stem(source))
    for layer in last:
        assert isinstance(strategy, Multiplicative)
        layer.register_forward_hook(_OutputNoise(strategy, source))
    config: Any = getattr(inner, "config", None)
    if hasattr(config, "to_json_file"):  # transformers saves it beside the weights, and load() finds it there
        config = copy.copy(config)  # another model may have been made from it
        config.resperturb = describe(inner)
        inner.config = config
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()  # what was compiled before does not look for new hooks, and would run without noise
    return model


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside ``torch.compile`` and data parallelism, whose names are the user's own."""
    while True:
        if isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
            model = inner
        elif isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            model = model.module
        else:
            return model


def _chosen(model: nn.Module, targets: str | Sequence[str] | None) -> list[Junction]:
    """The junctions to perturb, or an error that lists what was seen."""
    for name, module in model.named_modules():
        if isinstance(module, fx.GraphModule | torch.jit.ScriptModule):
            raise UsageError(
                f"{name or 'the model'} is a traced {type(module).__name__}, whose sums cannot be perturbed; perturb "
                "the model first, then trace it."
            )
    seen = all_sums(model)
    live = [junction for junction in seen if junction.live]
    if targets is not None:
        return _targeted(live, [targets] if isinstance(targets, str) else list(targets))
    if unclear := [junction for junction in live if junction.problem]:
        understood = ", ".join(junction.name for junction in live if not junction.problem) or "none"
        possible = [junction for junction in live if not junction.problem or junction.place is not None]
        advice = "Say with targets=[...] which of all these are to be perturbed."
        if len(possible) < len(live):
            impossible = ", ".join(junction.name for junction in live if junction not in possible)
            choice = ", or say with targets=[...] which of the others are to be perturbed" if possible else ""
            advice = f"Write {impossible} as x + f(x) in a method of the module{choice}."
        raise UsageError(
            f"{type(model).__name__} has sums that look residual and are not understood:\n{_listed(unclear)}\n"
            f"Understood: {understood}.\n{advice}"
        )
    if unreadable := sorted({type(module).__qualname__ for module in unreadable_modules(model)}):
        raise UsageError(
            f"the source of {', '.join(unreadable)} cannot be read, so it is not known whether it has junctions; "
            "define it in a file" + (", or say with targets=[...] what to perturb of the rest." if live else ".")
        )
    if not live:
        raise UsageError(
            f"{type(model).__name__} has no residual junction: in none of its {len(list(model.modules()))} modules "
            "was a tensor seen that is added to a function of itself."
        )
    # What an instance does not run now it may run after an attribute is changed: the noise is there before.
    return [junction for junction in seen if not junction.problem]


def _targeted(live: list[Junction], targets: list[Any]) -> list[Junction]:
    chosen: dict[int, Junction] = {}
    for target in targets:
        exact = [j for j in live if j.name == target]
        matching = exact or [
            j for j in live if fnmatchcase(j.name, str(target)) or fnmatchcase(j.name.partition(":")[0], str(target))
        ]
        if not matching:
            names = ", ".join(junction.name for junction in live) or "none"
            raise UsageError(f"no junction matches the target {target!r}; there are: {names}.")
        chosen.update({live.index(junction): junction for junction in matching})
    if not chosen:
        raise UsageError("targets is empty, so nothing would be perturbed; leave it out to perturb every junction.")
    if impossible := [j for j in chosen.values() if j.problem and j.place is None]:
        raise UsageError(f"these sums cannot be perturbed:\n{_listed(impossible)}")
    return [chosen[position] for position in sorted(chosen)]


def _listed(sums: Sequence[Junction]) -> str:
    return "\n".join(f"  {junction.name}: {junction.text!r} ({junction.problem})" for junction in sums)


def _check_shortcuts(chosen: Sequence[Junction]) -> None:
    if not all(junction.has_shortcut for junction in chosen):
        raise UsageError(
            "multiplicative noise is scaled by the shortcut's value, and this network has no skip connections; "
            "use Additive."
        )
    if unclear := [j for j in chosen if j.place is not None and j.place.shortcut is None]:
        raise UsageError(
            "multiplicative noise is scaled by the shortcut's value, and it is not clear which side of these sums is "
            f"the shortcut; use Additive, or leave them out of the targets:\n{_listed(unclear)}"
        )


def _members(model: nn.Module) -> list[nn.Module]:
    """What sees the input: the networks of an ensemble, each noised by itself, or the model."""
    networks = getattr(model, "networks", None)
    return list(networks) if isinstance(networks, nn.ModuleList) else [model]


def _first_layer(model: nn.Module) -> list[nn.Module]:
    layers = (module for module in model.modules() if next(module.parameters(recurse=False), None) is not None)
    return [layer for layer in itertools.islice(layers, 1) if layer is not model]


def _last_linear(model: nn.Module) -> nn.Linear:
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not layers:
        raise UsageError(f"{type(model).__name__} has no linear layer for output_std to go to.")
    return layers[-1]


def _noises(model: nn.Module) -> list[_JunctionNoise]:
    return [slot.noise for slot in slots_of(model) if isinstance(slot.noise, _JunctionNoise)]


def strategy_of(model: nn.Module) -> Strategy | None:
    """Say what perturbs ``model``; None if nothing does."""
    noises = _noises(model)
    return noises[0].strategy if noises else None


def perturbed_junctions(model: nn.Module) -> list[str]:
    """Name the junctions of ``model`` that have noise.

    >>> from resperturb import models
    >>> perturbed_junctions(perturb(models.build("resnet8", num_classes=10), Additive(gamma=0.5), targets="*.2"))
    ['blocks.2']
    """
    return [junction.name for junction in all_sums(model) if junction.live and junction.noise is not None]


def describe(model: nn.Module) -> dict[str, Any]:
    """Describe what perturbs ``model``, and where, as plain data that is saved with the weights.

    >>> from resperturb import models
    >>> describe(models.build("resnet8", num_classes=10))
    {'schema': 1, 'strategy': {'name': 'none'}, 'junctions': []}
    """
    strategy = strategy_to_dict(strategy_of(model))
    return {"schema": SCHEMA, "strategy": strategy, "junctions": perturbed_junctions(model)}


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
    return sum(int(hook.clipped) for hook in hooks), sum(int(hook.seen) for hook in hooks)
