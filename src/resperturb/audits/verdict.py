"""The proven upper bound of a run beside the lower bound that an attack on it shows.

All scores of an audit come from one model, so they are not independent, and only the *coins* that decided who was in
may be relied on. Two designs give such coins:

- ``coins``: every candidate was put in by its own fair coin. A guarantee that compares data sets with and without a
  record (add or remove) says how often such coins can be guessed.
- ``pairs``: a cut at random put half of the records in. Match each that is in with one of the same label that is out,
  blindly: given the pairs, which one of each is in is a fair coin, independent of the others. A guarantee that
  compares data sets in which one image is replaced by another of the same label (swap) says how often those can be
  guessed. The additive strategy's guarantee is of this kind and no other.

Both are bounded by the one-run method for (epsilon, delta) of Mahloujifar, Melis and Chaudhuri (2024).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from resperturb.auditing.one_run import one_run_fdp
from resperturb.auditing.result import LowerBound
from resperturb.auditing.scores import Scores
from resperturb.audits.candidates import RECORD, Candidates
from resperturb.audits.outcome import MembershipScores
from resperturb.models.names import parse_name
from resperturb.perturbation.strategy import TrainingFacts
from resperturb.training.run import Run
from resperturb.training.secret import secrecy

Design = Literal["coins", "pairs"]

PAIRS_ASSUMED = (
    "A cut at random decided who was in. Each member was matched with a non-member of the same label without looking "
    "at scores, so that the bound is for replacing an image by another of the same label."
)
COINS_ASSUMED = "Each candidate was put in by its own fair coin; the bound is for adding or removing a record."
TOO_FEW = "There were too few candidates, members and others, to bound epsilon by."
# Two bounds on epsilon that are no further apart than this agree for every practical purpose.
AGREEMENT = 1.0


@dataclass(frozen=True)
class Proven:
    """An upper bound on epsilon: infinite where nothing is proven, and then why."""

    epsilon: float
    compares: str
    assumptions: tuple[str, ...]
    why: str
    design: Design | None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name."""
        return {
            "epsilon": self.epsilon,
            "compares": self.compares,
            "assumptions": list(self.assumptions),
            "why": self.why,
        }


def proven(run: Run, delta: float, can_use_coins: bool) -> Proven:
    """Say what is proven about the training of ``run``, for the neighbours that an audit of it can test."""
    config, records = run.config, run.result.records
    if config.method.private:
        return _proven_by_method(run, records, delta, can_use_coins)
    strategy = config.strategy
    if strategy is None:
        return _nothing("It was trained without noise, so nothing is proven.")
    height, width = run.result.image_size
    facts = TrainingFacts(
        epochs=config.epochs,
        batch_size=config.batch_size,
        records=records,
        input_radius=config.input_radius(run.result.channels, height, width),
        networks=parse_name(config.model).networks,
    )
    budget = strategy.guarantee(facts, delta)
    if budget.mechanism == "none":
        return _nothing(budget.setting)
    if (secret := secrecy(config)).status == "not met":
        return _nothing(secret.statement)
    needed = tuple(a.statement for a in budget.assumptions if a.needed_by == "epsilon")
    return Proven(budget.epsilon, budget.compares, needed, budget.verdict, "pairs")


def _proven_by_method(run: Run, records: int, delta: float, can_use_coins: bool) -> Proven:
    config = run.config
    steps = config.epochs * math.ceil(records / config.batch_size)
    budget = config.method.guarantee(config, records, steps, delta)
    if budget is None or budget.claimed_epsilon == math.inf:
        return _nothing(f"{config.method.title} proves nothing here." if budget is None else budget.verdict)
    statements = tuple(assumption.statement for assumption in budget.assumptions)
    if can_use_coins:
        return Proven(budget.epsilon, budget.compares, statements, budget.verdict, "coins")
    return Proven(
        budget.as_swap().epsilon,
        "data sets in which one record is replaced by another (swap).",
        statements,
        "Counted for the replacement of a record, which is what this audit can test.",
        "pairs",
    )


def _nothing(why: str) -> Proven:
    return Proven(math.inf, "", (), why, None)


def lower_bound(
    scores: Scores,
    members: NDArray[np.bool_],
    labels: NDArray[np.int64],
    design: Design,
    delta: float,
    confidence: float,
) -> LowerBound | None:
    """Bound epsilon from below by one attack's scores, in the given design; None if there are too few for that.

    >>> rng = np.random.default_rng(0)
    >>> coins = rng.random(400) < 0.5
    >>> bound = lower_bound(coins + rng.normal(0, 0.2, 400), coins, np.zeros(400, int), "coins", 1e-5, 0.95)
    >>> bound.epsilon > 3
    True
    """
    if design == "coins":
        split, assumed = MembershipScores(scores[members], scores[~members]), COINS_ASSUMED
    else:
        split, assumed = paired(scores, members, labels), PAIRS_ASSUMED
    if not (split.members.size and split.nonmembers.size):
        return None
    found = one_run_fdp(split.members, split.nonmembers, delta=delta, confidence=confidence, curve="approximate")
    return replace(found, assumptions=(assumed,))


