"""En_k: k noise-injected networks on the same batch, their logits averaged, trained as one (arXiv:1811.10745)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

# What the networks were called in files that were saved before version 0.2.
OLD_PREFIX, PREFIX = "members.", "networks."


class Ensemble(nn.Module):
    """The mean of its networks' logits; ``perturb`` noises every network by itself, inputs included.

    >>> ensemble = Ensemble([nn.Linear(3, 2) for _ in range(5)])
    >>> ensemble(torch.zeros(7, 3)).shape
    torch.Size([7, 2])
    """

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)
        self.register_load_state_dict_pre_hook(_rename)  # type: ignore[no-untyped-call]

    def forward(self, x: Tensor) -> Tensor:
        """Return the averaged logits."""
        return torch.stack([network(x) for network in self.networks]).mean(dim=0)

    @staticmethod
    def current_name(name: str) -> str:
        """Give today's name of a weight or junction of a file that an older version saved.

        >>> Ensemble.current_name("members.0.stem.weight")
        'networks.0.stem.weight'
        """
        return PREFIX + name.removeprefix(OLD_PREFIX) if name.startswith(OLD_PREFIX) else name


def _rename(module: nn.Module, state: dict[str, Any], prefix: str, *args: Any) -> None:
    for name in [name for name in state if name.startswith(prefix + OLD_PREFIX)]:
        state[prefix + Ensemble.current_name(name.removeprefix(prefix))] = state.pop(name)
