"""A budget: an epsilon that cannot be had without what it protects, what it assumes, and what it is worth."""

import textwrap
from dataclasses import dataclass
from typing import Any, Literal

from resperturb.privacy.accounting import FALSE_POSITIVE_RATE, Ledger, Neighbours

Status = Literal["assumed", "enforced", "measured"]
Level = Literal["meaningful", "weak", "vacuous"]

# docs/theory.md says what an attacker can do at each of these.
MEANINGFUL_UP_TO = 3.0
WEAK_UP_TO = 10.0

_COMPARED: dict[Neighbours, str] = {
    "swap": "data sets in which one record is replaced by another (swap).",
    "add_remove": "data sets of which one has one record more (add or remove).",
    "any": "any two data sets at all.",
}
SAME_LABEL = "data sets in which one image is replaced by another under the same label (swap)."


@dataclass(frozen=True)
class Assumption:
    """Something a bound rests on: assumed of the user's data, enforced by the code, or measured on a run.

    ``needed_by`` names the number that is void without it.
    """

    status: Status
    statement: str
    needed_by: str = "epsilon"

    def to_dict(self) -> dict[str, str]:
        """Return plain values.

        >>> Assumption("enforced", "Inputs are clipped to radius 30.").to_dict()["status"]
        'enforced'
        """
        return {"status": self.status, "statement": self.statement, "needed_by": self.needed_by}


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What may be claimed: ``(epsilon, delta)``, of what, for whom, and on which assumptions.

    ``max_tpr`` is the largest share of records that the bound lets an attacker recognise who wrongly accuses
    one outsider in a thousand.
    """

    mechanism: str
    setting: str
    epsilon: float
    delta: float
    max_tpr: float
    protects: str
    assumptions: tuple[Assumption, ...]
    ledger: Ledger
    records: int | None = None

    @property
    def neighbours(self) -> Neighbours:
        """Which two data sets are compared: ``swap``, ``add_remove`` or ``any``."""
        return self.ledger.neighbours

    @property
    def compares(self) -> str:
        """The neighbouring data sets in words."""
        return _COMPARED[self.neighbours]

    @property
    def level(self) -> Level:
        """``meaningful``, ``weak`` or ``vacuous``."""
        return level(self.epsilon, self.delta, self.records)

    @property
    def verdict(self) -> str:
        """One sentence that begins with the level and says what it means."""
        if self.epsilon == float("inf"):
            return "vacuous: there is no noise where the proof needs it, so nothing at all is promised."
        if self.records is not None and self.delta * self.records >= 1:
            return (
                f"vacuous: a delta of {self.delta:g} is not below one in {self.records} records, which would "
                f"permit publishing one of them outright, whatever epsilon is."
            )
        attack = (
            f"an attacker who wrongly names 1 outsider in {1 / FALSE_POSITIVE_RATE:.0f} as part of the training set "
            f"could still recognise {percent(self.max_tpr)} of those who were"
        )
        return {
            "meaningful": f"meaningful: {attack}, and no more, if the assumptions hold.",
            "weak": f"weak: {attack}, and only more than that is ruled out.",
            "vacuous": f"vacuous: this number promises nothing of use: for all it says, {attack}.",
        }[self.level]

    def numbers(self) -> dict[str, Any]:
        """Return what this kind of budget reports besides the common fields."""
        return {}

    def facts(self) -> list[tuple[str, str]]:
        """Return labelled lines to print below epsilon."""
        return []

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {
            "mechanism": self.mechanism,
            "epsilon": self.epsilon,
            "delta": self.delta,
            **self.numbers(),
            "neighbours": self.neighbours,
            "compares": self.compares,
            "protects": self.protects,
            "assumptions": [assumption.to_dict() for assumption in self.assumptions],
            "max_tpr_at_fpr_0.001": self.max_tpr,
            "level": self.level,
            "verdict": self.verdict,
        }

    def __str__(self) -> str:
        word, meaning = self.verdict.split(": ", 1)
        lines = [*_wrapped(self.setting), "", *_wrapped(f"{word.upper()}: {meaning}"), ""]
        facts = [
            ("epsilon", f"{number(self.epsilon)} at delta {self.delta:g}"),
            *self.facts(),
            ("Protects", self.protects),
            ("Compares", self.compares),
        ]
        width = max(len(label) for label, _ in facts) + 2
        for label, text in facts:
            lines += _wrapped(text, label.ljust(width))
        lines.append("It holds only if")
        for assumption in self.assumptions:
            only = "" if assumption.needed_by == "epsilon" else f"({assumption.needed_by} only) "
            lines += _wrapped(only + assumption.statement, f"  {assumption.status:<10}")
        return "\n".join(lines)


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
    """Write a share as a percentage that never rounds up to everybody, nor down to nobody.

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
