"""Differences between subgroups: does one subgroup leak more than another under the same models?"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from resperturb.bounds.arrays import Bools, Floats, Ints, Texts
from resperturb.bounds.metrics import auc
from resperturb.bounds.targets import Difference, paired_difference
from resperturb.frontiers.curve import per_unit

FEWEST_UNITS = 20


@dataclass(frozen=True)
class GroupDifference:
    """The AUC on one subgroup minus the AUC on all other records, on the same targets.

    Attributes:
        setting: Name of the setting.
        group: Value of the subgroup column.
        units: The number of records, or patients, in the subgroup.
        difference: With an interval that is simultaneous over all subgroups of the setting.
    """

    setting: str
    group: str
    units: int
    difference: Difference


def group_differences(
    setting: str, scores: Floats, members: Bools, groups: Texts, units: Ints, confidence: float = 0.95
) -> tuple[GroupDifference, ...]:
    """Compare each subgroup with all others, target by target.

    Args:
        setting: Name of the setting.
        scores: The score of every record under every target, ``[K, n]``.
        members: Membership, ``[K, n]``.
        groups: The subgroup of every record; ``""`` where it is not known, and then the record is left out.
        units: The unit (patient) of every record; scores are averaged over units.
        confidence: Joint confidence of all intervals.

    Returns:
        One difference per subgroup of at least 20 units; none where there is a single one.

    >>> members = np.tile(np.eye(2, dtype=bool)[np.arange(60) % 2].T, (4, 1))
    >>> found = group_differences("x", members + 0.0, members, np.array(["f", "m"]).repeat(30), np.arange(60))
    >>> [(one.group, one.units, one.difference.mean) for one in found]
    [('f', 30, 0.0), ('m', 30, 0.0)]
    """
    known = groups != ""
    by_unit, inside, first = per_unit(scores[:, known], members[:, known], units[known])
    of = groups[known][first]
    names = [name for name in np.unique(of) if (of == name).sum() >= FEWEST_UNITS]
    if len(np.unique(of)) < 2:
        return ()
    joint = 1 - (1 - confidence) / max(1, len(names))
    return tuple(
        GroupDifference(
            setting,
            str(name),
            int((of == name).sum()),
            paired_difference(
                _areas(by_unit, inside, of == name), _areas(by_unit, inside, of != name), joint, margin=0.02
            ),
        )
        for name in names
    )


def _areas(scores: Floats, members: Bools, chosen: Bools) -> Floats:
    def each() -> Iterator[float]:
        for row, inside in zip(scores[:, chosen], members[:, chosen], strict=True):
            yield auc(row[inside], row[~inside]) if 0 < inside.sum() < inside.size else 0.5

    return np.array(list(each()))
