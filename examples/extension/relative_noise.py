from dataclasses import dataclass

from torch import Tensor

from resperturb.noise import Draw
from resperturb.perturbation import Strategy, register_strategy


@register_strategy("relative")
@dataclass(frozen=True)
class Relative(Strategy):
    """``total + gamma total n``."""

    gamma: float

    def apply(self, total: Tensor, shortcut: Tensor | None, noise: Draw) -> Tensor:
        return noise.addcmul(total, total, self.gamma)

    @property
    def is_noisy(self) -> bool:
        return self.gamma > 0
