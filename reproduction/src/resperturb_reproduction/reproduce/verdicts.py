"""Compare measured numbers with the published ones, and judge the paper's claims, by the rules on the page."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from resperturb_reproduction.reproduce.declarations import BY_ID, Claim, Printed
from resperturb_reproduction.reproduce.presets import PRESETS
from resperturb_reproduction.reproduce.results import AnyResult, DataUsed, Row, Spread, Trained, trained

TOLERANCE = 0.01
WIDEST = 0.05
CONFIDENCE = 0.95
NAMES = {"auc": "AUC", "train_accuracy": "training accuracy", "test_accuracy": "test accuracy"}

Word = Literal["supported", "contradicted", "inconclusive", "not measured", "not compared"]
DECIDED: tuple[Word, ...] = ("supported", "contradicted", "inconclusive")


@dataclass(frozen=True)
class Verdict:
    """How a row or a claim compares with the paper.

    Attributes:
        reduced: Whether settings or data are less than the paper's.
        detail: What decided, or what could have been seen.
    """

    word: Word
    seeds: int = 0
    reduced: bool = False
    detail: str = ""

    def __str__(self) -> str:
        """Write it with everything that qualifies it.

        >>> str(Verdict("supported", 1, reduced=True))
        'supported (1 seed, reduced)'
        """
        if self.word not in DECIDED:
            return self.word
        seeds = f"{self.seeds} seed{'' if self.seeds == 1 else 's'}"
        return f"{self.word} ({seeds}{', reduced' if self.reduced else ''})"


@dataclass(frozen=True)
class ClaimFound:
    """A claim of the paper, its verdict, and what was compared.

    Attributes:
        difference: The difference of the two rows, positive as claimed.
        reach: Half of its 95% interval, which is the smallest difference that would have been seen.
        both_differ: Whether both rows differ from the published ones.
    """

    claim: Claim
    verdict: Verdict
    difference: float | None = None
    reach: float | None = None
    both_differ: bool = False


def accuracy_error(value: float, images: int) -> float:
    """Give the standard error of an accuracy.

    >>> round(accuracy_error(0.5, 10_000), 4)
    0.005
    """
    return math.sqrt(max(value * (1 - value), 1 / (4 * images)) / images)


def auc_error(value: float, records: int) -> float:
    """Give the standard error of an AUC of ``records`` members and as many others (Hanley and McNeil 1982).

    >>> round(auc_error(0.5, 12_500), 4)
    0.0037
    """
    one, two = value / (2 - value), 2 * value**2 / (1 + value)
    variance = value * (1 - value) + (records - 1) * (one + two - 2 * value**2)
    return math.sqrt(max(variance, 0.25)) / records if records else math.inf


def spread(values: Sequence[float], sampling_error: float, seeds: Sequence[int] = ()) -> Spread:
    """Summarise the values of several seeds.

    >>> spread([0.5, 0.7], 0.01).mean, round(spread([0.5, 0.7], 0.01).error, 3), spread([0.5], 0.01).error
    (0.6, 0.141, 0.01)
    """
    error = statistics.stdev(values) if len(values) > 1 else sampling_error
    return Spread(statistics.fmean(values), error, tuple(values), tuple(seeds))


class Spreads:
    """The spread between seeds, pooled over the rows of ``results`` that have several."""

    def __init__(self, results: Iterable[AnyResult]) -> None:
        sums: dict[tuple[str, str], tuple[float, int]] = {}
        seen = set()
        for result in trained(results):
            for row in result.rows:
                for metric in NAMES if row.preset != "quick" else ():
                    found = row.of(metric)
                    if found is None or len(found.values) < 2 or (row.runs, metric) in seen:
                        continue
                    seen.add((row.runs, metric))
                    once = _sampling_error(metric, found.mean, result.data_of(row))
                    place = _place(metric, row.data, row.strategy)
                    total, freedom = sums.get(place, (0.0, 0))
                    more = len(found.values) - 1
                    sums[place] = total + more * statistics.variance(found.values) / once**2, freedom + more
        # In multiples of the sampling error, with the degrees of freedom.
        self._pooled = {place: (math.sqrt(total / n), n) for place, (total, n) in sums.items()}

    def of(self, metric: str, mean: float, data: DataUsed, strategy: str) -> tuple[float, int] | None:
        """Give the spread between seeds of one training, and its degrees of freedom; None if no row has several.

        It is a multiple of the sampling error, and at least that.
        """
        if metric == "gap":
            parts = [self.of(name, mean, data, strategy) for name in ("train_accuracy", "test_accuracy")]
            both = [part for part in parts if part is not None]
            return (math.hypot(*(e for e, _ in both)), min(n for _, n in both)) if len(both) == 2 else None
        pooled = self._pooled.get(_place(metric, data.name, strategy))
        if pooled is None:
            return None
        return max(pooled[0], 1.0) * _sampling_error(metric, mean, data), pooled[1]

    def reach(self, metric: str, mean: float, data: DataUsed, strategy: str) -> float | None:
        """Give the smallest difference between two trainings of one row that would be seen."""
        found = self.of(metric, mean, data, strategy)
        return None if found is None else quantile(found[1]) * found[0] * math.sqrt(2)

    def tolerance(self, metric: str, mean: float, data: DataUsed, strategy: str, seeds: int) -> float | None:
        """Say how far a published number may be from a measured mean and still be met."""
        found = self.of(metric, mean, data, strategy)
        if found is None:
            return None
        error, freedom = found
        return TOLERANCE + quantile(freedom) * error * math.sqrt(1 + 1 / seeds)


def _place(metric: str, data: str, strategy: str) -> tuple[str, str]:
    kind = strategy if strategy in ("none", "dpsgd") else "noise"
    return metric, data if metric == "auc" else kind


def _sampling_error(metric: str, mean: float, data: DataUsed) -> float:
    if metric == "auc":
        return auc_error(mean, data.a_quarter)
    return accuracy_error(mean, data.a_quarter if metric == "train_accuracy" else data.test_images)


def leak(metric: str, value: float) -> float:
    """Give an AUC as its deviation from 0.5, and any other number as it is.

    >>> round(leak("auc", 0.49), 3), leak("test_accuracy", 0.49)
    (0.01, 0.49)
    """
    return abs(value - 0.5) if metric == "auc" else value


def compare(
    paper: Printed, found: Mapping[str, float], data: DataUsed, strategy: str, spreads: Spreads, seeds: int = 1
) -> Verdict:
    """Compare the published numbers of a row with measured ones.

    Args:
        paper: The published numbers.
        found: The measured mean of each metric.
        data: The images that it was measured on.
        strategy: How it was trained.
        spreads: The spread between seeds.
        seeds: The number of seeds.
    """

    def verdict(word: Word, details: Iterable[str] = ()) -> Verdict:
        return Verdict(word, seeds, bool(data.reduced), "; ".join(details))

    printed = {name: value for name in NAMES if (value := getattr(paper, name)) is not None}
    if not printed or printed.keys() - found.keys():
        return verdict("not measured", [NAMES[name] for name in printed if name not in found])
    allowed = {name: spreads.tolerance(name, found[name], data, strategy, seeds) for name in printed}
    off = [
        f"{NAMES[name]} {found[name]:.3f}, published {value:.3f}"
        for name, value in printed.items()
        if (limit := allowed[name]) is not None and abs(leak(name, found[name]) - leak(name, value)) > limit
    ]
    if off:
        return verdict("contradicted", off)
    wide = [
        f"{NAMES[name]}: the spread between seeds is not known"
        if limit is None
        else f"{NAMES[name]}: only a difference above {limit:.2f} would be detected"
        for name, limit in allowed.items()
        if limit is None or limit > WIDEST
    ]
    return verdict("inconclusive" if wide else "supported", wide)


def image_limit(row: Row, result: Trained) -> int | None:
    """Return how many images the preset of a row takes at most, before they are cut in quarters; None for all."""
    return PRESETS[row.preset].scale(row.data, BY_ID[result.id].size).limit


def judge_row(row: Row, result: Trained, spreads: Spreads) -> Verdict:
    """Compare a row with the published one, unless its preset limits the number of images."""
    if image_limit(row, result) is not None:
        return Verdict("not compared", detail=f"{result.data_of(row).a_quarter:,} training images")
    found = {name: each.mean for name in NAMES if (each := row.of(name)) is not None}
    return compare(row.paper or Printed(), found, result.data_of(row), row.strategy, spreads, len(row.seeds))


def judge_claims(result: Trained, spreads: Spreads) -> tuple[ClaimFound, ...]:
    """Judge every claim of an experiment at the best preset at which both of its rows were measured."""
    return tuple(_judge_claim(claim, result, spreads) for claim in BY_ID[result.id].claims)


def _judge_claim(claim: Claim, result: Trained, spreads: Spreads) -> ClaimFound:
    rows = {(row.preset, row.data, row.key): row for row in result.rows if row.of(claim.metric) is not None}
    for preset in sorted(PRESETS, key=lambda name: -PRESETS[name].rank):
        pair = [rows.get((preset, cell.data, cell.key)) for cell in (claim.lower, claim.higher)]
        both = [row for row in pair if row is not None]
        if len(both) == 2:
            smoke_test = ClaimFound(claim, Verdict("not compared", detail="a smoke test"))
            return smoke_test if preset == "quick" else _tested(claim, both, result, spreads)
    return ClaimFound(claim, Verdict("not measured"))


def _tested(claim: Claim, rows: Sequence[Row], result: Trained, spreads: Spreads) -> ClaimFound:
    metric = claim.metric
    values = [found for row in rows if (found := row.of(metric)) is not None]
    by_seed = [dict(zip(each.seeds, each.values, strict=False)) for each in values]
    shared = by_seed[0].keys() & by_seed[1].keys()
    low, high = (
        statistics.fmean(leak(metric, some[seed]) for seed in shared) if shared else leak(metric, each.mean)
        for some, each in zip(by_seed, values, strict=True)
    )
    difference, seeds = high - low, max(len(shared), 1)
    reduced = any(bool(result.data_of(row).reduced) for row in rows)
    errors = [
        error
        for row, each in zip(rows, values, strict=True)
        if (error := spreads.of(metric, each.mean, result.data_of(row), row.strategy)) is not None
    ]
    if len(errors) < 2:
        verdict = Verdict("inconclusive", seeds, reduced, "the spread between seeds is not known")
        return ClaimFound(claim, verdict, difference)
    reach = quantile(min(n for _, n in errors)) * math.hypot(*(e for e, _ in errors)) / math.sqrt(seeds)
    word: Word = "inconclusive" if abs(difference) <= reach else "supported" if difference > 0 else "contradicted"
    both_differ = all(judge_row(row, result, spreads).word == "contradicted" for row in rows)
    details = [f"a difference above {reach:.3f} would be detected"] if word == "inconclusive" else []
    details += ["both rows differ from the published ones"] if both_differ else []
    return ClaimFound(claim, Verdict(word, seeds, reduced, "; ".join(details)), difference, reach, both_differ)


def expected_by_chance(claims: Iterable[ClaimFound]) -> float:
    """Count the claims that would be decided on average if there were no differences."""
    return (1 - CONFIDENCE) * sum(found.verdict.word in DECIDED for found in claims)


def quantile(freedom: float) -> float:
    """Give Student's 97.5% quantile.

    >>> round(quantile(8), 3)
    2.306
    """
    from scipy.stats import t

    return float(t.ppf((1 + CONFIDENCE) / 2, freedom))
