"""A guarantee: an epsilon that cannot be had without what it protects, what it assumes, and what it is worth."""

import math
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from resperturb.privacy.accounting import (
    FALSE_POSITIVE_RATE,
    MOST_NUMBERS,
    Account,
    Ledger,
    Neighbours,
    account,
    exact_delta,
    largest_auc,
)
from resperturb.privacy.gaussian import mu_for_budget

Status = Literal["assumed", "enforced", "measured", "not met"]
Level = Literal["meaningful", "weak", "vacuous"]

# docs/concepts/epsilon.md says what an attacker can do at each of these.
MEANINGFUL_UP_TO = 3.0
WEAK_UP_TO = 10.0
# A larger bound on the AUC rounds to 1.000 and says nothing.
TELLING_AUC = 0.9995

SCHEMA = 1

COMPARED: dict[Neighbours, str] = {
    "swap": "data sets in which one record is replaced by another (swap).",
    "add_remove": "data sets of which one has one record more (add or remove).",
}
SAME_LABEL = "data sets in which one image is replaced by another under the same label (swap)."


@dataclass(frozen=True)
class Assumption:
    """Something epsilon rests on: assumed of the user's data, enforced by the code, measured on a run, or not met."""

    status: Status
    statement: str


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """What is proven: ``(epsilon, delta)``, of what, for whom, and on which assumptions.

    An infinite epsilon says that nothing is proven; ``setting`` then says why. ``max_tpr`` is the largest true
    positive rate that the bound leaves an attack at a false positive rate of 0.001. ``details`` are the numbers that
    epsilon follows from, such as ``noise_multiplier``, ``notes`` labelled lines to print below it, ``ledger`` what
    was released (None for a guarantee that was read from a file).

    >>> nothing_proven("It was trained without noise.").words
    'no guarantee: It was trained without noise.'
    """

    mechanism: str
    setting: str
    epsilon: float
    delta: float
    max_tpr: float
    protects: str
    neighbours: Neighbours
    compares: str
    assumptions: tuple[Assumption, ...]
    records: int | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[tuple[str, str], ...] = ()
    ledger: Ledger | None = field(default=None, repr=False)

    @property
    def not_met(self) -> tuple[Assumption, ...]:
        """The assumptions of epsilon that are known not to hold; with any, epsilon may not be claimed."""
        return tuple(a for a in self.assumptions if a.status == "not met")

    @property
    def claimed_epsilon(self) -> float:
        """Epsilon, or infinity where an assumption is known not to hold."""
        return math.inf if self.not_met else self.epsilon

    @property
    def max_auc(self) -> float:
        """The largest AUC with which any attack distinguishes the two compared data sets.

        >>> nothing_proven("It was trained without noise.").max_auc
        1.0
        """
        if not math.isfinite(self.claimed_epsilon):
            return 1.0
        ledger = self.ledger
        if ledger is None and "mu" in self.details:  # read from a file: Gaussian, so epsilon and delta determine mu
            ledger = Ledger(self.neighbours, mu=mu_for_budget(self.epsilon, self.delta))
        return largest_auc(ledger, self.epsilon, self.delta)

    @property
    def level(self) -> Level:
        """``meaningful``, ``weak`` or ``vacuous``."""
        return level(self.claimed_epsilon, self.delta, self.records)

    @property
    def words(self) -> str:
        """The guarantee in a few words, for a table or a headline."""
        if self.not_met:
            return f"no guarantee: {self.not_met[0].statement}"
        if self.epsilon == math.inf:
            return f"no guarantee: {self.setting}"
        swap = ", counted for the swap of a record" if "converted_from" in self.details else ""
        auc = f", attack AUC at most {self.max_auc:.3f}" if self.max_auc < TELLING_AUC else ""
        bound = f"epsilon at most {number(self.epsilon)} at delta {self.delta:g}{swap}{auc}"
        return f"no useful guarantee ({bound})" if self.level == "vacuous" else bound

    @property
    def sentence(self) -> str:
        """The guarantee as a sentence.

        >>> nothing_proven("It was trained without noise.").sentence
        'No guarantee: It was trained without noise.'
        """
        words = self.words.rstrip(".")
        return f"{words[0].upper()}{words[1:]}." if self.level == "vacuous" else f"Proven: {words}."

    @property
    def meaning(self) -> str:
        """One sentence that begins with the level and says what it means."""
        if self.not_met:
            return f"vacuous: an assumption is not met, so nothing is promised. {self.not_met[0].statement}"
        if self.epsilon == math.inf:
            return "vacuous: there is no noise where the proof needs it, so nothing at all is promised."
        if self.records is not None and self.delta * self.records >= 1:
            return (
                f"vacuous: a delta of {self.delta:g} is not below one in {self.records} records, which would "
                f"permit publishing one of them outright, whatever epsilon is."
            )
        attack = (
            f"an attack with a false positive rate of {FALSE_POSITIVE_RATE:.1%} could still have a true positive "
            f"rate of {percent(self.max_tpr)}"
        )
        return {
            "meaningful": f"meaningful: {attack}, and no more, if the assumptions hold.",
            "weak": f"weak: {attack}, and only more than that is ruled out.",
            "vacuous": f"vacuous: this number promises nothing of use: for all it says, {attack}.",
        }[self.level]

    def as_swap(self) -> "Guarantee":
        """The same guarantee counted for the replacement of one record, where it compares additions and removals.

        Returns:
            A guarantee for swaps, whose epsilon is about twice as large; itself if it is for swaps already.
        """
        if self.neighbours != "add_remove" or self.ledger is None:
            return self
        swapped = self.ledger.as_swap()
        found, unmet = counted(swapped, self.delta)
        return replace(
            self,
            epsilon=found.epsilon,
            max_tpr=found.max_tpr,
            neighbours="swap",
            compares=COMPARED["swap"].replace("record", str(self.details.get("unit", "record"))),
            assumptions=(*self.assumptions, *unmet),
            ledger=swapped,
            details={**self.details, "converted_from": {"neighbours": "add_remove", "epsilon": self.epsilon}},
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON; no number that rests on an assumption which is not met."""
        common = {field.name: getattr(self, field.name) for field in fields(Guarantee) if field.name != "ledger"}
        unclaimed = bool(self.not_met)
        return {
            "schema": SCHEMA,
            **common,
            "epsilon": self.claimed_epsilon,
            "max_tpr": 1.0 if unclaimed else self.max_tpr,
            "assumptions": [vars(assumption) for assumption in self.assumptions],
            "details": {} if unclaimed else dict(self.details),
            "notes": [] if unclaimed else [list(note) for note in self.notes],
            "max_auc": self.max_auc,
            "level": self.level,
            "meaning": self.meaning,
        }

    def __str__(self) -> str:
        word, sentence = self.meaning.split(": ", 1)
        lines = [*_wrapped(self.setting), "", *_wrapped(f"{word.upper()}: {sentence}"), ""]
        facts = [
            ("epsilon", f"{number(self.claimed_epsilon)} at delta {self.delta:g}"),
            *(() if self.not_met else self.notes),
            *((("Attack AUC", f"at most {self.max_auc:.3f}, for any attack"),) if self.max_auc < TELLING_AUC else ()),
            ("Protects", self.protects),
            ("Compares", self.compares),
        ]
        width = max(len(label) for label, _ in facts) + 2
        for label, text in facts:
            lines += _wrapped(text, label.ljust(width))
        if self.assumptions:
            lines.append("It holds only if")
        for assumption in self.assumptions:
            lines += _wrapped(assumption.statement, f"  {assumption.status:<10}")
        return "\n".join(lines)


def per_record(guarantee: Guarantee) -> bool:
    """Whether a guarantee protects single records, of which a person may have several.

    >>> per_record(nothing_proven("It was trained without noise."))
    True
    """
    return str(guarantee.details.get("unit", "record")) == "record"


def nothing_proven(why: str, delta: float = 1e-5) -> Guarantee:
    """Say that nothing is proven, and why.

    Args:
        why: The reason, as a sentence.
        delta: Delta of the guarantee.

    Returns:
        A guarantee of infinite epsilon.

    >>> nothing_proven("It was trained without noise.").level
    'vacuous'
    """
    return Guarantee(
        mechanism="none",
        setting=why,
        epsilon=math.inf,
        delta=delta,
        max_tpr=1.0,
        protects="nothing.",
        neighbours="add_remove",
        compares=COMPARED["add_remove"],
        assumptions=(),
    )


def counted(ledger: Ledger, delta: float, numbers: float = MOST_NUMBERS) -> tuple[Account, tuple[Assumption, ...]]:
    """Count a ledger of computed noise, and return the assumption that is not met if its tails are too short.

    Args:
        ledger: The releases.
        delta: Delta of the guarantee.
        numbers: Most normals that the releases draw.

    Returns:
        The account at delta less what the missing tails cost. If they cost too much, the account at delta itself and
        an assumption that is not met.

    >>> counted(Ledger("swap", mu=100.0), 1e-5)[1][0].status
    'not met'
    """
    left, enough = exact_delta(ledger, delta, numbers)
    found = account(ledger, left if enough else delta)
    if enough or math.isinf(found.epsilon):
        return found, ()
    statement = (
        f"Noise that is Gaussian to the end of its tails would give an epsilon of {number(found.epsilon)}. So large "
        "a one rests on tails that computed noise does not have."
    )
    return found, (Assumption("not met", statement),)


def level(epsilon: float, delta: float, records: int | None = None) -> Level:
    """Say what an epsilon is worth; a delta of one record in all is worth nothing.

    >>> level(1.0, 1e-5), level(8.0, 1e-5), level(1000.0, 1e-5), level(1.0, 1e-3, records=1000)
    ('meaningful', 'weak', 'vacuous', 'vacuous')
    """
    if epsilon > WEAK_UP_TO or (records is not None and delta * records >= 1):
        return "vacuous"
    return "meaningful" if epsilon <= MEANINGFUL_UP_TO else "weak"


def number(value: float) -> str:
    """Write a number for a person: three digits, no exponent while it stays readable.

    >>> number(2890000.0), number(5.266), number(float("inf"))
    ('2,890,000', '5.27', 'infinite')
    """
    if value == float("inf"):
        return "infinite"
    if 1000 <= value < 1e9:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.3g}"


def percent(share: float) -> str:
    """Write a share as a percentage that never rounds up to 100% nor down to 0%.

    >>> percent(1.0), percent(0.99999), percent(0.0183), percent(1e-9)
    ('100%', 'more than 99.9%', '1.8%', 'less than 0.1%')
    """
    if 0.999 < share < 1:
        return "more than 99.9%"
    if 0 < share < 0.001:
        return "less than 0.1%"
    return f"{100 * share:.2g}%" if share < 0.1 else f"{100 * share:.3g}%"


def _wrapped(text: str, label: str = "") -> list[str]:
    return textwrap.wrap(text, 79, initial_indent=label, subsequent_indent=" " * len(label))
