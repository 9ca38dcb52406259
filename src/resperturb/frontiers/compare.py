"""Compare settings at equal accuracy, and subgroups under one setting, target by target on the same coins.

Early stopping is free: every checkpoint of a training is a point. A setting is compared with the least leaking
ordinary regulariser that is at least as accurate, by interpolation between checkpoints. Where all of them are far
more accurate, a smaller leak is no verdict: lost accuracy alone may bring it. Whatever is not formal is also compared
with each formal method, DP-SGD above all, at its accuracy. Comparators are chosen on one half of the targets and
compared on the other, and the other way round, so that choosing costs nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from resperturb.bounds.arrays import Bools, Floats, Ints, Texts
from resperturb.bounds.comparison import per_group
from resperturb.bounds.metrics import auc
from resperturb.bounds.targets import Difference, paired_difference
from resperturb.frontiers.curve import CANARY_TPR, PRIMARY, Curve

# Models whose accuracies differ by no more than this are compared as they are.
SAME_ACCURACY = 0.01
FEWEST_TARGETS = 8
# Subgroups of fewer units are not compared.
FEWEST_UNITS = 20


@dataclass(frozen=True)
class Compared:
    """The leak of a setting (``endpoint``) minus that of the best comparator of at least its accuracy.

    ``against`` is the formal defence that it is compared with, empty for ordinary regularisation. ``comparators`` are
    those that were chosen: one, or one for each half of the targets. ``matched`` is whether any was measured at its
    accuracy. The interval is simultaneous over ``comparisons``.
    """

    setting: str
    endpoint: str
    against: str
    comparators: tuple[str, ...]
    accuracy: float
    difference: Difference
    comparisons: int
    matched: bool = True

    @property
    def verdict(self) -> str:
        """``equivalent``, ``leaks less``, ``leaks more``, ``not decided`` or ``not comparable``.

        A difference within the margin does not matter, whether or not it is told apart from 0. A setting that leaks
        more than a more accurate one does so at its own accuracy too; nothing else follows from those.
        """
        low, high = self.difference.interval
        if not self.matched and low <= 0:
            return "not comparable"
        if self.difference.equivalent:
            return "equivalent"
        return "leaks less" if high < 0 else "leaks more" if low > 0 else "not decided"

    @property
    def sentence(self) -> str:
        """The comparison in a sentence."""
        found = self.difference
        low, high = found.interval
        direction = "less" if found.mean < 0 else "more"
        against = " or ".join(self.comparators)
        said = {
            "equivalent": f"equivalent within {found.margin:g}",
            "not decided": "not told apart",
            "not comparable": "none of its accuracy was measured",
        }.get(self.verdict, "decided")
        return (
            f"{self.setting} leaks {abs(found.mean):.3f} {direction} ({self.endpoint}) than {against} at accuracy "
            f"{self.accuracy:.3f} [{low:+.3f}, {high:+.3f}]: {said}."
        )


def comparisons_of(curves: Sequence[Curve], confidence: float, margin: float) -> tuple[Compared, ...]:
    """Compare settings with ordinary regularisation (AUC, canaries) and with formal methods (AUC).

    Intervals of one endpoint and one kind of comparator hold together at ``confidence``.
    """
    formal = dict.fromkeys(curve.defence for curve in curves if curve.formal)
    asked = [(PRIMARY, ""), (CANARY_TPR, ""), *((PRIMARY, defence) for defence in formal)]
    return tuple(one for endpoint, against in asked for one in compare(curves, endpoint, against, confidence, margin))


def compare(
    curves: Sequence[Curve],
    endpoint: str = PRIMARY,
    against: str = "",
    confidence: float = 0.95,
    margin: float = 0.02,
) -> tuple[Compared, ...]:
    """Compare the final model of each setting with the best ordinary regularisation, or with a formal method.

    Args:
        against: A formal defence; ordinary regularisation if empty.
        confidence: Joint confidence of all intervals, which also decide equivalence.

    Returns:
        One comparison per setting that is not one of the comparators, or formal itself where they are, and that has a
        comparator; none where there are fewer than eight targets. A comparator with fewer, because its models did not
        learn, is left out.
    """
    others = [
        curve
        for curve in curves
        if (curve.defence == against if against else curve.ordinary) and len(curve.targets) >= FEWEST_TARGETS
    ]
    asked = [curve for curve in curves if not (curve.formal if against else curve.ordinary)]
    prepared = [(curve, *found) for curve in asked if (found := _against(curve, others, endpoint)) is not None]
    joint = 1 - (1 - confidence) / max(1, len(prepared))
    return tuple(
        Compared(
            curve.name,
            endpoint,
            against,
            names,
            float(curve.accuracy[-1].mean()),
            paired_difference(own, other, joint, margin),
            len(prepared),
            matched,
        )
        for curve, names, own, other, matched in prepared
    )


def _against(
    curve: Curve, others: Sequence[Curve], endpoint: str
) -> tuple[tuple[str, ...], Floats, Floats, bool] | None:
    """Find comparators; return their names, the leaks of setting and comparator, and whether any is as accurate.

    Where none is at least as accurate, those whose best point is less accurate by too little to matter are taken.
    """
    common = curve.targets
    for other in others:
        common = np.intersect1d(common, other.targets)
    endpoint = curve.own(endpoint)
    if len(common) < FEWEST_TARGETS or endpoint not in curve.leaks:
        return None
    own = curve.on(common)
    kept = [other.on(common) for other in others if endpoint in other.leaks]
    found = [point for other in kept for point in _as_accurate(other, own.accuracy[-1], endpoint)]
    if not found:
        tops = [(other, int(other.accuracy.mean(axis=1).argmax())) for other in kept]
        found = [_measured(other, top, endpoint) for other, top in tops]
    wanted = float(own.accuracy[-1].mean())
    if not (found := [one for one in found if one.accuracy >= wanted - SAME_ACCURACY]):
        return None
    names, chosen = best_of({one.name: one.leak for one in found}, common // 2)
    return names, own.leaks[endpoint][-1], chosen, any(one.accuracy <= wanted + SAME_ACCURACY for one in found)


def best_of(others: Mapping[str, Floats], pairs: Ints) -> tuple[tuple[str, ...], Floats]:
    """Choose the least leaking of several on each half of the targets, and return what it leaks on the other half.

    Pairs of targets stay in one half. Names of those that were chosen come first.

    >>> best_of({"a": np.array([1.0, 1, 1, 1]), "b": np.array([2.0, 2, 2, 2])}, np.array([0, 0, 1, 1]))
    (('a',), array([1., 1., 1., 1.]))
    """
    first = np.unique(pairs, return_inverse=True)[1] % 2 == 0
    chosen = np.empty(len(pairs))
    names = []
    for half in (first, ~first):
        names.append(min(others, key=lambda name: float(others[name][half].mean())))
        chosen[~half] = others[names[-1]][~half]
    return tuple(dict.fromkeys(names)), chosen


@dataclass(frozen=True, eq=False)
class _Point:
    """What a comparator leaks on each target, at a checkpoint or between two, and the accuracy that this is about."""

    name: str
    accuracy: float
    leak: Floats


def _measured(curve: Curve, stage: int, endpoint: str) -> _Point:
    """Return a checkpoint as it was measured, named with its accuracy."""
    mean = float(curve.accuracy[stage].mean())
    said = named(_setting(curve), curve.stages[stage] if stage < len(curve.stages) - 1 else "")
    return _Point(f"{said} (accuracy {mean:.3f})", mean, curve.leaks[endpoint][stage])


def _setting(curve: Curve) -> str:
    said = curve.epsilon is None or "epsilon" in curve.name
    return curve.name if said else f"{curve.name} (epsilon {curve.epsilon:.3g})"


def _as_accurate(curve: Curve, accuracy: Floats, endpoint: str) -> Iterator[_Point]:
    """Yield what a curve leaks where it is as accurate, or more accurate, target by target.

    Between two checkpoints the leak is interpolated to the mean accuracy. What the accuracies of single targets
    deviate from that is carried along the line, so that the spread over targets has the error of both axes: where
    the leak rises and the accuracy hardly does, the leak at this accuracy is not known well.
    """
    means, leaks = curve.accuracy.mean(axis=1), curve.leaks[endpoint]
    wanted = float(accuracy.mean())
    for stage in np.flatnonzero(means >= wanted).tolist():
        yield _measured(curve, stage, endpoint)
    for stage in range(len(means) - 1):
        low, high = means[stage], means[stage + 1]
        if min(low, high) < wanted < max(low, high):
            share = (wanted - low) / (high - low)
            leak = (1 - share) * leaks[stage] + share * leaks[stage + 1]
            slope = float((leaks[stage + 1] - leaks[stage]).mean()) / (high - low)
            own = (1 - share) * curve.accuracy[stage] + share * curve.accuracy[stage + 1]
            name = named(_setting(curve), *curve.stages[stage : stage + 2])
            yield _Point(name, wanted, leak + slope * (accuracy - own))


def named(setting: str, *stages: str) -> str:
    """Name a setting where its training stopped, or between which checkpoints.

    >>> named("no defence", "epoch-005", "epoch-010"), named("no defence", "")
    ('no defence stopped at epoch 5 to 10', 'no defence')
    """
    numbers = [stage.removeprefix("epoch-").lstrip("0") for stage in stages if stage]
    of = " epoch" if any(stage.startswith("epoch-") for stage in stages) else ""
    return f"{setting} stopped at{of} {' to '.join(numbers)}" if numbers else setting


@dataclass(frozen=True)
class GroupDifference:
    """The AUC on one subgroup of this number of records (patients) minus that on all others, on the same targets."""

    setting: str
    group: str
    units: int
    difference: Difference


def group_differences(
    setting: str, scores: Floats, members: Bools, groups: Texts, units: Ints, confidence: float = 0.95
) -> tuple[GroupDifference, ...]:
    """Compare each subgroup of at least 20 units with all others, target by target.

    Scores ``[K, n]`` are averaged over units. Records whose subgroup is ``""`` are left out. Intervals hold together
    for all subgroups; where there is a single one, none is compared.

    >>> members = np.tile(np.eye(2, dtype=bool)[np.arange(60) % 2].T, (4, 1))
    >>> found = group_differences("x", members + 0.0, members, np.array(["f", "m"]).repeat(30), np.arange(60))
    >>> [(one.group, one.units, one.difference.mean) for one in found]
    [('f', 30, 0.0), ('m', 30, 0.0)]
    """
    known = groups != ""
    by_unit, inside = per_group(scores[:, known], members[:, known], units[known])
    of = groups[known][np.unique(units[known], return_index=True)[1]]
    names, sizes = np.unique(of, return_counts=True)
    if len(names) < 2:
        return ()
    compared = [(str(name), int(size)) for name, size in zip(names, sizes, strict=True) if size >= FEWEST_UNITS]
    joint = 1 - (1 - confidence) / max(1, len(compared))

    def areas(chosen: Bools) -> Floats:
        sides = zip(by_unit[:, chosen], inside[:, chosen], strict=True)
        return np.array([auc(row[own], row[~own]) if 0 < own.sum() < own.size else 0.5 for row, own in sides])

    return tuple(
        GroupDifference(setting, name, size, paired_difference(areas(of == name), areas(of != name), joint))
        for name, size in compared
    )
