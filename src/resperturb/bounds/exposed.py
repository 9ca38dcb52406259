"""Which records are exposed: a test per record over the targets of a leave-one-out audit, at a false discovery rate.

Models 2j and 2j + 1 were trained on opposite coins of every record. Where membership has no effect on the answers
about a record, these are independent of its coin. So the signs of the K/2 differences *member minus non-member* are
fair coins, and the signed-rank statistic has a known distribution. Scores pooled over records do not allow this:
they are not calibrated for a single record.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from resperturb.bounds.arrays import Bools, Floats
from resperturb.errors import UsageError

FEWEST_TARGETS = 64


@dataclass(frozen=True)
class Exposed:
    """The units whose membership the models give away, with at most a share ``rate`` of false ones expected.

    ``records`` are their numbers, the most exposed first: for the owner's eyes only.
    """

    records: tuple[int, ...]
    units: int
    targets: int
    rate: float

    @property
    def count(self) -> int:
        """How many units are exposed."""
        return len(self.records)

    @property
    def resolved(self) -> bool:
        """Whether this number of targets can name a single unit: the smallest p-value is 2^(-K/2)."""
        return 2.0 ** -(self.targets // 2) <= self.rate / max(1, self.units)

    @property
    def words(self) -> str:
        """The result in a sentence."""
        found = f"{self.count} of {self.units} are exposed at a false discovery rate of {100 * self.rate:g}%"
        if self.resolved:
            return f"{found}, from {self.targets} models."
        return (
            f"{found}; {self.targets} models are too few to name a single one among {self.units}, "
            f"train {FEWEST_TARGETS} or more."
        )


def exposed(values: Floats, members: Bools, rate: float = 0.05) -> Exposed:
    """Name the units that are exposed: signed-rank tests over pairs of models (Benjamini and Hochberg, 1995).

    ``values`` are what each of K models answers about each of n units, [K, n]: higher where it knows the unit, such
    as its confidence; of a unit of several rows, their mean. ``rate`` is the false discovery rate.

    Raises:
        UsageError: The models do not come in pairs of opposite membership, or a value is not finite.

    >>> rng = np.random.default_rng(0)
    >>> coins = rng.random((32, 50)) < 0.5
    >>> members = np.stack([coins, ~coins], axis=1).reshape(64, 50)
    >>> effect = np.where(np.arange(50) == 7, 3.0, 0.0)
    >>> exposed(rng.normal(size=(64, 50)) + effect * members, members).records
    (7,)
    """
    if values.shape != members.shape or len(values) % 2 or (members[::2] == members[1::2]).any():
        raise UsageError("models 2j and 2j + 1 must be trained on opposite coins of every unit.")
    if not np.isfinite(values).all():
        raise UsageError("the answers about a unit must be finite numbers.")
    # How confident a model is on the whole says nothing of a single unit; taking it out is blind to the unit's coin.
    centred = values - np.median(values, axis=1, keepdims=True)
    p_values = signed_rank_p_values((centred[::2] - centred[1::2]) * np.where(members[::2], 1, -1))
    order = np.argsort(p_values, kind="stable")
    steps = rate * np.arange(1, p_values.size + 1) / max(1, p_values.size)
    below = np.flatnonzero(p_values[order] <= steps)
    named = order[: below[-1] + 1] if below.size else order[:0]
    return Exposed(tuple(named.tolist()), p_values.size, len(values), rate)


def signed_rank_p_values(differences: Floats) -> Floats:
    """Return the one-sided exact p-value of each column: are its differences above 0?

    Differences of 0 count as negative. Of equally large ones the negative get the larger ranks, against the claim.

    >>> signed_rank_p_values(np.array([[1.0, -1.0], [2.0, 2.0], [3.0, 3.0]]))
    array([0.125, 0.25 ])
    """
    pairs, columns = differences.shape
    positive = differences > 0
    sizes = np.abs(differences)
    ranks = np.empty(differences.shape, dtype=np.int64)
    for column in range(columns):
        ranks[np.lexsort((~positive[:, column], sizes[:, column])), column] = np.arange(1, pairs + 1)
    p_values: Floats = signed_rank_tail(pairs)[(ranks * positive).sum(axis=0)]
    return p_values


@lru_cache(maxsize=8)
def signed_rank_tail(pairs: int) -> Floats:
    """Return how probable each sum of positive ranks, or a larger one, is by fair coins."""
    mass = np.ones(1)
    for rank in range(1, pairs + 1):
        mass = (np.append(mass, np.zeros(rank)) + np.append(np.zeros(rank), mass)) / 2
    return np.cumsum(mass[::-1])[::-1]
