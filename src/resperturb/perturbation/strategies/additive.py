"""Strategy I: constant input noise, and constant noise on every residual sum."""

import inspect
import itertools
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch
from torch import Tensor, fx, nn

from resperturb.errors import UsageError
from resperturb.noise import Draw, NoiseSource
from resperturb.noise.rounding import added, autocast_type
from resperturb.perturbation.strategy import Probe, Strategy, TrainingFacts, check_level, register_strategy

if TYPE_CHECKING:
    from resperturb.privacy import Guarantee


@register_strategy("additive")
@dataclass(frozen=True)
class Additive(Strategy):
    """Strategy I: ``x + F(x) + gamma n`` in every block, and ``input + input_std n`` before the first.

    Args:
        gamma: The standard deviation of the noise on every residual sum.
        input_std: The standard deviation of the input noise, the paper's pi; left out, it is ``gamma / 2`` as
            in all of the paper's experiments.
        clip_radius: Shortens every input to at most this Euclidean norm first, which turns the radius that a privacy
            guarantee must otherwise assume into one that is enforced.
        scale: ``"batch_std"`` multiplies gamma by the standard deviation of the whole batch at each junction, as the
            code of EnResNet (arXiv:1811.10745) does. It is there for comparison: noise that depends on the batch
            carries information from one example to another, and no bound of this package covers it.

    >>> Additive(gamma=0.5)
    Additive(gamma=0.5, input_std=0.25, clip_radius=None, scale='constant')
    """

    gamma: float
    input_std: float | None = None
    clip_radius: float | None = None
    scale: Literal["constant", "batch_std"] = "constant"

    def __post_init__(self) -> None:
        check_level(self, "gamma")
        if self.input_std is None:
            object.__setattr__(self, "input_std", self.gamma / 2)
        check_level(self, "input_std")
        if self.clip_radius is not None:
            check_level(self, "clip_radius")
            if self.clip_radius == 0:
                raise UsageError("Additive: clip_radius must be positive; 0 would erase every input.")
        if self.scale not in ("constant", "batch_std"):
            raise UsageError(f"Additive: scale must be 'constant' or 'batch_std', not {self.scale!r}.")

    @property
    def is_noisy(self) -> bool:
        """Whether gamma or the input noise is positive."""
        return self.gamma > 0 or bool(self.input_std)

    @property
    def is_noisy_at_junctions(self) -> bool:
        """Whether gamma is positive."""
        return self.gamma > 0

    @property
    def mixes_records(self) -> bool:
        """Whether gamma is scaled by the whole batch."""
        return self.scale == "batch_std"

    @property
    def sums_by_draw(self) -> bool:
        """Whether gamma is a constant."""
        return not self.mixes_records

    def apply(self, total: Tensor, shortcut: Tensor | None, noise: Draw) -> Tensor:
        """Return ``total + gamma noise``."""
        if self.mixes_records:
            return total + self.gamma * total.detach().std() * noise.like(total)
        return noise.add(total, self.gamma)

    def apply_to_sum(self, left: Tensor, right: Tensor, shortcut: Tensor, noise: Draw) -> Tensor:
        """Return ``left + right + gamma noise``."""
        if self.mixes_records:
            return super().apply_to_sum(left, right, shortcut, noise)
        return noise.add(shortcut, self.gamma, plus=right if shortcut is left else left)

    def install(self, networks: Sequence[nn.Module], source: NoiseSource) -> None:
        """Noise the input of every network, and keep their first layers from being called past that noise."""
        if self.changes_input:
            for network in networks:
                parameters = list(inspect.signature(type(network).forward).parameters)[1:]
                network.register_forward_pre_hook(InputNoise(self, source, tuple(parameters)), with_kwargs=True)
                for layer in first_layer(network):
                    layer.register_forward_pre_hook(FirstLayerGuard(source))

    @property
    def changes_input(self) -> bool:
        """Whether the input of a network is noised or shortened."""
        return bool(self.input_std) or self.clip_radius is not None

    def lost(self, networks: Sequence[nn.Module], source: NoiseSource) -> list[str]:
        """Say whether the input noise, or the guard of a first layer, is gone."""
        phrases = []
        for network in networks if self.changes_input else ():
            if not _hooks(network, InputNoise, source):
                phrases.append(f"the hook that noises the input of {type(network).__name__} was removed")
            if not all(_hooks(layer, FirstLayerGuard, source) for layer in first_layer(network)):
                phrases.append(
                    f"the first layer of {type(network).__name__} was replaced, or its hooks removed, so that a part "
                    "called by itself would skip the input noise"
                )
        return phrases

    def probes(self, networks: Sequence[nn.Module], source: NoiseSource) -> list[Probe]:
        """Measure the input noise of every network."""
        return [InputProbe(network, self.input_std) for network in networks] if self.input_std else []

    def guarantee(self, facts: TrainingFacts, delta: float) -> "Guarantee":
        """Bound what the weights reveal by the input noise, since all else is computed from noised inputs."""
        from resperturb.privacy.additive import additive_guarantee
        from resperturb.privacy.guarantee import nothing_proven
        from resperturb.privacy.length import training_length

        if self.scale != "constant":
            return nothing_proven("Noise that is scaled by the batch is covered by no proof.", delta)
        if not self.input_std:
            return nothing_proven("There is no input noise, and the proof rests on that alone.", delta)
        return additive_guarantee(
            input_std=self.input_std,
            radius=facts.input_radius if self.clip_radius is None else min(facts.input_radius, self.clip_radius),
            length=training_length(
                epochs=facts.epochs, batch_size=facts.batch_size, records=max(facts.records, facts.batch_size)
            ),
            delta=delta,
            networks=facts.networks,
            radius_status="enforced",
        )


