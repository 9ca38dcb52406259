"""RelaxLoss: keep the training loss at a level, so that members and non-members have similar losses.

Chen, Yu and Fritz, "RelaxLoss: Defending Membership Inference Attacks without Losing Utility" (ICLR 2022,
arXiv:2207.05801), as the authors' code computes it.
"""

from typing import Annotated

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from resperturb.training.loss import Loss, register_loss


@register_loss("relaxloss")
class RelaxLoss(Loss):
    """Cross-entropy L down to ``alpha``; below it, gradient ascent and flattened posteriors take turns.

    Even epochs minimise ``|L - alpha|``. Odd epochs minimise L where it is above ``alpha``, and otherwise the mean of
    ``(1 - correct) CE(p, t) - CE(p, y)``: ``t`` has the model's probability on the true class and shares the rest
    evenly. ``detach`` takes ``t`` as a constant, as the paper describes; the authors' code follows its gradient.

    >>> RelaxLoss(alpha=1.0).label
    'relaxloss 1'
    """

    alpha: Annotated[float, Field(gt=0)] = 1.0
    detach: bool = False

    def of_batch(self, logits: Tensor, labels: Tensor, epoch: int) -> Tensor:
        """Compute the loss of a batch."""
        logits = logits.float()
        each = F.cross_entropy(logits, labels, reduction="none")
        mean = each.mean()
        if epoch % 2 == 0:
            return (mean - self.alpha).abs()
        if mean.detach() > self.alpha:
            return mean
        own = (-each).exp()
        own = own.detach() if self.detach else own
        classes = logits.shape[1]
        is_label = F.one_hot(labels, classes).bool()
        flat = own[:, None].where(is_label, ((1 - own) / (classes - 1))[:, None])
        towards_flat = -(flat * F.log_softmax(logits, dim=1)).sum(dim=1)
        wrong = logits.argmax(dim=1) != labels
        return (wrong * towards_flat - each).mean()
