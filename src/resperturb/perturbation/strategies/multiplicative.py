"""Strategy II: noise in proportion to the shortcut's value."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from resperturb.errors import UsageError
from resperturb.noise import Draw, NoiseSource
from resperturb.noise.rounding import NoiseLostError, added
from resperturb.perturbation.strategy import Probe, Strategy, TrainingFacts, check_level, register_strategy

if TYPE_CHECKING:
    from resperturb.privacy import Guarantee


@register_strategy("multiplicative")
@dataclass(frozen=True)
class Multiplicative(Strategy):
    """Strategy II: ``x + F(x) + gamma x~ n`` with ``|x~| = max(|x|, floor)``, and noise on the last layer's outputs.

    Args:
        gamma: The standard deviation of the noise in units of the shortcut's value.
        floor: The least magnitude that the noise is scaled by, the paper's eta.
        output_std: The noise of the last linear layer in units of the norm of its input, the paper's pi.

    ``floor`` and ``output_std`` are 0 in the paper's experiments, and must be positive for its Theorem 2.

    >>> Multiplicative(gamma=2.0)
    Multiplicative(gamma=2.0, floor=0.0, output_std=0.0)
    """

    gamma: float
    floor: float = 0.0
    output_std: float = 0.0

    needs_shortcut: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("gamma", "floor", "output_std"):
            check_level(self, name)

    @property
    def is_noisy(self) -> bool:
        """Whether gamma or the noise on the outputs is positive."""
        return self.gamma > 0 or self.output_std > 0

    @property
    def is_noisy_at_junctions(self) -> bool:
        """Whether gamma is positive."""
        return self.gamma > 0

    @property
    def sums_by_draw(self) -> bool:
        """Whether there is no floor, which half precision would round."""
        return self.floor == 0

    def apply(self, total: Tensor, shortcut: Tensor | None, noise: Draw) -> Tensor:
        """Return ``total + gamma x~ noise`` with ``x~`` the shortcut's value, no smaller than the floor."""
        assert shortcut is not None  # perturb() refuses networks without shortcuts
        # Autocast may leave the two sides of a sum in different precisions.
        return noise.addcmul(total, self._floored(shortcut.to(total.dtype)), self.gamma)

    def apply_to_sum(self, left: Tensor, right: Tensor, shortcut: Tensor, noise: Draw) -> Tensor:
        """Return ``left + right + gamma x~ noise``."""
        branch = right if shortcut is left else left
        return noise.addcmul(shortcut, self._floored(shortcut), self.gamma, plus=branch)

    def _floored(self, shortcut: Tensor) -> Tensor:
        if self.floor == 0:
            return shortcut
        # The paper writes sgn(x) max(|x|, floor); at x = 0 the floor must hold too, so 0 counts as positive.
        # Not copysign, which no exporter to ONNX knows.
        magnitude = shortcut.abs().clamp_min(self.floor)
        return torch.where(shortcut < 0, -magnitude, magnitude)

    def check(self, networks: Sequence[nn.Module]) -> None:
        """Refuse networks without a linear layer to noise."""
        if self.output_std:
            for network in networks:
                last_linear(network)

    def install(self, networks: Sequence[nn.Module], source: NoiseSource) -> None:
        """Noise the outputs of the last linear layer of every network."""
        if self.output_std:
            for network, layer in [(network, last_linear(network)) for network in networks]:
                layer.register_forward_hook(OutputNoise(self, source))
                network.register_forward_pre_hook(LastLayerGuard(self, source))

    def lost(self, networks: Sequence[nn.Module], source: NoiseSource) -> list[str]:
        """Say whether the noise on the outputs is gone."""
        phrases = []
        for network in networks if self.output_std else ():
            layers = [module for module in network.modules() if isinstance(module, nn.Linear)]
            hooks = layers[-1]._forward_hooks.values() if layers else ()
            if not any(isinstance(hook, OutputNoise) and hook.source is source for hook in hooks):
                phrases.append(
                    f"the last layer of {type(network).__name__} was replaced, or its hooks removed, and with it the "
                    "noise on the outputs"
                )
        return phrases

    def probes(self, networks: Sequence[nn.Module], source: NoiseSource) -> list[Probe]:
        """Measure the noise on the outputs of every network."""
        return [OutputProbe(last_linear(network), self.output_std) for network in networks] if self.output_std else []

    def guarantee(self, facts: TrainingFacts, delta: float) -> "Guarantee":
        """Say that nothing is proven: Theorem 2 is about answers, and about networks without a stem."""
        from resperturb.privacy.guarantee import nothing_proven

        return nothing_proven(
            "The multiplicative strategy proves nothing about the weights, nor for a network with a stem.", delta
        )


@dataclass
class OutputNoise:
    """A forward hook on the last linear layer: ``w.x + output_std |x| n``, independently for each output."""

    strategy: Multiplicative
    source: NoiseSource

    def __call__(self, module: nn.Module, args: Any, output: Tensor) -> Tensor:
        """Add the noise, unless it is silenced."""
        if self.source.silenced:
            return output
        std = self.strategy.output_std
        return added(
            lambda total, norm, noise: noise.addcmul(total, norm, std),
            output,
            args[0].norm(dim=-1, keepdim=True).to(output.dtype),  # autocast may have left the input in another
            self.source.draw(module.training),
            "the output",
        )


@dataclass
class LastLayerGuard:
    """A forward pre-hook on a network, which must not answer without the noise on its outputs."""

    strategy: Multiplicative
    source: NoiseSource

    def __call__(self, module: nn.Module, args: Any) -> None:
        """Refuse to answer if the noise is gone."""
        if not torch.compiler.is_compiling() and (lost := self.strategy.lost([module], self.source)):
            raise NoiseLostError(
                f"the model would answer without its noise: {lost[0]}; perturb the model after that."
            )


def last_linear(network: nn.Module) -> nn.Linear:
    """Return the last linear layer of ``network``.

    Raises:
        UsageError: It has none.
    """
    layers = [module for module in network.modules() if isinstance(module, nn.Linear)]
    if not layers:
        raise UsageError(f"{type(network).__name__} has no linear layer for output_std to go to.")
    return layers[-1]


class OutputProbe(Probe):
    """Compares the outputs of a linear layer with those that its weights give."""

    def __init__(self, layer: nn.Linear, std: float) -> None:
        self.where = "output"
        self.layer, self.std = layer, std
        self.found: list[Tensor] = []

    def attach(self) -> None:
        """Look at the outputs after all other hooks."""

        def look(module: nn.Module, args: Any, output: Tensor) -> None:
            plain = self.layer.forward(args[0])
            norm = args[0].norm(dim=-1, keepdim=True).double()
            self.found.append((output.double() - plain.double()) / (self.std * norm))

        self.handle = self.layer.register_forward_hook(look)

    def draws(self) -> list[Tensor]:
        """Return what was added to the outputs, in units of ``output_std |x|``."""
        return self.found
