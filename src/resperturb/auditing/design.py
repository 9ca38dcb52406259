"""Designs: which of K models are trained on which candidates, which are targets, and what is evidence about whom."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from resperturb.bounds.arrays import Bools, Ints
from resperturb.errors import UsageError

# What decided the members of the targets: a fair coin per unit, a cut at random, a balanced assignment of every row
# to half of all models, or somebody.
Chance = Literal["coins", "cut", "balanced", "given"]
Kind = Literal["one target", "leave one out"]

EXISTS = -1  # the seed of a model that is not trained here
PRIME = 1_000_003  # seeds of different audits differ
FEWEST_SHADOWS, FEWEST_LEFT_OUT = 4, 6
# Models that a candidate needs on either side for a variance.
LEAST_EVIDENCE = 2


@dataclass(frozen=True, eq=False)
class Design:
    """Who is trained on what.

    Attributes:
        members: Membership of every candidate in every model, ``[K, n]``.
        seeds: Seed of every training, ``[K]``; -1 for a model that exists.
        partner: The model on the opposite coins, ``[K]``; -1 for none. It is never evidence about its partner.
        targets: Numbers of the targets, ``[T]``.
        chance: What decided the members of the targets.
        seed: Seed of the coins.
        unused: Models that were left out.
    """

    members: Bools
    seeds: Ints
    partner: Ints
    targets: Ints
    chance: Chance = "coins"
    seed: int = 0
    unused: frozenset[int] = frozenset()

    def __len__(self) -> int:
        return len(self.members)

    @property
    def kind(self) -> Kind:
        """One target, or every model a target once."""
        return "one target" if len(self.targets) == 1 else "leave one out"

    @property
    def used(self) -> list[int]:
        """The models that were not left out."""
        return [number for number in range(len(self)) if number not in self.unused]

    def evidence(self, target: int) -> Iterator[tuple[int, Bools]]:
        """Yield every model that is evidence about a target, and the candidates that it may speak about."""
        others = [number for number in self.used if number not in (target, int(self.partner[target]))]
        balanced = self.chance == "balanced"
        silent = self._silenced(target, others) if balanced else np.zeros(self.members.shape, dtype=bool)
        for number in others:
            yield number, ~silent[number]

    def _silenced(self, target: int, others: list[int]) -> Bools:
        """Leave out one model per candidate, at random, on the side where the others have one more.

        Where every row is in exactly half of all models, the number of other models with a row gives away whether
        the target has it.
        """
        found = np.zeros(self.members.shape, dtype=bool)
        rng = np.random.default_rng([self.seed, 5, target])
        inside = self.members[others]
        more = inside.sum(axis=0) > len(others) / 2
        for candidate in range(self.members.shape[1]):
            found[others[rng.choice(np.flatnonzero(inside[:, candidate] == more[candidate]))], candidate] = True
        return found

    def with_partners(self, models: Sequence[int]) -> list[int]:
        """List some models and the models on the opposite coins."""
        partners = [int(self.partner[number]) for number in models]
        return sorted({*models, *(partner for partner in partners if partner >= 0)})

    def without(self, models: Sequence[int]) -> "Design":
        """Return the design without some models, as evidence and as targets."""
        unused = self.unused | set(models)
        return replace(self, unused=unused, targets=self.targets[~np.isin(self.targets, sorted(unused))])

    def answerable(self) -> Bools:
        """Say which candidates have two models on either side as evidence about every target; all of a lone model."""
        found = np.ones(self.members.shape[1], dtype=bool)
        for target in self.targets.tolist() if len(self) > 1 else ():
            inside = outside = np.zeros(self.members.shape[1], dtype=np.int64)
            for number, about in self.evidence(target):
                inside = inside + (self.members[number] & about)
                outside = outside + (~self.members[number] & about)
            found &= (inside >= LEAST_EVIDENCE) & (outside >= LEAST_EVIDENCE)
        return found

    def select(self, chosen: Bools) -> "Design":
        """Return the design for some of the candidates."""
        return replace(self, members=self.members[:, chosen])


def one_target(units: Ints, shadows: int, seed: int, target: Bools | None = None, chance: Chance = "coins") -> Design:
    """Draw one target and its shadow models, in pairs on opposite coins.

    Coins do not depend on the number of shadow models, which is 0 or even and at least 4, so an audit can grow.
    ``target`` are the members of a target that exists, and ``chance`` what decided them; model 0 is the target.

    >>> design = one_target(np.arange(6), shadows=4, seed=0)
    >>> design.members[1:].sum(axis=0).tolist(), design.seeds.tolist()
    ([2, 2, 2, 2, 2, 2], [0, 1, 1, 2, 2])
    """
    check_shadow_count(shadows)
    members, seeds = _pairs(units, shadows // 2, seed)
    own, own_seed = (_coins([seed, 0], units), seed * PRIME) if target is None else (target, EXISTS)
    return Design(
        np.array([own, *members], dtype=bool),
        np.array([own_seed, *seeds]),
        np.array([-1, *((np.arange(shadows) ^ 1) + 1)]),
        np.array([0]),
        chance,
        seed,
    )


def leave_one_out(units: Ints, models: int, seed: int) -> Design:
    """Draw K models in pairs on opposite coins, each of them a target once.

    Every model outside a target's pair is evidence about it. The partner is not: its rows would give the target's
    coins away, and its seed the target's noise. K is even and at least 6; models
    2j and 2j + 1 are partners.

    >>> design = leave_one_out(np.arange(4), models=6, seed=0)
    >>> design.members.sum(axis=0).tolist(), [number for number, _ in design.evidence(3)]
    ([3, 3, 3, 3], [0, 1, 4, 5])
    """
    if not isinstance(models, int | np.integer) or models < FEWEST_LEFT_OUT or models % 2:
        raise UsageError(f"leave-one-out needs an even number of at least {FEWEST_LEFT_OUT} models, not {models!r}.")
    members, seeds = _pairs(units, models // 2, seed)
    numbers = np.arange(models)
    return Design(np.array(members, dtype=bool), np.array(seeds), numbers ^ 1, numbers, "coins", seed)


def given(members: Bools, targets: Ints) -> Design:
    """Describe models that exist by their members ``[K, n]``. Partners, and a balanced assignment, are found out.

    >>> keep = np.array([[1, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 1]], dtype=bool)
    >>> given(keep, np.array([0])).partner.tolist()
    [3, 2, 1, 0]
    >>> half = [[1, 1, 0, 0], [1, 0, 1, 0], [0, 1, 1, 0], [0, 0, 0, 1], [1, 0, 0, 1], [0, 1, 1, 1]]
    >>> given(np.array(half, dtype=bool), np.array([0])).chance
    'balanced'
    """
    count = len(members)
    partner = np.full(count, -1)
    for first in range(count if members.shape[1] > 1 else 0):
        opposite = (members[first] != members).all(axis=1) & (partner < 0)
        if partner[first] < 0 and opposite.any():
            other = int(opposite.argmax())
            partner[first], partner[other] = other, first
    design = Design(members, np.full(count, EXISTS), partner, np.asarray(targets, dtype=np.int64))
    if any(_gives_itself_away(design, target) for target in design.targets.tolist()):
        return replace(design, chance="balanced")
    return design


def check_shadow_count(shadows: int) -> None:
    """Refuse a number of shadow models that does not put every record into half of them, and outside of two."""
    whole = isinstance(shadows, int | np.integer)
    if not whole or (shadows and (shadows < FEWEST_SHADOWS or shadows % 2)):
        raise UsageError(
            f"an audit needs an even number of at least 4 shadow models, so that each record is in half of them and "
            f"outside of two; not {shadows!r}. For an audit without shadow models say --one-run (shadows=0)."
        )


def _gives_itself_away(design: Design, target: int) -> bool:
    """Whether the number of other models with a row separates the target's members from its non-members."""
    others = [number for number, _ in design.evidence(target)]
    counts, own = design.members[others].sum(axis=0), design.members[target]
    if not others or own.all() or not own.any():
        return False
    return bool(counts[own].max() < counts[~own].min())


def _pairs(units: Ints, pairs: int, seed: int) -> tuple[list[Bools], list[int]]:
    """Draw pairs of models on opposite coins, which share a seed."""
    coins = [_coins([seed, 1, pair], units) for pair in range(pairs)]
    return [side for one in coins for side in (one, ~one)], [
        seed * PRIME + pair + 1 for pair in range(pairs) for _ in range(2)
    ]


def _coins(seed: list[int], units: Ints) -> Bools:
    """Toss one fair coin per unit."""
    _, codes = np.unique(units, return_inverse=True)
    sides: Bools = np.random.default_rng(seed).random(int(codes.max(initial=-1)) + 1) < 0.5
    return sides[codes]
