"""How well a classifier does, beyond accuracy: what counts where classes are rare or mistakes differ in cost."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from resperturb.bounds.metrics import auc


@dataclass(frozen=True)
class ClassScores:
    """Accuracy, area under the ROC curve, sensitivity and specificity on one set of images.

    Of two classes the second is the positive one. Of more, all but accuracy are means over the classes, each taken
    against the others. What cannot be computed, since a class has no image, is None.
    """

    accuracy: float
    auroc: float | None
    sensitivity: float | None
    specificity: float | None


def class_scores(logits: Tensor, labels: Tensor) -> ClassScores:
    """Score logits, with one row per image, against labels.

    >>> import torch
    >>> class_scores(torch.tensor([[2.0, 1.0], [0.0, 1.0], [1.0, 0.0]]), torch.tensor([0, 1, 1]))
    ClassScores(accuracy=0.6666666666666666, auroc=0.75, sensitivity=0.5, specificity=1.0)
    """
    answers, truth = logits.argmax(dim=1).numpy(), labels.numpy()
    probabilities = logits.double().softmax(dim=1).numpy()
    classes = logits.shape[1]
    positives = [1] if classes == 2 else range(classes)
    areas, found, spared = [], [], []
    for positive in positives:
        is_positive = truth == positive
        if not is_positive.any() or is_positive.all():
            continue
        # For two classes ties of probabilities near 1 are broken by the difference of the logits.
        scores = (logits[:, 1] - logits[:, 0]).numpy() if classes == 2 else probabilities[:, positive]
        areas.append(auc(scores[is_positive], scores[~is_positive]))
        found.append(float(np.mean(answers[is_positive] == positive)))
        spared.append(float(np.mean(answers[~is_positive] != positive)))
    return ClassScores(float(np.mean(answers == truth)), _mean(areas), _mean(found), _mean(spared))


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None
