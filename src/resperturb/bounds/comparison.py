"""From whose membership epsilon is bounded, and what chance decided about it.

All scores of an audit come from one model, so they are not independent, and only the *coins* that decided membership
may be relied on. Two designs give such coins:

- ``add_remove``: every candidate was put in by its own fair coin. A guarantee that compares data sets with and
  without a record says how often such coins can be guessed.
- ``swap``: a cut at random put half of the records in. Match each member with a non-member of the same label by
  chance: given the pairs, which one of each is the member is a fair coin, independent of the others. A guarantee that
  compares data sets in which one image is replaced by another of the same label says how often those can be guessed.
  The additive strategy's guarantee is of this kind and no other.

Rows of one unit (all records of one person) share a coin: their scores are combined, and the bound is for a group. A
canary with a unit of its own is a coin of its own; canaries that share a unit count once. Both designs are bounded by
:func:`~resperturb.bounds.one_run`.
"""

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from resperturb.bounds.arrays import Bools, Ints
from resperturb.bounds.audit_result import AttackScores
from resperturb.bounds.one_run import one_run
from resperturb.bounds.result import Confusion, LowerBound
from resperturb.bounds.scores import Scores
from resperturb.errors import UsageError

Neighbours = Literal["add_remove", "swap"]

ASSUMED = {
    ("add_remove", "record"): "Each candidate was put in by its own fair coin; the bound is for adding or removing a "
    "record.",
    ("add_remove", "group"): "Each group (patient) was put in by its own fair coin; the bound is for adding "
    "or removing a group: all records of one person.",
    ("swap", "record"): "A random cut decided membership. Each member was matched with a non-member of the same "
    "label by chance, so that the bound is for replacing an image by another of the same label.",
    ("swap", "group"): "A cut at random decided which groups were in. Each was matched with one that was out by "
    "chance, so that the bound is for replacing a group (patient) by another.",
}
TOO_FEW = "There were too few candidates, members and non-members, to bound epsilon by."


@dataclass(frozen=True, eq=False)
class Comparison:
    """How an audit bounds epsilon; settled before anything is scored.

    The scores of the ``chosen`` candidates count; those of one unit share a coin. ``attacks`` attacks bound epsilon,
    and each gets its share of the error (Bonferroni), so that the largest bound has the ``confidence``.
    """

    neighbours: Neighbours
    chosen: Bools
    members: Bools
    labels: Ints
    units: Ints
    delta: float
    confidence: float
    attacks: int

    @cached_property
    def unit(self) -> Literal["record", "group"]:
        """Whether the coins are those of records, or of groups: units that another candidate shares."""
        _, codes, rows = np.unique(self.units, return_inverse=True, return_counts=True)
        return "group" if (rows[codes][self.chosen] > 1).any() else "record"

    @property
    def each(self) -> float:
        """The confidence of each bound."""
        return 1 - (1 - self.confidence) / max(1, self.attacks)

    def split(self, scores: Scores) -> AttackScores:
        """The scores of units that were in and of those that were out, as the design compares them."""
        scores, members, labels = scores[self.chosen], self.members[self.chosen], self.labels[self.chosen]
        if self.unit == "group":
            scores, members = per_group(scores, members, self.units[self.chosen])
            labels = np.zeros(len(scores), dtype=np.int64)
        if self.neighbours == "add_remove":
            return AttackScores(scores[members], scores[~members])
        return paired(scores, members, labels)

    def bound(self, scores: Scores, attack: str) -> LowerBound:
        """Bound epsilon from below by one attack's scores of all candidates."""
        split = self.split(scores)
        if not (split.members.size and split.nonmembers.size):
            return self.nothing(TOO_FEW)
        found = one_run(split.members, split.nonmembers, delta=self.delta, confidence=self.each)
        return replace(self._described(found), attack=attack if found.epsilon > 0 else None)

    def best(self, bounds: list[LowerBound]) -> LowerBound:
        """The largest of all bounds, which together hold with the confidence of the audit."""
        if not bounds:
            return self.nothing(TOO_FEW)
        return replace(max(bounds, key=lambda bound: bound.epsilon), confidence=self.confidence)

    def nothing(self, why: str) -> LowerBound:
        """Say that nothing was bounded."""
        empty = LowerBound(
            0.0, self.delta, self.confidence, "one_run", "", None, None, Confusion(0, 0, 0, 0), (), (why,)
        )
        return replace(self._described(empty), assumptions=())

    def _described(self, bound: LowerBound) -> LowerBound:
        return replace(
            bound,
            assumptions=(ASSUMED[self.neighbours, self.unit],),
            neighbours=self.neighbours,
            unit=self.unit,
            candidates=len(np.unique(self.units[self.chosen])),
            correction=f"the best of {self.attacks} fixed attacks, each at confidence {self.each:.4g} (Bonferroni)",
        )


def per_group(scores: Scores, members: Bools, units: Ints, how: str = "mean") -> tuple[Scores, Bools]:
    """Combine the scores of each unit's rows by their mean, or the ``sum`` of log-likelihood ratios.

    Returns:
        One score per unit, and which units are members; of one model, or of several ``[K, units]``.

    Raises:
        UsageError: Rows of one unit differ in membership.

    >>> per_group(np.array([1.0, 3.0, 5.0]), np.array([True, True, False]), np.array([7, 7, 9]))
    (array([2., 5.]), array([ True, False]))
    """
    _, first, codes = np.unique(units, return_index=True, return_inverse=True)
    if (members != members[..., first][..., codes]).any():
        raise UsageError("rows of one unit (patient) must all be members, or none of them.")
    finite = np.clip(scores, np.finfo(np.float64).min / len(codes), np.finfo(np.float64).max / len(codes))
    each = [np.bincount(codes, weights=row) for row in finite.reshape(-1, len(codes))]
    sums: Scores = np.array(each, dtype=np.float64).reshape(*scores.shape[:-1], len(first))
    return (sums if how == "sum" else sums / np.bincount(codes)), members[..., first]


def paired(scores: Scores, members: Bools, labels: Ints) -> AttackScores:
    """Match members with non-members of the same label at random, and give the differences of their scores.

    A pair is ordered by a coin; it counts as *member* where its first is the member. A member without a partner is
    left out. The coins are drawn anew in every audit, seeded by a hash of all that it knows. A fixed seed would give
    all audits of one size the same coins, and reward each of them for guessing the more frequent side.

    >>> found = paired(np.array([5.0, 1.0]), np.array([True, False]), np.array([3, 3]))
    >>> sorted([*found.members.tolist(), *found.nonmembers.tolist()]) in ([4.0], [-4.0])
    True
    """
    ranks = np.unique(scores, return_inverse=True)[1]
    content = hashlib.sha256(np.stack([members, labels, ranks]).astype("<i8").tobytes())
    rng = np.random.default_rng(int.from_bytes(content.digest()))
    ins, outs = [], []
    for label in np.unique(labels):
        own = rng.permutation(np.flatnonzero((labels == label) & members))
        other = rng.permutation(np.flatnonzero((labels == label) & ~members))
        count = min(len(own), len(other))
        first = rng.random(count) < 0.5
        difference = scores[own[:count]] - scores[other[:count]]
        ins.append(difference[first])
        outs.append(-difference[~first])
    return AttackScores(np.concatenate(ins), np.concatenate(outs))
