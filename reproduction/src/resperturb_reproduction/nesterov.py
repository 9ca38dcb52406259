"""Training with Nesterov's momentum, as in the code of EnResNet (arXiv:1811.10745)."""

from typing import ClassVar

from resperturb.data import ImageSet
from resperturb.training import Execution, Method, Steps, TrainConfig, register_method


@register_method("nesterov")
class Nesterov(Method):
    """Stochastic gradients with Nesterov's momentum."""

    title: ClassVar = "SGD with Nesterov's momentum"

    def steps(self, config: TrainConfig, members: ImageSet, execution: Execution) -> Steps:
        """Build the network and its optimizer."""
        steps = Steps(config, members, execution)
        for group in steps.optimizer.param_groups:
            group["nesterov"] = True
        return steps
