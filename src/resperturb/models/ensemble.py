"""En_k: k noise-injected networks on the same batch, their logits averaged, trained as one (arXiv:1811.10745)."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Ensemble(nn.Module):
    """The mean of its networks' logits; ``perturb`` noises every network by itself, inputs included.

    >>> ensemble = Ensemble([nn.Linear(3, 2) for _ in range(5)])
    >>> ensemble(torch.zeros(7, 3)).shape
    torch.Size([7, 2])
    """

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, x: Tensor) -> Tensor:
        """Return the averaged logits."""
        return torch.stack([network(x) for network in self.networks]).mean(dim=0)
