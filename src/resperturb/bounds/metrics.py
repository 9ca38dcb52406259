"""How well an attack distinguishes members from non-members: AUC, ROC, balanced accuracy.

Everywhere: a higher score means *member*, and a threshold ``t`` accepts the scores ``>= t``. Tied scores are accepted
or rejected together, never ordered by accident.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from resperturb.bounds.arrays import Floats, Ints
from resperturb.bounds.scores import Scores, check_scores

FALSE_POSITIVE_RATES = (0.0, 0.001, 0.01, 0.1)


@dataclass(frozen=True)
class RocCurve:
    """The rates at every threshold, from accepting nothing to accepting everything.

    ``thresholds[0]`` is infinite and stands for accepting nothing at all.
    """

    fpr: Floats
    tpr: Floats
    thresholds: Floats


def auc(members: ArrayLike, nonmembers: ArrayLike) -> float:
    """Return the area under the ROC curve.

    It is the chance that a random member scores above a random non-member; a tie counts half.

    Raises:
        UsageError: A score is NaN, or one of the two sides is empty.

    >>> auc([2, 3], [1, 2])
    0.875
    >>> auc([0, 0, 0], [0])
    0.5
    """
    _, ins, outs = _tally(members, nonmembers)
    # Twice the number of pairs a member wins, in whole numbers: exact, ties and all.
    below = outs.sum() - np.cumsum(outs)
    return float(np.dot(ins, 2 * below + outs)) / (2 * int(ins.sum()) * int(outs.sum()))


def roc_curve(members: ArrayLike, nonmembers: ArrayLike) -> RocCurve:
    """Return the false and true positive rates at every distinct score, highest threshold first.

    >>> curve = roc_curve([2, 3], [1, 2])
    >>> curve.fpr.tolist(), curve.tpr.tolist()
    ([0.0, 0.0, 0.5, 1.0], [0.0, 0.5, 1.0, 1.0])
    """
    values, ins, outs = _tally(members, nonmembers)
    return RocCurve(
        fpr=np.concatenate([[0], np.cumsum(outs)]) / outs.sum(),
        tpr=np.concatenate([[0], np.cumsum(ins)]) / ins.sum(),
        thresholds=np.concatenate([[np.inf], values]),
    )


def roc_points(members: ArrayLike, nonmembers: ArrayLike, most: int = 400) -> tuple[list[float], list[float]]:
    """Return the false and the true positive rates of at most ``most`` points of the curve, its low end kept whole.

    >>> roc_points([1.0], [0.0])
    ([0.0, 0.0, 1.0], [0.0, 1.0, 1.0])
    """
    curve = roc_curve(members, nonmembers)
    last = len(curve.fpr) - 1
    chosen = np.arange(last + 1)
    if last >= most:
        chosen = np.append(np.linspace(0, last, most // 2), np.geomspace(1, last, most // 2))
        chosen = np.unique(chosen.round().astype(int))
    return curve.fpr[chosen].tolist(), curve.tpr[chosen].tolist()


def balanced_accuracy(members: ArrayLike, nonmembers: ArrayLike, threshold: float | None = None) -> float:
    """Return the mean of the true positive and the true negative rate at ``threshold``.

    Without a threshold the best one in hindsight is taken: that flatters the attack when there are few scores.

    >>> balanced_accuracy([2, 3], [1, 2], threshold=3)
    0.75
    >>> balanced_accuracy([5], [5])
    0.5
    """
    ins, outs = check_scores(members, nonmembers)
    if threshold is not None:
        return float(np.mean(ins >= threshold) + np.mean(outs < threshold)) / 2
    curve = roc_curve(ins, outs)
    return float(1 + np.max(curve.tpr - curve.fpr)) / 2


def can_be_seen(fpr: float, nonmembers: int) -> bool:
    """Whether a false positive rate is at least one non-member of their number; a rate of 0 always is.

    >>> can_be_seen(0.01, 30), can_be_seen(0.01, 100), can_be_seen(0.0, 30)
    (False, True, True)
    """
    return not 0 < fpr * nonmembers < 1


def _tally(members: ArrayLike, nonmembers: ArrayLike) -> tuple[Scores, Ints, Ints]:
    """The distinct scores, highest first, and how many members and non-members have each."""
    first, second = check_scores(members, nonmembers)
    values, where = np.unique(np.concatenate([first, second]), return_inverse=True)
    ins = np.bincount(where[: first.size], minlength=values.size)
    outs = np.bincount(where[first.size :], minlength=values.size)
    return values[::-1], ins[::-1], outs[::-1]
