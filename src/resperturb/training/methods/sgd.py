"""Plain training: follow the gradient of each batch. It proves nothing by itself."""

from typing import ClassVar

from resperturb.data.images import ImageSet
from resperturb.training.config import TrainConfig
from resperturb.training.distributed import ALONE, World
from resperturb.training.method import Method, register_method
from resperturb.training.steps import Steps


@register_method("sgd")
class Sgd(Method):
    """Stochastic gradients, by the optimizer of the configuration (SGD or AdamW)."""

    title: ClassVar = "SGD"

    def steps(
        self,
        config: TrainConfig,
        members: ImageSet,
        accelerator: str = "auto",
        compiled: bool | None = None,
        world: World | None = None,
        secret: bytes | None = None,
    ) -> Steps:
        """Build the network and its optimizer."""
        return Steps(config, members, accelerator, compiled, world or ALONE, secret)
