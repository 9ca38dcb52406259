"""The DP-SGD of this package as the worst-case audit takes it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from resperturb.data.images import ImageSet
from resperturb.training.checkpoint import Progress
from resperturb.training.config import make_config
from resperturb.training.distributed import Execution
from resperturb.training.methods.dpsgd import DpsgdSteps
from resperturb.training.predict import normalize


@dataclass(frozen=True)
class DpsgdTrainer:
    """This package's own DP-SGD with full batches, for :func:`resperturb.auditing.worst_case.worst_case_audit`.

    Attributes:
        records: The number of other records, which is public: the batch size.
        noise_multiplier: Noise on the sum of clipped gradients, in clipping norms.
        lr: The learning rate; a small one keeps answers linear in the weights, so that nothing of the trace is lost.
    """

    records: int
    steps: int
    noise_multiplier: float
    lr: float = 0.01
    clip: float = 1.0
    model: str = "resperturb.training.worst_case:perceptron"
    classes: int = 10

    def __call__(
        self, initial: Mapping[str, Tensor], images: Tensor, labels: Tensor, number: int
    ) -> Callable[[Tensor], Tensor]:
        """Train from ``initial`` on uint8 images, with noise from the operating system."""
        config = make_config(
            data={"spec": "worst-case"},
            model=self.model,
            norm="group",
            epochs=1,
            batch_size=self.records,
            lr=self.lr,
            optimizer="sgd",
            momentum=0.0,
            weight_decay=0.0,
            schedule="constant",
            warmup_epochs=0,
            normalization="half",
            augment="none",
            method={
                "name": "dpsgd",
                "noise_multiplier": self.noise_multiplier,
                "clip": self.clip,
                "max_physical_batch": len(labels),
            },
        )
        members = ImageSet(images, labels, tuple(str(label) for label in range(self.classes)), None, "worst case")
        steps = DpsgdSteps(config, members, Execution("cpu"))
        steps.model.load_state_dict(dict(initial))
        progress = Progress()
        for _ in range(self.steps):
            steps.take(progress)
        model = steps.model.eval()

        def answer(batch: Tensor) -> Tensor:
            logits: Tensor = model(normalize(batch, config.mean, config.std))
            return logits

        return answer


def perceptron(num_classes: int, in_channels: int = 1, size: int = 28, width: int = 16) -> nn.Module:
    """A small network of one hidden layer: the proof holds for every network, and this one trains fast.

    >>> sum(p.numel() for p in perceptron(10).parameters())
    970
    """
    return nn.Sequential(
        nn.AvgPool2d(4),
        nn.Flatten(),
        nn.Linear(in_channels * (size // 4) ** 2, width),
        nn.ReLU(),
        nn.Linear(width, num_classes),
    )
