"""How well one attack does, in one object: AUC with its interval and test, true positive rates at low false ones."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from resperturb.bounds.arrays import Bools, Ints
from resperturb.bounds.intervals import Estimate, Interval, Threshold
from resperturb.bounds.metrics import FALSE_POSITIVE_RATES, auc, balanced_accuracy, can_be_seen, roc_curve
from resperturb.bounds.scores import Scores, check_probability, check_scores
from resperturb.errors import UsageError

SIDES: tuple[Literal["left"], Literal["right"]] = ("left", "right")
HALF = float(np.nextafter(0.5, 1.0))


@dataclass(frozen=True)
class TruePositiveRate:
    """The true positive rate at a false positive rate of at most ``fpr``.

    The threshold is the lowest at which at most a share ``fpr`` of the non-members is accepted; nothing is
    interpolated. ``interval`` is about the threshold that a share ``fpr`` of all non-members exceeds, of which these
    are a sample; where records share units, units are counted. ``p_value`` is how often a model without signal is
    attacked as well. ``tied`` says that nothing could be accepted because the highest score belongs to too many
    non-members.
    """

    fpr: float
    tpr: float
    interval: Interval
    estimate: Estimate
    p_value: float
    tied: bool = False


@dataclass(frozen=True)
class AttackMetrics:
    """What an attack finds among members and non-members.

    ``auc_interval`` is at ``confidence`` and lies above 0.5 exactly where the one-sided test of ``p_value`` is
    significant at half of 1 - ``confidence``. It follows DeLong et al. (1988) on the logit scale with Student's
    quantile; where records share units it counts these (Obuchowski, 1997), with the degrees of freedom of Bell and
    McCaffrey (2002); it is exact where all members score above all others. The test is a rank test, or that of the
    interval where units are counted. ``balanced_accuracy`` is that of the best threshold in hindsight unless the
    attack has a threshold of its own. With several ``targets`` everything is a mean over these.
    """

    auc: float
    auc_interval: Interval
    p_value: float
    balanced_accuracy: float
    tpr_at_fpr: tuple[TruePositiveRate, ...]
    members: int
    nonmembers: int
    estimate: Estimate
    groups: int | None = None
    targets: int = 1
    confidence: float = 0.95

    def at_fpr(self, fpr: float) -> TruePositiveRate | None:
        """Look up the true positive rate at ``fpr``.

        Returns:
            The rate; None if the non-members are too few for this false positive rate.
        """
        found = next((point for point in self.tpr_at_fpr if abs(point.fpr - fpr) < 1e-12), None)
        return found if found is not None and can_be_seen(fpr, self.nonmembers) else None

    @property
    def shows_leak(self) -> bool:
        """Whether this is more than chance explains: the interval lies above 0.5."""
        return self.auc_interval.low > 0.5

    @property
    def could_show(self) -> bool:
        """Whether a leak could be seen at all: of too few units even a perfect attack is not significant."""
        if self.targets > 1:
            return True
        ins, outs = self.members, self.nonmembers
        log_orders = math.lgamma(ins + outs + 1) - math.lgamma(ins + 1) - math.lgamma(outs + 1)
        if self.groups is not None:
            log_orders = self.groups // 2 * math.log(2)
        return log_orders > math.log(2 / (1 - self.confidence))

    def at(self, confidence: float) -> "AttackMetrics":
        """Return the same with intervals at another confidence."""
        return replace(
            self,
            auc_interval=deciding_interval(self.estimate, self.p_value, confidence),
            tpr_at_fpr=tuple(
                replace(point, interval=point.estimate.interval(confidence)) for point in self.tpr_at_fpr
            ),
            confidence=confidence,
        )


def deciding_interval(area: Estimate, p_value: float, confidence: float) -> Interval:
    """Return the interval of an AUC, whose lower end says what the one-sided test says.

    Where the test is not significant the interval includes 0.5; where it is, the interval excludes it. Either keeps
    the coverage: the first widens it, and the second excludes no more than a significant test does.

    >>> deciding_interval(Estimate(0.6, 0.02, 50, "plain"), p_value=0.2, confidence=0.95).low
    0.5
    """
    low, high = area.interval(confidence)
    significant = p_value < (1 - confidence) / 2
    return Interval(max(low, HALF), max(high, HALF)) if significant else Interval(min(low, 0.5), high)


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
        confidence: Confidence of the intervals.
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
    own, own_units = _units(member_groups, ins.size)
    other, other_units = _units(nonmember_groups, outs.size)
    counted = (own_units, other_units) != (ins.size, outs.size)
    area = _area(ins, outs, own, other)
    p_value = area.p_value(0.5) if counted else _rank_test(ins, outs)
    return AttackMetrics(
        auc=area.value,
        auc_interval=deciding_interval(area, p_value, confidence),
        p_value=p_value,
        balanced_accuracy=balanced_accuracy(ins, outs, threshold),
        tpr_at_fpr=tuple(_rates(ins, outs, rates, confidence, own_units, other_units)),
        members=ins.size,
        nonmembers=outs.size,
        estimate=area,
        groups=own_units + other_units if counted else None,
        confidence=confidence,
    )


def split_metrics(
    scores: NDArray[np.floating[Any]],
    members: Bools,
    units: Ints | None = None,
    *,
    confidence: float = 0.95,
    rates: Sequence[float] = FALSE_POSITIVE_RATES,
) -> AttackMetrics:
    """Measure an attack by the scores of all candidates, of which ``members`` are members, and by their units."""
    own, other = (None, None) if units is None else (units[members], units[~members])
    return attack_metrics(
        scores[members],
        scores[~members],
        confidence=confidence,
        member_groups=own,
        nonmember_groups=other,
        rates=rates,
    )


def _units(groups: ArrayLike | None, count: int) -> tuple[Ints, int]:
    """The number of every record's unit, and how many units there are."""
    if groups is None:
        return np.arange(count), count
    names, codes = np.unique(np.asarray(groups), return_inverse=True)
    return codes, names.size


