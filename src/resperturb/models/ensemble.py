"""En_k: k noise-injected networks on the same batch, their logits averaged, trained as one (arXiv:1811.10745)."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Ensemble(nn.Module):
    """The mean of its members' logits; ``perturb`` noises every member by itself, inputs included.

    >>> ensemble = Ensemble([nn.Linear(3, 2) for _ in range(5)])
    >>> ensemble(torch.zeros(7, 3)).shape
    torch.Size([7, 2])
    """

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, x: Tensor) -> Tensor:
        """Return the averaged logits."""
        return torch.stack([member(x) for member in self.members]).mean(dim=0)
