"""Plain training: follow the gradient of each batch. It proves nothing by itself."""

from typing import ClassVar

from resperturb.data.images import ImageSet
from resperturb.training.config import TrainConfig
from resperturb.training.distributed import Execution
from resperturb.training.method import Method, register_method
from resperturb.training.steps import Steps


@register_method("sgd")
class Sgd(Method):
    """Stochastic gradients, by the optimizer of the configuration (SGD or AdamW)."""

    title: ClassVar = "SGD"

    def steps(self, config: TrainConfig, members: ImageSet, execution: Execution) -> Steps:
        """Build the network and its optimizer."""
        return Steps(config, members, execution)
