"""Only the predicted label is seen: how often it is right under noise or augmentation (Choquette-Choo et al., 2021).

A model is more robust around the records that it was trained on. The votes are those of the model's own noise, of
augmented queries (see :mod:`resperturb.attacks.augmented`), or of noise that the attacker adds.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from resperturb.attacks.evidence import Evidence
from resperturb.attacks.registry import register_attack
from resperturb.attacks.signals import View
from resperturb.bounds.scores import Scores

CHOQUETTE = "Choquette-Choo et al. 2021 (arXiv:2007.14321)"


@register_attack("label-only", CHOQUETTE, combinations=("votes",))
def label_only(evidence: Evidence, view: View) -> Scores:
    """Score by the share of answers that are right."""
    return share_right(evidence.answers[view.access].correct[: evidence.count, : view.draws])


def share_right(correct: NDArray[np.bool_]) -> Scores:
    """Return the share of right answers of each record, ``correct`` being ``[rows, queries]``.

    >>> share_right(np.array([[True, False], [True, True]])).tolist()
    [0.5, 1.0]
    """
    shares: Scores = correct.mean(axis=1)
    return shares


def noise_robustness(
    predict: Callable[[Tensor], Tensor],
    images: Tensor,
    labels: Tensor,
    levels: Sequence[float],
    repeats: int = 10,
    seed: int = 0,
) -> Scores:
    """Return the share of right labels when the attacker adds noise to the record, over several levels.

    It stands for the distance to the decision boundary, which takes thousands of queries to find without noise.

    Args:
        predict: The labels a model predicts for a batch of images.
        images: ``[rows, ...]``, as ``predict`` takes them.
        labels: The right labels.
        levels: Standard deviations of the noise.
        repeats: Queries per level.
        seed: Of the noise; all records get the same.

    Returns:
        One share per record.

    >>> sign = lambda batch: (batch[:, 0] > 0).long()
    >>> noise_robustness(sign, torch.tensor([[0.1], [5.0]]), torch.tensor([1, 1]), levels=[1.0]).tolist()
    [0.4, 1.0]
    """
    generator = torch.Generator().manual_seed(seed)
    right = []
    for level in levels:
        for _ in range(repeats):
            noise = torch.randn(images.shape[1:], generator=generator)
            right.append((predict(images + level * noise) == labels).numpy())
    return share_right(np.stack(right, axis=1))