def paired(scores: Scores, members: NDArray[np.bool_], labels: NDArray[np.int64], seed: int = 0) -> MembershipScores:
    """Match members with non-members of the same label at random, and give the differences of their scores.

    A pair is ordered by a coin; it counts as *member* where its first is the member. Whoever finds no partner is left
    out.

    >>> found = paired(np.array([5.0, 1.0]), np.array([True, False]), np.array([3, 3]))
    >>> sorted([*found.members.tolist(), *found.nonmembers.tolist()]) in ([4.0], [-4.0])
    True
    """
    rng = np.random.default_rng([seed, len(scores)])
    ins, outs = [], []
    for label in np.unique(labels):
        own = rng.permutation(np.flatnonzero((labels == label) & members))
        other = rng.permutation(np.flatnonzero((labels == label) & ~members))
        count = min(len(own), len(other))
        first = rng.random(count) < 0.5
        difference = scores[own[:count]] - scores[other[:count]]
        ins.append(difference[first])
        outs.append(-difference[~first])
    return MembershipScores(np.concatenate(ins), np.concatenate(outs))


def compare(upper: float, lower: float) -> str:
    """Say how a measured lower bound stands to a proven upper bound.

    >>> compare(8.0, 1.5), compare(1.0, 1.5), compare(2.0, 1.5), compare(math.inf, 1.5)
    ('gap of 6.5', 'refuted', 'consistent', 'nothing is proven')
    """
    if lower > upper:
        return "refuted"
    if upper == math.inf:
        return "nothing is proven"
    gap = upper - lower
    return "consistent" if gap <= AGREEMENT else f"gap of {gap:.3g}"


@dataclass(frozen=True, eq=False)
class Bounds:
    """The lower bounds of an audit: from which candidates, in which design, at which corrected confidence."""

    upper: Proven
    design: Design
    chosen: NDArray[np.bool_]
    members: NDArray[np.bool_]
    labels: NDArray[np.int64]
    delta: float
    confidence: float
    count: int
    refusal: str | None

    @classmethod
    def of(
        cls,
        target: Run,
        asked: Candidates,
        members: NDArray[np.bool_],
        delta: float,
        confidence: float,
        count: int,
    ) -> "Bounds":
        """Settle, before anything is scored, how ``count`` attacks are going to bound epsilon."""
        canaries = asked.kinds != RECORD
        chosen = canaries if canaries.any() else ~canaries
        has_coins = bool(asked.coins()[chosen].all())
        upper = proven(target, delta, has_coins)
        design: Design = upper.design or ("coins" if has_coins else "pairs")
        refusal = None
        if not canaries.any() and asked.images.groups is not None:
            refusal = (
                "Records of one group were put in together, so their coins are not independent: add canaries to "
                "bound epsilon."
            )
        labels = asked.labels[: len(asked)]
        return cls(upper, design, chosen, members, labels, delta, confidence, count, refusal)

    @property
    def each(self) -> float:
        """The confidence of each bound, so that all hold together with the one asked for (Bonferroni)."""
        return 1 - (1 - self.confidence) / max(1, self.count)

    def at(self, scores: Scores) -> LowerBound | None:
        """Bound epsilon by one attack's scores of all candidates."""
        if self.refusal is not None:
            return None
        return lower_bound(
            scores[self.chosen],
            self.members[self.chosen],
            self.labels[self.chosen],
            self.design,
            self.delta,
            self.each,
        )

    def verdict(self, entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Set the largest of the lower bounds beside what is proven."""
        bounded = [entry for entry in entries if entry["epsilon_lower"] is not None]
        best = max(bounded, key=lambda entry: float(entry["epsilon_lower"]["epsilon"]), default=None)
        lower = 0.0 if best is None else float(best["epsilon_lower"]["epsilon"])
        return {
            "epsilon_lower": {
                "epsilon": lower,
                "attack": None if best is None or lower == 0 else f"{best['attack']}, {best['view']}",
                "confidence": self.confidence,
                "delta": self.delta,
                "design": self.design,
                "candidates": int(self.chosen.sum()),
                "assumptions": [] if best is None else best["epsilon_lower"]["assumptions"],
                "correction": f"the best of {self.count} attacks that were fixed beforehand, each bounded at "
                f"confidence {self.each:.4g} (Bonferroni)",
                "refusal": self.refusal or (TOO_FEW if best is None else None),
            },
            "epsilon_upper": self.upper.to_dict(),
            "verdict": compare(self.upper.epsilon, lower),
        }
