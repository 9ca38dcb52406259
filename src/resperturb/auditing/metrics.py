"""How well an attack tells members from non-members: AUC, ROC, true positives at few false ones.

Everywhere: a higher score means *member*, and a threshold ``t`` accepts the scores ``>= t``. Tied scores are accepted
or rejected together, never ordered by accident.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from resperturb.auditing.intervals import Interval, binomial_interval
from resperturb.auditing.scores import Scores, check_probability, check_scores
from resperturb.errors import UsageError

FALSE_POSITIVE_RATES = (0.0, 0.001, 0.01, 0.1)

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class RocCurve:
    """The rates at every threshold, from accepting nothing to accepting everything.

    ``thresholds[0]`` is infinite and stands for accepting nothing at all.
    """

    fpr: NDArray[np.float64]
    tpr: NDArray[np.float64]
    thresholds: NDArray[np.float64]


@dataclass(frozen=True)
class TprAtFpr:
    """The most members an attack finds at a false positive rate of at most ``fpr``.

    ``clopper_pearson`` is exact for the true positive rate *at this threshold*, which the non-members alone decided;
    it does not cover how far the false positive rate of that threshold may be from ``fpr``. ``bootstrap`` redraws
    both groups and so covers both, but only approximately: it is too narrow for few scores or rates near 0 and 1.
    ``threshold`` is None where nothing could be accepted.
    """

    fpr: float
    tpr: float
    threshold: float | None
    true_positives: int
    false_positives: int
    clopper_pearson: Interval
    bootstrap: Interval

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name."""
        return asdict(self) | {"clopper_pearson": list(self.clopper_pearson), "bootstrap": list(self.bootstrap)}


def auc(members: ArrayLike, nonmembers: ArrayLike) -> float:
    """Return the chance that a random member scores above a random non-member; a tie counts half.

    >>> auc([2, 3], [1, 2])
    0.875
    >>> auc([0, 0, 0], [0])
    0.5
    """
    return _auc(*_tally(*check_scores(members, nonmembers))[1:])


def roc_curve(members: ArrayLike, nonmembers: ArrayLike) -> RocCurve:
    """Return the false and true positive rates at every distinct score, highest threshold first.

    >>> curve = roc_curve([2, 3], [1, 2])
    >>> curve.fpr.tolist(), curve.tpr.tolist()
    ([0.0, 0.0, 0.5, 1.0], [0.0, 0.5, 1.0, 1.0])
    """
    values, ins, outs = _tally(*check_scores(members, nonmembers))
    return RocCurve(
        fpr=np.concatenate([[0], np.cumsum(outs)]) / outs.sum(),
        tpr=np.concatenate([[0], np.cumsum(ins)]) / ins.sum(),
        thresholds=np.concatenate([[np.inf], values]),
    )


