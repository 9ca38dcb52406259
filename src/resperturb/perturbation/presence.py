"""Is the noise that a model is said to have still there?

:func:`check_presence` looks at the model: code that clears its hooks, or replaces its head, first layer or a block,
takes noise away, and ``strategy_of`` raises instead of reporting what was. :func:`verify_noise` measures.
"""

import itertools
import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from resperturb.errors import ResperturbError, UsageError
from resperturb.noise import Draw, NoiseSource
from resperturb.noise.rounding import NoiseLostError, added, is_half
from resperturb.perturbation.junctions import JunctionNoise, Slot, is_reached, slots_of
from resperturb.perturbation.strategy import NoisyPlace, Probe, Strategy

MARK = "_perturbation"
# Of a place that has its noise the test calls one in a million absent; fewer elements than these are drawn again.
SIGNIFICANT = 4.9
ELEMENTS = 2000
MOST_CALLS = 64


@dataclass
class StrategyNoise:
    """The noise of one junction. All junctions of a model share the strategy and the source."""

    strategy: Strategy
    source: NoiseSource

    def __call__(self, left: Tensor, right: Tensor | None, shortcut: Tensor | None, training: bool) -> Tensor:
        """Add the sides, and the noise unless it is silenced."""
        if not self.strategy.is_noisy_at_junctions or self.source.silenced:
            return left if right is None else left + right
        noise = self.source.draw(training)
        if right is not None and shortcut is not None and (self.strategy.sums_by_draw or not is_half(left)):
            return self.strategy.apply_to_sum(left, right, shortcut, noise)
        return added(self.strategy.apply, left if right is None else left + right, shortcut, noise, "a junction")


@dataclass(frozen=True)
class Mark:
    """What ``perturb`` leaves on the model that it was called on, to be compared with what is there later."""

    strategy: Strategy
    source: NoiseSource
    junctions: int


def networks_of(model: nn.Module) -> list[nn.Module]:
    """List what sees the input: the networks of an ensemble, each noised by itself, or the model."""
    networks = getattr(model, "networks", None)
    return list(networks) if isinstance(networks, nn.ModuleList) else [model]


def noises_of(model: nn.Module) -> list[StrategyNoise]:
    """List the noise at the junctions of ``model``."""
    return [slot.noise for _, _, slot in slots_of(model) if isinstance(slot.noise, StrategyNoise)]


def sources_of(model: nn.Module) -> list[NoiseSource]:
    """List the sources that ``model`` draws from: mostly one."""
    return list({id(noise.source): noise.source for noise in noises_of(model)}.values())


@contextmanager
def reseeded(model: nn.Module, seed: int | None) -> Iterator[None]:
    """Draw prediction noise from ``seed``, or from the operating system, inside a ``with`` block."""
    before = [(source, source.seed, source._drawn) for source in sources_of(model)]
    for source, _, _ in before:
        source.reseed(seed)
    try:
        yield
    finally:
        for source, old, drawn in before:
            source.seed, source._drawn = old, drawn


def marks_of(model: nn.Module) -> list[tuple[nn.Module, Mark]]:
    """List the parts of ``model`` that ``perturb`` was called on."""
    return [(module, mark) for module in model.modules() if isinstance(mark := vars(module).get(MARK), Mark)]


def check_presence(model: nn.Module) -> None:
    """Make sure that nothing was taken out of ``model`` since it was perturbed, as far as one sees without a batch.

    Raises:
        NoiseLostError: Hooks were cleared, layers were replaced, or methods were put over those with the noise.
    """
    lost = list(_lost(model))
    if lost:
        raise NoiseLostError(
            f"{type(model).__name__} was perturbed and has lost noise: {'; '.join(lost)}. Perturb a model after its "
            "layers are in place, and leave its hooks."
        )


def _lost(model: nn.Module) -> Iterator[str]:
    marks = marks_of(model)
    for module, mark in marks:
        slots = [s for _, _, s in slots_of(module) if getattr(s.noise, "source", mark.source) is mark.source]
        if len(slots) < mark.junctions:
            yield f"{mark.junctions - len(slots)} of its {mark.junctions} junctions are gone"
        yield from mark.strategy.lost(networks_of(module), mark.source)
    for name, module, slot in slots_of(model):
        if not is_reached(module, slot):
            yield f"another method was put over the one with the noise of {name}"
    if not marks and isinstance(model, fx.GraphModule):
        noises = noises_of(model)
        for noise in noises[:1]:
            yield from noise.strategy.lost([model], noise.source)
        if not noises and any(node.target is torch.ops.resperturb.normal.default for node in model.graph.nodes):
            yield "its junctions are operations of a traced graph, and noise on its input or output was not traced"