def _rates(
    ins: Scores, outs: Scores, rates: Sequence[float], confidence: float, own: int, other: int
) -> list[TruePositiveRate]:
    from scipy.stats import hypergeom

    curve = roc_curve(ins, outs)
    highest = max(ins.max(), outs.max())
    found = []
    for rate in rates:
        if not 0 <= rate <= 1:
            raise UsageError(f"a false positive rate must lie between 0 and 1, not {rate:g}.")
        # 0.29 * 100 is 28.999999999999996: the user meant 29.
        last = int(np.searchsorted(curve.fpr * outs.size, np.floor(rate * outs.size + 1e-9) + 0.5)) - 1
        hits = round(float(curve.tpr[last]) * ins.size)
        threshold = _threshold(ins, outs, float(rate), own, other) if rate else None
        share = Estimate(hits / ins.size, 0.0, own, "exact", threshold)
        # So many members stand above all but the few non-members that may be accepted: of the candidates with the
        # highest scores, in an order that is chance alone, no more than these few are non-members.
        accepted, units = int(rate * other + 1e-9), round(share.value * own)
        p_value = float(hypergeom.cdf(accepted, own + other, other, min(units + accepted, own + other)))
        tied = last == 0 and bool((outs == highest).any()) and bool((ins == highest).any())
        found.append(TruePositiveRate(float(rate), share.value, share.interval(confidence), share, p_value, tied))
    return found


def _threshold(ins: Scores, outs: Scores, rate: float, own: int, other: int) -> Threshold:
    """Count the members above ranks of the non-members: of the first, of some each 8% further, and of a tie."""
    most = min(other, rate * other + 8 * math.sqrt(rate * other) + 16)
    places = np.unique(np.concatenate([np.arange(1, 17), 16 * 1.08 ** np.arange(1, 150)]).astype(int))
    tie = int(np.count_nonzero(outs >= ins.max()) / outs.size * other)  # of all that share the highest score
    places = np.unique(np.append(places[places <= most], max(1, tie)))
    records = np.minimum(np.round(places * outs.size / other).astype(int), outs.size)
    scores, highest = np.sort(ins), np.sort(outs)[::-1][records - 1]

    def units(smaller: NDArray[np.int64]) -> tuple[int, ...]:
        return tuple(np.round((ins.size - smaller) / ins.size * own).astype(int).tolist())

    at, above = (units(np.searchsorted(scores, highest, side)) for side in SIDES)
    return Threshold(rate, other, tuple(places.tolist()), at, above)


def _area(ins: Scores, outs: Scores, own: Ints, other: Ints) -> Estimate:
    """The AUC with its standard error on the logit scale and Satterthwaite's degrees of freedom."""
    from scipy.stats import rankdata

    ranks = rankdata(np.concatenate([ins, outs]))
    # The share of the other side that each score beats, a tie counting half.
    beats = (ranks[: ins.size] - rankdata(ins)) / outs.size
    beaten = 1 - (ranks[ins.size :] - rankdata(outs)) / ins.size
    area = auc(ins, outs)
    if area in (0.0, 1.0):
        # The two sides do not overlap, and the variance is 0. Of as many pairs of a member and a non-member as can be
        # formed without using a unit twice, which are independent, all are ordered alike: a binomial that is exact.
        return Estimate(area, 0.0, min(own.max(), other.max()) + 1, "exact")
    sides = [_side(beats - area, own), _side(beaten - area, other)]
    variance = sum(part for part, _ in sides)
    if min(freedom for _, freedom in sides) <= 0:
        return Estimate(area, 0.0, 0.0, "logit")
    if variance <= 0:
        # All scores tie: the variance that Hanley and McNeil (1982) expect.
        q1, q2 = area / (2 - area), 2 * area * area / (1 + area)
        variance = area * (1 - area) + (ins.size - 1) * (q1 - area**2) + (outs.size - 1) * (q2 - area**2)
        variance /= ins.size * outs.size
        freedom = float(own.max() + other.max())
    else:
        freedom = variance**2 / sum(part**2 / freedom for part, freedom in sides)
    return Estimate(area, float(np.sqrt(variance) / (area * (1 - area))), freedom, "logit")


def _side(deviations: Scores, units: Ints) -> tuple[float, float]:
    """The variance of a mean over units of unequal size, and its degrees of freedom (Bell and McCaffrey, 2002).

    A unit with a share w of the records pulls the mean towards itself, so that its squared deviation is too small by
    a factor 1 - 2w + sum(w^2), if units have equal variance; each is divided by its factor.
    """
    weights = np.bincount(units) / units.size
    if weights.size < 2:
        return 0.0, 0.0
    squares = float((weights**2).sum())
    kept = 1 - 2 * weights + squares
    variance = float(((np.bincount(units, weights=deviations) / units.size) ** 2 / kept).sum())
    # The variance is a quadratic form x'Ax of the units' means; its freedom is tr(A)^2/tr(A^2).
    d, u = weights**2 / kept, squares / 2 - weights
    off_diagonal = 2 * (d * u**2).sum() * d.sum() + 2 * (d * u).sum() ** 2 - 4 * (d**2 * u**2).sum()
    return variance, float((d * kept).sum() ** 2 / (((d * kept) ** 2).sum() + off_diagonal))


def _rank_test(ins: Scores, outs: Scores) -> float:
    from scipy.stats import mannwhitneyu

    both = np.concatenate([ins, outs])
    if np.all(both == both[0]):
        return 1.0
    return float(mannwhitneyu(ins, outs, alternative="greater").pvalue)