def roc_points(members: ArrayLike, nonmembers: ArrayLike, most: int = 400) -> tuple[list[float], list[float]]:
    """Give the ROC curve in at most so many points, its low end kept whole.

    >>> roc_points([1.0], [0.0])
    ([0.0, 0.0, 1.0], [0.0, 1.0, 1.0])
    """
    curve = roc_curve(members, nonmembers)
    count = len(curve.fpr)
    if count <= most:
        chosen = np.arange(count)
    else:
        spread = np.linspace(0, count - 1, most // 2)
        low_end = np.geomspace(1, count - 1, most // 2)
        chosen = np.unique(np.concatenate([[0], spread, low_end]).round().astype(int))
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


def precision_recall(
    members: ArrayLike, nonmembers: ArrayLike, thresholds: Sequence[float]
) -> list[tuple[float, float]]:
    """Return precision and recall at each threshold.

    Precision depends on the shares of members and non-members in the data; where nothing is accepted it is not
    defined, and NaN.

    >>> precision_recall([2, 3], [1, 2], thresholds=[2, 9])
    [(0.6666666666666666, 1.0), (nan, 0.0)]
    """
    ins, outs = check_scores(members, nonmembers)
    found = []
    for threshold in thresholds:
        hits, alarms = int(np.sum(ins >= threshold)), int(np.sum(outs >= threshold))
        found.append((hits / (hits + alarms) if hits + alarms else float("nan"), hits / ins.size))
    return found


def can_be_seen(fpr: float, nonmembers: int) -> bool:
    """Whether a false positive rate is no smaller than one of so many non-members; none at all is always seen.

    >>> can_be_seen(0.01, 30), can_be_seen(0.01, 100), can_be_seen(0.0, 30)
    (False, True, True)
    """
    return not 0 < fpr * nonmembers < 1


def tpr_at_fpr(
    members: ArrayLike,
    nonmembers: ArrayLike,
    rates: Sequence[float] = FALSE_POSITIVE_RATES,
    *,
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> list[TprAtFpr]:
    """Return the true positive rate at each false positive rate, with both intervals.

    Nothing is interpolated: the threshold is the lowest at which at most ``rate`` of the non-members are accepted.

    >>> [found] = tpr_at_fpr([1, 4, 5, 6], [1, 2, 3, 9], rates=[0.25])
    >>> found.tpr, found.threshold, found.false_positives
    (0.75, 4.0, 1)
    """
    check_probability("confidence", confidence)
    for rate in rates:
        if not 0 <= rate <= 1:
            raise UsageError(f"a false positive rate must lie between 0 and 1, not {rate:g}.")
    values, ins, outs = _tally(*check_scores(members, nonmembers))
    size_in, size_out = int(ins.sum()), int(outs.sum())
    allowed = np.array([_allowed(rate, size_out) for rate in rates], dtype=np.int64)
    drawn = _resample(ins, outs, lambda i, o: _accepted(i, o, allowed)[0] / size_in, resamples, seed)
    tails = _percentiles(drawn, confidence)
    true_positives, false_positives, groups = _accepted(ins, outs, allowed)
    return [
        TprAtFpr(
            fpr=float(rate),
            tpr=int(tp) / size_in,
            threshold=float(values[last - 1]) if last else None,
            true_positives=int(tp),
            false_positives=int(fp),
            clopper_pearson=binomial_interval(int(tp), size_in, confidence),
            bootstrap=interval,
        )
        for rate, tp, fp, last, interval in zip(rates, true_positives, false_positives, groups, tails, strict=True)
    ]


def auc_interval(
    members: ArrayLike, nonmembers: ArrayLike, *, confidence: float = 0.95, resamples: int = 1000, seed: int = 0
) -> Interval:
    """Return the bootstrap interval of the AUC; approximate, and too narrow for few scores.

    >>> auc_interval([3, 4], [1, 2])
    Interval(low=1.0, high=1.0)
    """
    check_probability("confidence", confidence)
    _, ins, outs = _tally(*check_scores(members, nonmembers))
    drawn = _resample(ins, outs, lambda i, o: np.array([_auc(i, o)]), resamples, seed)
    return _percentiles(drawn, confidence)[0]


def _tally(members: Scores, nonmembers: Scores) -> tuple[Scores, Counts, Counts]:
    """The distinct scores, highest first, and how many members and non-members have each."""
    values, where = np.unique(np.concatenate([members, nonmembers]), return_inverse=True)
    ins = np.bincount(where[: members.size], minlength=values.size)
    outs = np.bincount(where[members.size :], minlength=values.size)
    return values[::-1], ins[::-1], outs[::-1]


def _auc(ins: Counts, outs: Counts) -> float:
    # Twice the number of pairs a member wins, in whole numbers: exact, ties and all.
    below = outs.sum() - np.cumsum(outs)
    return float(np.dot(ins, 2 * below + outs)) / (2 * int(ins.sum()) * int(outs.sum()))


def _allowed(rate: float, size: int) -> int:
    # 0.29 * 100 is 28.999999999999996: the user meant 29.
    return int(np.floor(rate * size + 1e-9))


def _accepted(ins: Counts, outs: Counts, allowed: Counts) -> tuple[Counts, Counts, Counts]:
    """True and false positives, and how many distinct scores are accepted, at each allowed number of false ones."""
    hits, alarms = np.cumsum(ins), np.cumsum(outs)
    groups = np.searchsorted(alarms, allowed, side="right")
    padded_hits, padded_alarms = np.concatenate([[0], hits]), np.concatenate([[0], alarms])
    return padded_hits[groups], padded_alarms[groups], groups


def _resample(
    ins: Counts,
    outs: Counts,
    statistic: Callable[[Counts, Counts], NDArray[np.float64]],
    resamples: int,
    seed: int,
) -> NDArray[np.float64]:
    """The statistic on redrawn groups: one row a redraw. Only the counts of the distinct scores are redrawn."""
    if resamples < 1:
        raise UsageError(f"resamples must be at least 1, not {resamples}.")
    rng = np.random.default_rng(seed)
    where_in, where_out = (np.repeat(np.arange(c.size), c) for c in (ins, outs))

    def redraw(where: Counts) -> Counts:
        return np.bincount(where[rng.integers(where.size, size=where.size)], minlength=ins.size)

    return np.array([statistic(redraw(where_in), redraw(where_out)) for _ in range(resamples)])


def _percentiles(drawn: NDArray[np.float64], confidence: float) -> list[Interval]:
    tail = (1 - confidence) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail], axis=0)
    return [Interval(float(a), float(b)) for a, b in zip(low, high, strict=True)]
