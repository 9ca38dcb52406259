"""The trainings of the demonstration: one small network without noise and with each kind of it, on real images.

Half of the built-in sample leaves 500 images to each quarter: few enough that a network memorises them within a
minute, which is what a membership attack feeds on, and enough for it to classify others well.
"""

from resperturb.perturbation import Additive, Multiplicative, Strategy
from resperturb.training.config import DataConfig, TrainConfig

IMAGES = 2000
EPOCHS = 40
BATCH_SIZE = 32
RUNS: dict[str, Strategy | None] = {
    "plain": None,
    "additive": Additive(gamma=1.0),
    "multiplicative": Multiplicative(gamma=2.0),
}


def demo_config(strategy: Strategy | None, seed: int) -> TrainConfig:
    """Say how a variant is trained: all of them alike but for the noise."""
    return TrainConfig(
        data=DataConfig(spec="fashion-sample", limit=IMAGES, part="target_train"),
        epochs=EPOCHS,
        batch_size=BATCH_SIZE,
        perturbation=strategy,
        seed=seed,
        seeded_noise=True,
    )
