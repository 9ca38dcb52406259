"""HAMP's training loss: soft labels of high entropy, and a reward for uncertain outputs.

Chen and Pattabiraman, "Overconfidence is a Dangerous Thing: Mitigating Membership Inference Attacks by Enforcing Less
Confident Prediction" (NDSS 2024, arXiv:2307.01610), as the authors' code computes it.
"""

import math
from typing import Annotated

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from resperturb.training.loss import Loss, register_loss


@register_loss("hamp")
class Hamp(Loss):
    """KL divergence to soft labels, averaged over elements, minus ``alpha`` times the mean entropy of the outputs.

    Labels are softened in steps of 0.01 until their entropy is at least ``gamma ln C``. The defence has a second half
    at prediction time, which ``resperturb frontier`` applies to the served answers.

    >>> Hamp().label_probability(10)
    0.26
    """

    gamma: Annotated[float, Field(gt=0, lt=1)] = 0.95
    alpha: Annotated[float, Field(ge=0)] = 0.001

    def label_probability(self, classes: int) -> float:
        """Find the probability that a soft label gives to its class."""
        for step in range(100):
            own = 1 - step / 100
            rest = (1 - own) / (classes - 1)
            entropy = -own * math.log(own) - (1 - own) * math.log(rest) if rest else 0.0
            if entropy >= self.gamma * math.log(classes) or own <= 1 / classes:
                break
        return round(own, 2)

    def of_batch(self, logits: Tensor, labels: Tensor, epoch: int) -> Tensor:
        """Compute the loss of a batch."""
        classes = logits.shape[1]
        own = self.label_probability(classes)
        log_p = F.log_softmax(logits.float(), dim=1)
        soft = log_p.new_full(log_p.shape, (1 - own) / (classes - 1)).scatter(1, labels[:, None], own)
        entropy = -(log_p.exp() * log_p).sum(dim=1).mean()
        return (soft * (soft.log() - log_p)).mean() - self.alpha * entropy
