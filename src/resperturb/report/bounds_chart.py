"""What is proven and what was shown, drawn on one scale."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from resperturb.privacy.guarantee import MEANINGFUL_UP_TO, WEAK_UP_TO, number
from resperturb.report.collect import ReportedModel
from resperturb.report.wording import measured_alike

# The scale is logarithmic, so an epsilon of 0 is drawn at its left end, and an infinite one at its right.
LEFT, RIGHT = 0.01, 100.0


@dataclass(frozen=True)
class Bounds:
    """The bounds of a model in words, and their places on the scale; ``high`` is None where nothing is proven."""

    name: str
    shown: str
    proven: str
    together: str
    low: float
    high: float | None


def place(epsilon: float) -> float:
    """Place an epsilon on the scale: 0 is its left end, 1 its right.

    >>> place(0.0), place(1.0), place(1e9)
    (0.0, 0.5, 1.0)
    """
    share = math.log10(max(epsilon, LEFT) / LEFT) / math.log10(RIGHT / LEFT)
    return min(1.0, share)


# What the scale is marked with: an epsilon, and what bounds up to the next one are worth.
MARKS = ((LEFT, "meaningful"), (MEANINGFUL_UP_TO, "weak"), (WEAK_UP_TO, "vacuous"))


def bounds(runs: Sequence[ReportedModel]) -> list[Bounds]:
    """Give the upper and the lower bound on epsilon of every model that has either."""
    found = []
    ways = measured_alike(runs)
    for run in runs:
        first, last = run.guarantees[0], run.guarantees[-1]
        upper, lower = last.claimed_epsilon, run.lower
        if lower is None and upper == math.inf:
            continue
        proven = "nothing" if upper == math.inf else f"≤ {number(upper)}"
        if "converted_from" in last.details:  # drawn for swaps, next to the epsilon that the training was made for
            proven = f"≤ {number(first.claimed_epsilon)} ({number(upper)} for swaps, drawn)"
        shown = "not audited" if lower is None else f"≥ {number(lower.epsilon)}"
        if lower is not None and len(ways) > 1:
            shown += f" (measured as {next(n for n, way in enumerate(ways, 1) if lower.comparable(way))})"
        low, high = 0.0 if lower is None else place(lower.epsilon), None if upper == math.inf else place(upper)
        found.append(Bounds(run.name, shown, proven, "" if run.audit is None else run.audit.verdict, low, high))
    return found
