from typing import ClassVar

from torch import Tensor

from resperturb.training.method import Method, register_method
from resperturb.training.steps import Steps


class FloodedSteps(Steps):
    def _loss(self, logits: Tensor, labels: Tensor, batch: int) -> Tensor:
        level = self.config.method.level
        return (super()._loss(logits, labels, batch) - level).abs() + level


@register_method("flooding")
class Flooding(Method):
    """Ishida et al. 2020 (arXiv:2002.08709): ``|loss - level| + level``."""

    title: ClassVar = "flooding"
    level: float = 0.1

    def steps(self, config, members, execution) -> Steps:
        return FloodedSteps(config, members, execution)

    def describe(self) -> str:
        return f"flooding at a loss of {self.level}"
