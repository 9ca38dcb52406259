"""What is proven about a run beside what was shown: never an epsilon without what it rests on."""

import math
from dataclasses import dataclass
from typing import Any

from resperturb.privacy.guarantee import Guarantee, level, number
from resperturb.report.collect import ReportedRun

# For runs that were not audited, and whose training names no delta of its own.
DELTA = 1e-5


@dataclass(frozen=True)
class Upper:
    """An upper bound on epsilon; infinite where nothing is proven. Assumptions come with their status if known."""

    epsilon: float
    delta: float
    meaning: str
    protects: str
    compares: str
    assumptions: tuple[tuple[str, str], ...]

    @property
    def words(self) -> str:
        """The bound as a person would say it.

        >>> Upper(2890235.0, 1e-5, "", "", "", ()).words
        'epsilon at most 2,890,000 at delta 1e-05'
        """
        if self.epsilon == math.inf:
            return "no bound on epsilon at all"
        return f"epsilon at most {number(self.epsilon)} at delta {self.delta:g}"

    @property
    def level(self) -> str:
        """``meaningful``, ``weak`` or ``vacuous``."""
        return level(self.epsilon, self.delta)


@dataclass(frozen=True)
class Lower:
    """A lower bound on epsilon from an audit, at a confidence."""

    epsilon: float
    delta: float
    confidence: float
    attack: str | None
    notes: tuple[str, ...]

    @property
    def words(self) -> str:
        """The bound as a person would say it.

        >>> Lower(0.0, 1e-5, 0.95, None, ()).words
        'no epsilon above 0 was shown at delta 1e-05, with 95% confidence'
        """
        how_sure = f"at delta {self.delta:g}, with {100 * self.confidence:g}% confidence"
        if self.epsilon == 0:
            return f"no epsilon above 0 was shown {how_sure}"
        return f"epsilon at least {number(self.epsilon)} {how_sure}"


@dataclass(frozen=True)
class Claim:
    """The upper bounds of a run, and the lower bound if it was audited.

    The last of the upper bounds is the one that the lower bound may be compared with: both are about the same
    neighbouring data sets.
    """

    uppers: tuple[Upper, ...]
    lower: Lower | None
    verdict: str | None

    @property
    def upper(self) -> Upper:
        """The bound to set beside the lower one."""
        return self.uppers[-1]

    @property
    def conclusion(self) -> str:
        """How the two bounds stand to each other, in a sentence."""
        if self.lower is None or self.upper.epsilon == math.inf:
            return ""
        if self.refuted:
            return "Refuted: an attack showed more than was proven possible."
        if self.verdict == "consistent":
            return "The two agree."
        return f"The truth lies in between, a gap of {number(self.upper.epsilon - self.lower.epsilon)}."

    @property
    def refuted(self) -> bool:
        """Whether an attack showed more than was proven possible."""
        return self.verdict == "refuted"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        shown = None
        if self.lower is not None:
            shown = {key: getattr(self.lower, key) for key in ("epsilon", "delta", "confidence", "attack")}
        proven = {key: getattr(self.upper, key) for key in ("epsilon", "delta", "meaning", "protects", "compares")}
        return {
            "proven": {**proven, "assumptions": [statement for _, statement in self.upper.assumptions]},
            "shown": shown,
            "verdict": self.verdict,
        }


def claim(run: ReportedRun) -> Claim:
    """Say what is proven about a run, and what its audit showed."""
    audit = run.audit
    guarantee = run.run.guarantee
    uppers = [] if guarantee is None else [_guaranteed(guarantee)]
    if audit is None:
        return Claim(tuple(uppers) or (_computed(run),), None, None)
    tested = _upper(run, audit["epsilon_upper"], float(audit["epsilon_lower"]["delta"]))
    if not uppers or uppers[0].compares != tested.compares:
        uppers.append(tested)
    lower = audit["epsilon_lower"]
    notes = (lower["refusal"], f"The lower bound is {lower['correction']}.", *lower["assumptions"])
    return Claim(
        tuple(uppers),
        Lower(
            float(lower["epsilon"]),
            float(lower["delta"]),
            float(lower["confidence"]),
            lower["attack"],
            tuple(note for note in notes if note),
        ),
        str(audit["verdict"]),
    )


def _guaranteed(guarantee: Guarantee) -> Upper:
    return Upper(
        guarantee.epsilon,
        guarantee.delta,
        guarantee.verdict,
        guarantee.protects,
        guarantee.compares,
        tuple((item.status, item.statement) for item in guarantee.assumptions),
    )


def _computed(run: ReportedRun) -> Upper:
    from resperturb.audits.verdict import proven

    return _upper(run, proven(run.run, DELTA, can_use_coins=False).to_dict(), DELTA)


def _upper(run: ReportedRun, found: dict[str, Any], delta: float) -> Upper:
    epsilon = float(found["epsilon"])
    about_pixels = epsilon < math.inf and not run.run.config.method.private
    return Upper(
        epsilon,
        delta,
        found["why"],
        "the pixels of one training image, not its label." if about_pixels else "",
        found["compares"],
        tuple(("", statement) for statement in found["assumptions"]),
    )