@dataclass
class InputNoise:
    """A forward pre-hook: shorten the input to the clip radius, then add noise to it."""

    strategy: Additive
    source: NoiseSource
    parameters: tuple[str, ...]

    def __call__(self, module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """Change the batch among the arguments."""
        where = find_batch(args, kwargs, self.parameters)
        if (inputs := sum(_float_tensors(value) for value in (*args, *kwargs.values()))) > 1:
            raise UsageError(
                f"{type(module).__name__} was called with {inputs} floating-point tensors, and input noise covers "
                "one alone; pass them as one tensor, or perturb with input_std=0 and no clip_radius."
            )
        if where is None:
            raise UsageError(
                f"{type(module).__name__} was called without a floating-point batch, so its input noise has nowhere "
                "to go; pass images as a float tensor."
            )
        if isinstance(where, int):
            return (*args[:where], self._noised(args[where], module.training), *args[where + 1 :]), kwargs
        return args, {**kwargs, where: self._noised(kwargs[where], module.training)}

    def _noised(self, batch: Tensor, training: bool) -> Tensor:
        assert self.strategy.input_std is not None
        if self.strategy.clip_radius is not None:
            batch = shortened(batch, self.strategy.clip_radius)
        if not self.strategy.input_std or self.source.silenced:
            return batch
        std = self.strategy.input_std
        return added(
            lambda total, _, noise: noise.add(total, std),
            batch,
            None,
            self.source.draw(training),
            "the input",
            autocast_type(batch),
        )


def shortened(batch: Tensor, radius: float) -> Tensor:
    """Scale the examples of a batch down to Euclidean norms of at most ``radius``, which no rounding exceeds.

    NaN becomes 0; an example with an infinite value becomes zeros.

    >>> shortened(torch.tensor([[1.0, 2.0], [30.0, 40.0]]), radius=5.0).tolist()
    [[1.0, 2.0], [2.999..., 3.999...]]
    """
    wide = batch.to(torch.float32 if batch.device.type == "mps" else torch.float64).nan_to_num(nan=0.0)
    flat, precision = wide.flatten(1), torch.finfo(batch.dtype)
    # Larger by all that a sum of this many squares can be rounded by.
    norms = flat.norm(dim=1) * (1 + (flat.shape[1] + 8) * torch.finfo(wide.dtype).eps)
    norms = norms.view(-1, *[1] * (batch.dim() - 1))
    scaled = wide * (radius / norms)
    # Towards 0 by what the conversion can round, of numbers below the normal ones too.
    magnitude = scaled.abs() * (1 - precision.eps) - precision.smallest_normal * precision.eps
    return torch.where(norms <= radius, wide, scaled.sign() * magnitude.clamp_min(0)).to(batch.dtype)


def find_batch(args: Sequence[Any], kwargs: dict[str, Any], parameters: Sequence[str]) -> int | str | None:
    """Say which argument of a call is the batch of images: its position or its name; None if none is."""
    for position, value in enumerate(args):
        if _is_image_batch(value):
            return position
    names = [*(name for name in parameters if name in kwargs), *kwargs]
    return next((name for name in names if _is_image_batch(kwargs[name])), None)


def _float_tensors(value: Any) -> int:
    """Count the floating-point tensors in an argument that can hold something of a record."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return sum(map(_float_tensors, value))
    return int(isinstance(value, Tensor) and value.is_floating_point() and value.dim() > 0)


def _is_image_batch(value: Any) -> bool:
    if isinstance(value, fx.Proxy):
        return True
    return isinstance(value, Tensor) and value.is_floating_point() and value.dim() >= 2


@dataclass
class FirstLayerGuard:
    """A forward pre-hook on the first layer, which must not run without the noise on the model's input."""

    source: NoiseSource

    def __call__(self, module: nn.Module, args: Any) -> None:
        """Refuse a call that does not come through the network."""
        if torch.compiler.is_compiling() or torch._C._current_graph_task_id() != -1:
            return  # compiled with the model around it, or run again by gradient checkpointing
        if not self._within_a_call():
            raise UsageError(
                "a part of the perturbed model was called by itself, which skips the noise on the model's input; "
                "call the model as model(x), or perturb the part that you call."
            )

    def _within_a_call(self) -> bool:
        """Whether a network with noise on its input is being called, in this thread and now.

        The stack says so, where a counter would stay up after an interrupt and would count calls of other threads.
        """
        frame = sys._getframe()
        while (frame := frame.f_back) is not None:  # type: ignore[assignment]
            if frame.f_code is _CALL and _hooks(frame.f_locals["self"], InputNoise, self.source):
                return True
        return False


H = TypeVar("H", InputNoise, FirstLayerGuard)
_CALL = nn.Module._call_impl.__code__


def _hooks(module: nn.Module, kind: type[H], source: NoiseSource) -> list[H]:
    return [h for h in module._forward_pre_hooks.values() if isinstance(h, kind) and h.source is source]


def first_layer(network: nn.Module) -> list[nn.Module]:
    """Return the first layer with weights, if it is another module than ``network``."""
    layers = (module for module in network.modules() if next(module.parameters(recurse=False), None) is not None)
    return [layer for layer in itertools.islice(layers, 1) if layer is not network]


class InputProbe(Probe):
    """Takes the difference of what two calls with one batch let in, in units of the noise that should be there."""

    kind = "input"

    def __init__(self, network: nn.Module, std: float) -> None:
        self.where = "input"
        self.network, self.std = network, std
        self.inputs: list[Tensor] = []

    def attach(self) -> None:
        """Look at what comes in after all other hooks."""

        def look(module: nn.Module, args: Any, kwargs: Any) -> None:
            where = find_batch(args, kwargs, ())
            if where is not None:
                self.inputs.append((args[where] if isinstance(where, int) else kwargs[where]).detach().double())

        self.handle = self.network.register_forward_pre_hook(look, with_kwargs=True)

    def draws(self) -> list[Tensor]:
        """Return the differences of successive inputs, each of variance 1."""
        pairs = itertools.pairwise(self.inputs)
        return [(one - other) / (self.std * 2**0.5) for one, other in pairs if one.shape == other.shape]
