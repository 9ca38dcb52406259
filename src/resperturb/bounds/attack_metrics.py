"""How well one attack does, in one object: AUC with its interval and test, true positive rates at low false ones."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit, ndtr, ndtri
from scipy.stats import rankdata

from resperturb.bounds.intervals import Interval, binomial_interval
from resperturb.bounds.metrics import FALSE_POSITIVE_RATES, auc, balanced_accuracy, can_be_seen, roc_curve
from resperturb.bounds.scores import Scores, check_probability, check_scores
from resperturb.errors import UsageError

Groups = NDArray[np.generic]
SIGNIFICANCE = 0.05


@dataclass(frozen=True)
class TruePositiveRate:
    """The true positive rate at a false positive rate of at most ``fpr``.

    The threshold is the lowest at which at most a share ``fpr`` of the non-members is accepted; nothing is
    interpolated. ``interval`` is exact (Clopper-Pearson) for that threshold, and for independent records.
    ``tied`` says that nothing could be accepted because the highest score belongs to too many non-members.
    """

    fpr: float
    tpr: float
    interval: Interval
    tied: bool = False


@dataclass(frozen=True)
class AttackMetrics:
    """What an attack finds among so many members and non-members.

    ``auc_interval`` follows DeLong et al. (1988) on the logit scale; with groups (all records of one person) it
    counts groups, after Obuchowski (1997); it is exact where all members score above all others. ``p_value`` is
    how often a model that knows nothing of its members would be attacked as well: a one-sided rank test, or a
    test of the groups' mean ranks. ``balanced_accuracy`` is that of the best threshold in hindsight unless the
    attack has a threshold of its own.
    """

    auc: float
    auc_interval: Interval
    p_value: float
    balanced_accuracy: float
    tpr_at_fpr: tuple[TruePositiveRate, ...]
    members: int
    nonmembers: int
    groups: int | None = None
    targets: int = 1

    def at_fpr(self, fpr: float) -> TruePositiveRate | None:
        """Look up the true positive rate at ``fpr``.

        Returns:
            The rate; None if so low a false positive rate cannot be seen among so few non-members.
        """
        found = next((point for point in self.tpr_at_fpr if abs(point.fpr - fpr) < 1e-12), None)
        return found if found is not None and can_be_seen(fpr, self.nonmembers) else None

    def shows_leak(self, tests: int = 1) -> bool:
        """Say whether this is more than chance explains, for the best of ``tests`` attacks.

        One rule everywhere: the test is significant after Bonferroni's correction, and the interval lies above 0.5.
        """
        return self.p_value * tests < SIGNIFICANCE and self.auc_interval.low > 0.5


def attack_metrics(
    members: ArrayLike,
    nonmembers: ArrayLike,
    *,
    confidence: float = 0.95,
    threshold: float | None = None,
    member_groups: ArrayLike | None = None,
    nonmember_groups: ArrayLike | None = None,
    rates: Sequence[float] = FALSE_POSITIVE_RATES,
) -> AttackMetrics:
    """Measure an attack by the scores it gives to members and non-members; higher means *member*.

    Args:
        members: One score per member.
        nonmembers: One score per non-member.
        confidence: Of the intervals.
        threshold: The attack's own threshold for ``balanced_accuracy``; the best in hindsight if left out.
        member_groups: Unit of every member, where records of one person share their membership; units of one record
            each are counted as records.
        nonmember_groups: Unit of every non-member.
        rates: The false positive rates to report.

    Returns:
        All metrics.

    Raises:
        UsageError: A score is NaN, one of the two sides is empty, or a rate is none.

    >>> found = attack_metrics([2, 3, 4], [1, 2, 0])
    >>> round(found.auc, 3), found.members, found.at_fpr(0.0).tpr
    (0.944, 3, 0.6666666666666666)
    >>> found.at_fpr(0.01) is None
    True
    """
    check_probability("confidence", confidence)
    ins, outs = check_scores(members, nonmembers)
    area = auc(ins, outs)
    groups = None
    independent = ins.size, outs.size
    own = np.arange(ins.size) if member_groups is None else np.asarray(member_groups)
    other = np.arange(outs.size) if nonmember_groups is None else np.asarray(nonmember_groups)
    counts = len(np.unique(own)), len(np.unique(other))
    variance = _delong_variance(ins, outs, own, other)
    if counts == independent:
        p_value = _rank_test(ins, outs)
    else:
        p_value = _group_test(ins, outs, own, other)
        independent, groups = counts, sum(counts)
    return AttackMetrics(
        auc=area,
        auc_interval=_area_interval(area, variance, *independent, confidence),
        p_value=p_value,
        balanced_accuracy=balanced_accuracy(ins, outs, threshold),
        tpr_at_fpr=tuple(_rates(ins, outs, rates, confidence)),
        members=ins.size,
        nonmembers=outs.size,
        groups=groups,
    )


def _rates(ins: Scores, outs: Scores, rates: Sequence[float], confidence: float) -> list[TruePositiveRate]:
    curve = roc_curve(ins, outs)
    highest = max(ins.max(), outs.max())
    found = []
    for rate in rates:
        if not 0 <= rate <= 1:
            raise UsageError(f"a false positive rate must lie between 0 and 1, not {rate:g}.")
        # 0.29 * 100 is 28.999999999999996: the user meant 29.
        last = int(np.searchsorted(curve.fpr * outs.size, np.floor(rate * outs.size + 1e-9) + 0.5)) - 1
        hits = round(float(curve.tpr[last]) * ins.size)
        tied = last == 0 and bool((outs == highest).any()) and bool((ins == highest).any())
        found.append(
            TruePositiveRate(float(rate), hits / ins.size, binomial_interval(hits, ins.size, confidence), tied)
        )
    return found


def _delong_variance(ins: Scores, outs: Scores, own: Groups, other: Groups) -> float:
    """The variance of the AUC with records summed by group; with one record per group, that of DeLong et al."""
    ranks = rankdata(np.concatenate([ins, outs]))
    # The share of the other side that each score beats, a tie counting half.
    beats = (ranks[: ins.size] - rankdata(ins)) / outs.size
    beaten = 1 - (ranks[ins.size :] - rankdata(outs)) / ins.size
    area = float(beats.mean())
    return _side(beats - area, own) / ins.size**2 + _side(beaten - area, other) / outs.size**2


def _side(deviations: Scores, groups: Groups) -> float:
    _, codes = np.unique(groups, return_inverse=True)
    sums = np.bincount(codes, weights=deviations)
    return float((sums**2).sum()) * sums.size / max(sums.size - 1, 1)


def _area_interval(area: float, variance: float, members: int, nonmembers: int, confidence: float) -> Interval:
    """The interval of an AUC, from its variance on the logit scale; members and non-members are counted in groups."""
    if area in (0.0, 1.0):
        # The two sides do not overlap, and the variance is 0. Of as many pairs of a member and a non-member as can be
        # formed without using one twice, which are independent, all are ordered alike: a binomial that is exact.
        pairs = min(members, nonmembers)
        return binomial_interval(round(area * pairs), pairs, confidence)
    if variance <= 0:
        # All scores tie: the variance that Hanley and McNeil (1982) expect.
        q1, q2 = area / (2 - area), 2 * area * area / (1 + area)
        variance = area * (1 - area) + (members - 1) * (q1 - area**2) + (nonmembers - 1) * (q2 - area**2)
        variance /= members * nonmembers
    spread = float(ndtri(0.5 + confidence / 2)) * np.sqrt(variance) / (area * (1 - area))
    return Interval(float(expit(logit(area) - spread)), float(expit(logit(area) + spread)))


def _rank_test(ins: Scores, outs: Scores) -> float:
    from scipy.stats import mannwhitneyu

    both = np.concatenate([ins, outs])
    if np.all(both == both[0]):
        return 1.0
    return float(mannwhitneyu(ins, outs, alternative="greater").pvalue)


def _group_test(ins: Scores, outs: Scores, own: Groups, other: Groups) -> float:
    """A normal approximation of the permutation test that deals whole groups to the two sides.

    Under the null hypothesis the sum over members of a record's centred rank is a sum over the groups that were dealt
    to the members' side; its mean and variance over all deals are those of sampling without replacement.
    """
    ranks = rankdata(np.concatenate([ins, outs]))
    centred = ranks - ranks.mean()
    sums = []
    for part, groups in ((centred[: ins.size], own), (centred[ins.size :], other)):
        _, codes = np.unique(groups, return_inverse=True)
        sums.append(np.bincount(codes, weights=part))
    every = np.concatenate(sums)
    dealt, count = sums[0].size, every.size
    variance = every.var(ddof=1) * dealt * (count - dealt) / count if count > 1 else 0.0
    if variance <= 0:
        return 1.0
    return float(ndtr(-(sums[0].sum() - dealt * every.mean()) / np.sqrt(variance)))
