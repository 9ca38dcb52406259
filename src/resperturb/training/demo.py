"""The trainings of the demonstration: one small network without and with noise, and a private head, on real images.

Half of the built-in sample leaves 500 images to each quarter: few enough that a network memorises them within a
minute, which is what a membership attack feeds on, and enough for it to classify others well.
"""

from typing import Any

from resperturb.perturbation import Additive, Multiplicative
from resperturb.training.config import TrainConfig, make_config

IMAGES = 2000
EPOCHS = 40
BATCH_SIZE = 32
NETWORK = {"epochs": EPOCHS, "batch_size": BATCH_SIZE, "seeded_noise": True}
# The noise of the head stays secret, without which nothing would be proven. A small map saves half a minute.
HEAD = {"method": "dp-head", "model_args": {"directions": 400, "images": 2000}}
RUNS: dict[str, dict[str, Any]] = {
    "plain": NETWORK,
    "additive": {**NETWORK, "perturbation": Additive(gamma=1.0)},
    "multiplicative": {**NETWORK, "perturbation": Multiplicative(gamma=2.0)},
    "dp-head": HEAD,
}


def demo_config(name: str, seed: int) -> TrainConfig:
    """Return the configuration of a variant; all are trained on the same images.

    >>> demo_config("dp-head", seed=0).method.label
    'DP head 3'
    """
    data = {"spec": "fashion-sample", "limit": IMAGES, "part": "target_train"}
    return make_config(data=data, seed=seed, **RUNS[name])
