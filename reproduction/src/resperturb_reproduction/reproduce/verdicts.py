"""How measured numbers stand to the printed ones, and what becomes of the paper's claims.

**The rule of a row.** A measured mean *agrees* with a printed number if they differ by no more than
``TOLERANCE`` + t e sqrt(1 + 1/n), with n seeds and e the error of one measurement: the paper's number is one
measurement too. A row agrees if all numbers that the paper printed of it agree; it is *undecided* where that bound is
wider than ``WIDEST``, which says more about the spread than about the paper. Where settings or data are reduced,
*at reduced settings* goes with it, because neither agreement nor difference then says much about the paper's own.

**The rule of a claim.** Seeds share their quarters across rows, so the differences of two rows are paired: the claim
*holds* if the mean difference over the seeds that both have is more than t of its standard errors, *fails* if it is
so in the other direction, and is *open* in between. With one seed it is *seen once*, whichever way it points: the
luck of a training is not known.

t is Student's 97.5% quantile; for the row of a single training it is 1.96, and *one seed* is added.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace

from resperturb_reproduction.reproduce.declarations import Claim, Experiment, Printed
from resperturb_reproduction.reproduce.presets import PRESETS
from resperturb_reproduction.reproduce.results import (
    NOT_COMPARED,
    ClaimFound,
    ClaimOutcome,
    Row,
    RowMetrics,
    Spread,
    Trained,
)

TOLERANCE = 0.01
WIDEST = 0.05
CONFIDENCE = 0.95
PRINTED = {"auc": "AUC", "train_accuracy": "training accuracy", "test_accuracy": "test accuracy"}


def spread(values: Sequence[float], sampling_error: float, seeds: Sequence[int] = ()) -> Spread:
    """Summarise what several seeds gave.

    >>> spread([0.5, 0.7], 0.01).mean, round(spread([0.5, 0.7], 0.01).error, 3), spread([0.5], 0.01).error
    (0.6, 0.141, 0.01)
    """
    error = statistics.stdev(values) if len(values) > 1 else sampling_error
    return Spread(statistics.fmean(values), error, tuple(values), tuple(seeds))


def row_verdict(paper: Printed | None, measured: RowMetrics, preset: str, reduced: bool) -> str:
    """Say how a measured row stands to the printed one.

    >>> three = Spread(0.6, 0.005, (0.6, 0.6, 0.6))
    >>> row_verdict(Printed(auc=0.61), RowMetrics(auc=three), "paper", False)
    'agrees'
    >>> row_verdict(Printed(auc=0.7), RowMetrics(auc=three), "paper", False)
    'differs: AUC 0.600 against 0.700'
    >>> row_verdict(Printed(auc=0.61), RowMetrics(auc=Spread(0.6, 0.005, (0.6,))), "cpu", True)
    'agrees at reduced settings (one seed)'
    """
    if preset == "quick":
        return NOT_COMPARED
    printed = {key: value for key in PRINTED if (value := getattr(paper, key, None)) is not None}
    if not printed:
        return "the paper prints no number"
    found = {key: spread for key in printed if (spread := measured.of(key)) is not None}
    missing = [PRINTED[key] for key in printed if key not in found]
    if missing:
        return f"not measured: {', '.join(missing)}"
    off = [
        f"{PRINTED[key]} {found[key].mean:.3f} against {value:.3f}"
        for key, value in printed.items()
        if abs(found[key].mean - value) > tolerance(found[key])
    ]
    once = any(len(each.values) == 1 for each in found.values())
    words = (" at reduced settings" if reduced else "") + (" (one seed)" if once else "")
    if off:
        return f"differs{words}: {', '.join(off)}"
    vague = [f"{tolerance(s):.2f} in {PRINTED[key]}" for key, s in found.items() if tolerance(s) > WIDEST]
    if vague:
        return f"undecided{words}: only a difference of more than {', '.join(vague)} would have been seen"
    return f"agrees{words}"


def tolerance(found: Spread) -> float:
    """By how much a printed number may differ from a measured mean and still agree.

    >>> [round(tolerance(Spread(0.5, 0.01, values)), 4) for values in ((0.5,), (0.5, 0.5, 0.5))]
    [0.0377, 0.0597]
    """
    seeds = len(found.values)
    return TOLERANCE + _quantile(seeds - 1) * found.error * math.sqrt(1 + 1 / seeds)


def reach(found: Spread) -> float:
    """Half of the 95% interval of a mean over seeds; of one training, of its sampling error alone.

    >>> [round(reach(Spread(0.5, 0.01, values)), 4) for values in ((0.5,), (0.5, 0.5, 0.5))]
    [0.0196, 0.0248]
    """
    return _quantile(len(found.values) - 1) * found.error / math.sqrt(len(found.values))


def judged(experiment: Experiment, result: Trained) -> tuple[ClaimFound, ...]:
    """Judge every claim of an experiment by the rows that there are."""
    return tuple(verdict_on(claim, result) for claim in experiment.claims)


def verdict_on(claim: Claim, result: Trained) -> ClaimFound:
    """Judge a claim at the best preset at which both rows were measured, and at the best with several seeds."""
    unknown = ClaimFound(
        claim.text, claim.metric, claim.lower.data, claim.lower.key, claim.higher.key, "not measured", claim.topic
    )
    found = [
        each
        for preset in sorted(PRESETS.values(), key=lambda preset: -preset.rank)
        if (each := _verdict_at(preset.name, claim, unknown, result)) is not None
    ]
    if not found:
        return unknown
    several = next((each for each in found if each.seeds > 1), None)
    return found[0] if several is found[0] else replace(found[0], over_seeds=several)


def _verdict_at(preset: str, claim: Claim, unknown: ClaimFound, result: Trained) -> ClaimFound | None:
    lower, higher = (_row(result.rows, preset, cell.data, cell.key) for cell in (claim.lower, claim.higher))
    if lower is None or higher is None:
        return None
    low, high = lower.measured.of(claim.metric), higher.measured.of(claim.metric)
    if low is None or high is None:
        return None
    outcome, seeds, difference, interval = paired_difference(low, high)
    return replace(
        unknown,
        outcome="not compared" if preset == "quick" else outcome,
        preset=preset,
        reduced=bool(result.data_of(lower).reduced or result.data_of(higher).reduced),
        seeds=seeds,
        difference=difference,
        interval=interval,
    )


def paired_difference(lower: Spread, higher: Spread) -> tuple[ClaimOutcome, int, float, tuple[float, float]]:
    """Compare two numbers over the seeds that both have: the outcome, the seeds, the difference, its 95% interval.

    >>> low, high = (Spread(m, 0.1, (m, m + 0.2), (0, 1)) for m in (0.5, 0.6))
    >>> paired_difference(low, high)[0], paired_difference(high, low)[0], paired_difference(low, low)[0]
    ('holds', 'fails', 'open')
    >>> paired_difference(low, Spread(0.6, 0.01, (0.6,), (0,)))[:2]
    ('seen once', 1)
    """
    shared = [seed for seed in lower.seeds if seed in higher.seeds]
    if len(shared) < 2:
        pair = [each.values[each.seeds.index(shared[0])] if shared else each.mean for each in (lower, higher)]
        difference = pair[1] - pair[0]
        reach = _quantile(0) * math.hypot(lower.error, higher.error)
        return "seen once", 1, difference, (difference - reach, difference + reach)
    differences = [higher.values[higher.seeds.index(seed)] - lower.values[lower.seeds.index(seed)] for seed in shared]
    difference = statistics.fmean(differences)
    reach = _quantile(len(shared) - 1) * statistics.stdev(differences) / math.sqrt(len(shared))
    outcome: ClaimOutcome = "open" if abs(difference) <= reach else "holds" if difference > 0 else "fails"
    return outcome, len(shared), difference, (difference - reach, difference + reach)


def pointing(claim: ClaimFound) -> str:
    """Which way a claim that was seen once points.

    >>> seen = ClaimFound("", "auc", "", "", "", "seen once", difference=0.2, interval=(0.1, 0.3))
    >>> pointing(seen)
    'as claimed'
    """
    if claim.interval is None or claim.interval[0] <= 0 <= claim.interval[1]:
        return "no clear difference"
    return "as claimed" if claim.interval[0] > 0 else "the other way"


def in_words(claim: ClaimFound) -> str:
    """The outcome of a claim with everything that qualifies it.

    >>> in_words(ClaimFound("", "auc", "", "", "", "holds", preset="cpu", reduced=True, seeds=3))
    'holds at reduced settings (3 seeds)'
    """
    if claim.outcome == "not compared":
        return NOT_COMPARED
    if claim.outcome == "not measured":
        return claim.outcome
    reduced = " at reduced settings" if claim.reduced else ""
    return f"{claim.outcome}{reduced} ({pointing(claim) if claim.outcome == 'seen once' else f'{claim.seeds} seeds'})"


def expected_by_chance(claims: Iterable[ClaimFound]) -> float:
    """How many of the tested claims would be decided although there were no difference at all.

    >>> round(expected_by_chance([ClaimFound("", "auc", "", "", "", "holds")] * 40), 3)
    2.0
    """
    return (1 - CONFIDENCE) * sum(claim.tested is not None for claim in claims)


def _row(rows: Iterable[Row], preset: str, data: str, key: str) -> Row | None:
    return next((row for row in rows if (row.preset, row.data, row.key) == (preset, data, key)), None)


def _quantile(freedom: float) -> float:
    """Student's 97.5% quantile; that of the normal distribution for the sampling error of one training."""
    from scipy.stats import norm, t

    level = (1 + CONFIDENCE) / 2
    return float(t.ppf(level, freedom) if freedom > 0 else norm.ppf(level))