@dataclass(frozen=True)
class NoiseAt:
    """The noise that was measured at one place.

    Args:
        where: ``input``, ``output``, the name of the junction, or ``model`` for what was taken out of it.
        kind: What kind of place it is.
        elements: The number of elements that should have been noised, over all calls.
        std: The standard deviation of what was added, in units of what the strategy says; 0 if there was nothing.
        problem: What is wrong; empty if the noise is there with its variance.
    """

    where: str
    kind: NoisyPlace
    elements: int
    std: float
    problem: str = ""

    @property
    def ok(self) -> bool:
        """Whether the noise is there with its variance, fresh at every call."""
        return not self.problem


@dataclass(frozen=True)
class NoiseCheck:
    """What :func:`verify_noise` measured."""

    strategy: Strategy
    places: tuple[NoiseAt, ...]

    @property
    def ok(self) -> bool:
        """Whether all the noise of the strategy is there."""
        return all(place.ok for place in self.places)

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong, one sentence per place."""
        return tuple(f"{place.where}: {place.problem}" for place in self.places if not place.ok)

    def require(self) -> None:
        """Insist on the noise.

        Raises:
            NoiseLostError: Some of it is not there.
        """
        if not self.ok:
            raise NoiseLostError(f"the noise of {self.strategy} is not all there: {'; '.join(self.problems)}.")


def verify_noise(model: nn.Module, batch: Any) -> NoiseCheck:
    """Measure at each junction, on the input and on the output that the noise of ``model`` is there.

    The model runs a few times in ``eval()`` without gradients and is left as it was. Each place must add noise with
    the variance that the strategy says, within what chance allows, and fresh noise at every call. The answers of two
    calls must differ.

    Args:
        model: A model that was perturbed.
        batch: What the model is called with: a tensor, a tuple of arguments, or a dict of keyword arguments.

    Returns:
        The measured noise of every place; ``.ok`` if all of it is there, ``.problems`` otherwise.

    Raises:
        UsageError: The model is not perturbed, or by a strategy without noise.

    >>> import resperturb as rp
    >>> model = rp.perturb(rp.models.build("resnet8", num_classes=10), rp.Additive(gamma=0.5))
    >>> found = verify_noise(model, torch.zeros(4, 3, 32, 32))
    >>> found.ok, [place.where for place in found.places]
    (True, ['input', 'blocks.0', 'blocks.1', 'blocks.2'])
    """
    noises = noises_of(model)
    if not noises:
        raise UsageError(f"{type(model).__name__} is not perturbed, so there is no noise to verify.")
    strategy = noises[0].strategy
    if not strategy.is_noisy:
        raise UsageError(f"{strategy} adds no noise, so there is none to verify.")
    probes: list[Probe] = []
    if strategy.is_noisy_at_junctions:
        probes += [_Recorder(name, slot) for name, _, slot in slots_of(model) if slot.live]
    probes += [p for m, mark in _marked(model) for p in mark.strategy.probes(networks_of(m), mark.source)]
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(reseeded(model, None))
        for module in model.modules():
            stack.callback(setattr, module, "training", module.training)
        model.eval()
        problems = list(_lost(model))
        for probe in probes:
            probe.attach()
            stack.callback(probe.detach)
        answers: list[list[Tensor]] = []
        try:
            for _ in range(MOST_CALLS):
                answers = [*answers[:1], _numbers(_call(model, batch))]
                if len(answers) > 1 and all(
                    len(draws := probe.draws()) > 1 and sum(map(torch.numel, draws)) >= ELEMENTS for probe in probes
                ):
                    break
        except ResperturbError as error:  # a guard may have stopped the call
            if not problems and isinstance(error, UsageError):
                raise
            problems = problems or [str(error)]
        if len(answers) > 1 and answers[0] and all(map(torch.equal, *answers)):
            problems.append("two calls with noise gave the same answer, so no noise reaches it")
    places = [NoiseAt("model", "model", 0, 0.0, problem) for problem in problems]
    places += [_measured(probe.where, probe.kind, probe.draws()) for probe in probes]
    order = ("model", "input", "junction", "output")
    return NoiseCheck(strategy, tuple(sorted(places, key=lambda place: order.index(place.kind))))


def _marked(model: nn.Module) -> list[tuple[nn.Module, Mark]]:
    """The parts that were perturbed; a traced or taken out part must have all the noise of its strategy by itself."""
    if marks := marks_of(model):
        return marks
    noise = noises_of(model)[0]
    return [(model, Mark(noise.strategy, noise.source, 0))]


def _call(model: nn.Module, batch: Any) -> Any:
    """Call the model with a copy of the batch, which it may change in place."""
    batch = pytree.tree_map_only(Tensor, Tensor.clone, batch)
    if isinstance(batch, dict):
        return model(**batch)
    return model(*batch) if isinstance(batch, tuple | list) else model(batch)


def _numbers(answer: Any) -> list[Tensor]:
    """Copy the floating-point tensors of an answer, which the next call may write over."""
    return [x.clone() for x in pytree.tree_leaves(answer) if isinstance(x, Tensor) and x.is_floating_point()]


def _measured(where: str, kind: NoisyPlace, draws: list[Tensor]) -> NoiseAt:
    if not draws:
        return NoiseAt(where, kind, 0, 0.0, "nothing was added here in any call")
    flat = torch.cat([draw.flatten() for draw in draws])
    count, std = flat.numel(), float(flat.std())
    if not count:
        return NoiseAt(where, kind, 0, 0.0, "there is nothing to scale the noise by: all of the shortcut is 0")
    problem = ""
    if std == 0:
        problem = "there is no noise"
    elif abs(std**2 - 1) > SIGNIFICANT * math.sqrt(2 / count) + 0.05:  # half precision rounds the noise, too
        problem = f"the noise has {std:.3g} times the standard deviation that it should have"
    elif abs(float(flat.mean())) > SIGNIFICANT / math.sqrt(count) + 0.05:
        problem = f"the noise has the mean {float(flat.mean()):.3g} standard deviations, not 0"
    elif _repeats(draws):
        problem = "the same noise was added in two calls"
    return NoiseAt(where, kind, count, std, problem)


def _repeats(draws: list[Tensor]) -> bool:
    """Whether two calls got the same noise, not only noise of the same size."""
    alike = [(a, b) for a, b in itertools.pairwise(draws) if a.shape == b.shape and a.numel() > 1]
    return any(bool(torch.isclose(a, b, rtol=1e-3).all()) for a, b in alike)


class _Recorder(Probe):
    """Stands at a junction, and notes what was added there in units of what should be."""

    kind = "junction"

    def __init__(self, where: str, slot: Slot) -> None:
        self.where = where
        self.slot, self.noise = slot, slot.noise
        self.found: list[Tensor] = []

    def attach(self) -> None:
        self.slot.noise = self

    def detach(self) -> None:
        self.slot.noise = self.noise

    def draws(self) -> list[Tensor]:
        return self.found

    def __call__(self, left: Tensor, right: Tensor | None, shortcut: Tensor | None, training: bool) -> Tensor:
        wide = (left if right is None else left + right).double()
        given = None if shortcut is None else shortcut.double()
        noisy = self.noise(left, right, shortcut, training)
        noise: JunctionNoise = self.noise
        if isinstance(noise, StrategyNoise):
            scale = noise.strategy.apply(wide, given, _Ones(noise.source, training)) - wide
            meant = scale.abs() > 0
            self.found.append((noisy.double() - wide)[meant] / scale[meant])
        return noisy


class _Ones(Draw):
    """A draw of which every number is 1: what is added with it is the scale of the noise."""

    def add(self, x: Tensor, scale: float, plus: Tensor | None = None) -> Tensor:
        return (x if plus is None else x + plus) + scale

    def addcmul(self, x: Tensor, factor: Tensor, scale: float, plus: Tensor | None = None) -> Tensor:
        return (x if plus is None else x + plus) + scale * factor

    def like(self, x: Tensor) -> Tensor:
        return torch.ones_like(x)
