"""Where shortcut and branch meet: the places of a network that the noise goes to.

A residual block ends its sum with :func:`join`. Unperturbed, that is ``shortcut + branch``; a perturbed model has a
:class:`JunctionNoise` there. Nothing is wrapped and nothing is added to the ``state_dict``.
"""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

_SLOT = "_junction_noise"


class JunctionNoise(Protocol):
    """What :func:`perturb` leaves at a junction."""

    def __call__(self, total: Tensor, shortcut: Tensor | None, training: bool) -> Tensor:
        """Add the noise to the sum ``total``; ``shortcut`` is None where a network has no skip connections."""


class HasJunction(nn.Module):
    """A module class whose ``forward`` ends its residual sum with :func:`join`."""

    has_shortcut: bool = True


@dataclass(frozen=True)
class Junction:
    """One place where shortcut and branch meet, by the name of the module that adds them."""

    name: str
    module: nn.Module

    @property
    def has_shortcut(self) -> bool:
        """Whether there is a shortcut to add: false in the ablation without skip connections."""
        return bool(getattr(self.module, "has_shortcut", True))

    @property
    def noise(self) -> JunctionNoise | None:
        """What perturbs this junction, if anything does."""
        return getattr(self.module, _SLOT, None)

    def set_noise(self, noise: JunctionNoise | None) -> None:
        """Put noise here, or take it away."""
        setattr(self.module, _SLOT, noise)


def join(module: nn.Module, shortcut: Tensor | None, branch: Tensor) -> Tensor:
    """Add ``branch`` to ``shortcut`` in the forward pass of ``module``, with the module's noise if it has some."""
    total = branch if shortcut is None else shortcut + branch
    noise: JunctionNoise | None = getattr(module, _SLOT, None)
    return total if noise is None else noise(total, shortcut, module.training)


def junctions(model: nn.Module) -> list[Junction]:
    """List the junctions of ``model`` in the order of its modules.

    >>> from resperturb import models
    >>> [junction.name for junction in junctions(models.build("resnet8", num_classes=10))]
    ['blocks.0', 'blocks.1', 'blocks.2']
    """
    return [Junction(name, module) for name, module in model.named_modules() if isinstance(module, HasJunction)]
