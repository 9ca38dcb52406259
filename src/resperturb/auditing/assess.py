"""From answers to an audit: score every candidate by every attack, measure, bound epsilon, and compare."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from resperturb.attacks.catalogue import PlannedAttack, attacks_on, error_shares, views
from resperturb.attacks.evidence import Evidence, ShadowStatistics
from resperturb.attacks.lira import separation
from resperturb.attacks.registry import ATTACKS, AttackFailedError
from resperturb.attacks.signals import View
from resperturb.auditing.candidates import Candidates
from resperturb.auditing.design import Chance, Design
from resperturb.auditing.existing import shift_by_models, shift_words
from resperturb.auditing.fit import Models
from resperturb.auditing.store import Scores
from resperturb.bounds.arrays import Bools, Floats, Singles
from resperturb.bounds.attack_metrics import AttackMetrics, split_metrics
from resperturb.bounds.audit_result import (
    GROUP,
    RECORD,
    AttackResult,
    AuditResult,
    Model,
    MostExposed,
    Shadows,
    corrected,
)
from resperturb.bounds.comparison import Comparison, Neighbours, per_group
from resperturb.bounds.exposed import Exposed, exposed
from resperturb.bounds.result import LowerBound
from resperturb.bounds.scores import check_probability
from resperturb.bounds.targets import TargetMetrics, median_bound, over_targets, target_confidence
from resperturb.errors import UsageError
from resperturb.privacy.guarantee import Guarantee, nothing_proven, per_record

# The share of candidates that are looked at as the most exposed, and the fewest of them.
EXPOSED_SHARE, FEWEST_EXPOSED = 0.02, 20

UNBOUNDED: Mapping[Chance, str] = {
    "balanced": "every row is in exactly half of all models, so membership was not decided by independent coins.",
    "given": "membership was not decided by coins; the training set and the held-out set were given.",
}


@dataclass(frozen=True)
class Settings:
    """Delta, confidence and numbers of draws of an audit."""

    draws: tuple[int, ...] = (1, 16)
    delta: float = 1e-5
    confidence: float = 0.95

    @classmethod
    def of(cls, draws: int | Sequence[int], delta: float, confidence: float) -> "Settings":
        """Make settings of one number of draws, or of several."""
        return cls((draws,) if isinstance(draws, int) else tuple(draws), delta, confidence)

    def __post_init__(self) -> None:
        check_probability("delta", self.delta)
        check_probability("confidence", self.confidence)
        whole = all(isinstance(number, int | np.integer) for number in self.draws)
        if not self.draws or not whole or min(self.draws) < 1:
            raise UsageError(f"draws must be whole numbers of at least 1, not {self.draws}.")
        object.__setattr__(self, "draws", tuple(sorted({int(number) for number in self.draws})))


def assess(
    models: Models,
    design: Design,
    settings: Settings,
    guarantee: Guarantee,
    more: Sequence[str] = (),
    place: Path | None = None,
) -> tuple[AuditResult, Scores]:
    """Attack every target by the models that are evidence about it; return the scores of fixed attacks too.

    One target is attacked in every way; several, whose answers are read one file at a time, by the attacks that are
    fixed beforehand. Then everything is a mean over targets, with intervals that count targets. ``more`` names
    attacks that are fixed beforehand besides the default ones. Matrices of scores, which may be large, are files in
    ``place``, or in memory where that is None.

    Raises:
        UsageError: No kind of candidate has members and non-members.
    """
    candidates, targets = models.candidates, design.targets.tolist()
    one = design.kind == "one target"
    others = [number for number, _ in design.evidence(targets[0])]
    seen = views(models.summary(targets[0]).queries)
    planned = attacks_on(seen, len(others), more, candidates.population > 0)
    # Several targets are attacked as was settled beforehand, and each has its share of the error.
    planned = [attack for attack in planned if one or attack.fixed]
    each = settings if one else replace(settings, confidence=target_confidence(settings.confidence))
    unbounded = UNBOUNDED.get(design.chance)
    results = {attack: _described(attack) for attack in planned}
    metrics: dict[PlannedAttack, list[dict[str, AttackMetrics]]] = {attack: [] for attack in planned}
    bounds: dict[PlannedAttack, list[LowerBound]] = {attack: [] for attack in planned}
    scores = _matrices([results[attack].key for attack in planned if attack.fixed], design, candidates, place)
    best, caveats, most_exposed = [], without_population(candidates, len(others)), None
    for row, (target, evidence) in enumerate(evidence_of(models, design, [attack.view for attack in planned])):
        members = design.members[target]
        comparison = comparison_of(candidates, design, target, each, guarantee, error_shares(len(others), more))
        for attack in list(results):
            try:
                # In the precision of the file, so that its reader computes the same metrics.
                found = np.asarray(attack.published.score(evidence, attack.view), dtype=np.float32).astype(np.float64)
            except AttackFailedError as error:
                caveats.append(f"{attack.name}, {attack.view}, is left out: {error}")
                scores.pop(results.pop(attack).key, None)
                continue
            metrics[attack].append(_by_kind(found, attack.name, candidates, members, settings))
            if attack.fixed:
                scores[results[attack].key][row] = found
            if attack.bounding and unbounded is None:
                bounds[attack].append(comparison.bound(found, f"{attack.name}, {attack.view}"))
        best.append(comparison.best([bounds[attack][row] for attack in results if bounds[attack]]))
        if one and evidence.shadows is not None:
            most_exposed = _most_exposed(evidence, candidates, members, settings, planned)
            if design.chance == "given":
                shift = shift_by_models(evidence.shadows, members, candidates.units)
                caveats += shift_words(shift, "the mean answer of shadow models that saw neither")

    def overall(lower: list[LowerBound]) -> LowerBound:
        return lower[0] if one else median_bound(lower, settings.confidence, len(models.design.targets))

    attacked = [
        _combined(results[attack], metrics[attack], overall(bounds[attack]) if bounds[attack] else None, settings)
        for attack in results
    ]
    if not any(result.metrics for result in attacked):
        raise UsageError("no kind of candidate has both members and non-members; the audit needs both.")
    accuracies = [models.summary(number).on_others for number in others]
    result = AuditResult(
        model=Model(
            name=models.trainee.name,
            description=models.trainee.description,
            records=int(np.median(design.members[targets].sum(axis=1))) + len(candidates.always),
            train_accuracy=float(np.mean([models.summary(number).on_members for number in targets])),
            test_accuracy=float(np.mean([models.summary(number).on_others for number in targets])),
        ),
        shadows=Shadows(len(others), min(accuracies), float(np.mean(accuracies)), max(accuracies))
        if others
        else Shadows(0),
        candidates=dict(Counter(candidates.kinds.tolist())),
        groups=candidates.patients,
        population=candidates.population,
        attacks=corrected([result for result in attacked if result.metrics], settings.confidence),
        exposed=most_exposed,
        named=None if one else exposed_units(models, design),
        epsilon_lower=comparison.nothing(unbounded) if unbounded else overall(best),
        guarantee=guarantee,
        tested_guarantee=tested(guarantee, comparison),
        delta=settings.delta,
        confidence=settings.confidence,
        draws=settings.draws,
        caveats=tuple(caveats),
        targets=len(targets),
        unit=candidates.unit,
        design=design.chance,
    )
    rows = candidates.rows[: len(candidates)]
    return result, Scores(design.members[targets], candidates.units, candidates.kinds, rows, design.targets, scores)


def _described(attack: PlannedAttack) -> AttackResult:
    view = attack.view
    several = view.draws > 1 or view.combination == "votes"
    return AttackResult(
        name=attack.name,
        reference=attack.published.reference,
        access=view.access,
        draws=view.draws,
        combination=view.combination if several else None,
        fixed=attack.fixed,
        metrics={},
    )


def _combined(
    attack: AttackResult, found: Sequence[dict[str, AttackMetrics]], bound: LowerBound | None, settings: Settings
) -> AttackResult:
    """Combine what an attack finds on each target, for the kinds that every target has on both sides."""
    kinds = {kind: [one[kind] for one in found] for kind in found[0] if all(kind in one for one in found)}
    return replace(
        attack,
        metrics={kind: over_targets(each, settings.confidence) for kind, each in kinds.items()},
        per_target={kind: tuple(map(TargetMetrics.of, each)) for kind, each in kinds.items() if len(each) > 1},
        lower_bound=bound,
    )


def _matrices(keys: Sequence[str], design: Design, candidates: Candidates, place: Path | None) -> dict[str, Singles]:
    """Make room for the scores of each attack; of several targets in files where there is a folder."""
    shape = len(design.targets), len(candidates)
    if place is None or shape[0] == 1:
        return {key: np.zeros(shape, dtype=np.float32) for key in keys}
    place.mkdir(parents=True, exist_ok=True)
    return {
        key: np.lib.format.open_memmap(place / f"{key}.npy", mode="w+", dtype=np.float32, shape=shape) for key in keys
    }


def evidence_of(
    models: Models, design: Design, seen: Sequence[View], stage: str = ""
) -> Iterator[tuple[int, Evidence]]:
    """Yield the number of every target and the evidence about it, on the views that attacks use.

    Answers are read twice, one file at a time: those of a checkpoint, or of the models themselves without ``stage``.
    """
    candidates, targets = models.candidates, design.targets.tolist()
    totals = ShadowStatistics.empty(dict.fromkeys(seen), len(candidates.rows))
    numbers = design.used if len(targets) > 1 else [number for number, _ in design.evidence(targets[0])]

    def change(statistics: ShadowStatistics, number: int, add: bool, about: Bools | None = None) -> None:
        """Add or remove what a model says, or what it says about some of the candidates alone."""
        where = None if about is None else np.pad(about, (0, candidates.population))
        statistics.change(models.answers(number, stage), models.members(number), where, add=add)

    for number in numbers:
        change(totals, number, add=True)
    for target in targets:
        others = dict(design.evidence(target))
        statistics = deepcopy(totals) if len(targets) > 1 else totals
        for number in numbers:
            if number not in others:
                change(statistics, number, add=False)
            elif not others[number].all():
                change(statistics, number, add=False, about=~others[number])
        each = partial(_each_of, models, tuple(others), stage)
        yield target, Evidence(models.answers(target, stage), statistics if others else None, len(candidates), each)


def _each_of(
    models: Models, others: Sequence[int], stage: str, view: View, signal: str = ""
) -> tuple[Singles, Bools]:
    """Read the values of single shadow models."""
    answers = (models.answers(number, stage)[view.access] for number in others)
    values = [one.average(signal, view.draws) if signal else one.statistic(view) for one in answers]
    return np.stack(values).astype(np.float32), np.stack([models.members(number) for number in others])


def comparison_of(
    candidates: Candidates, design: Design, target: int, settings: Settings, guarantee: Guarantee, shares: int
) -> Comparison:
    """Say how epsilon is bounded: by the canaries where there are any, for the claimed neighbours if possible.

    Fair coins can also be read as a cut at random; a cut cannot be read as coins.
    """
    canaries = candidates.kinds != RECORD
    has_canaries = bool(canaries.any())
    neighbours: Neighbours = "swap" if design.chance == "cut" and not has_canaries else "add_remove"
    # Where nothing is claimed there is nothing to compare with: then all audits are made alike.
    if guarantee.claimed_epsilon < float("inf") and guarantee.neighbours == "swap":
        neighbours = "swap"
    return Comparison(
        neighbours=neighbours,
        chosen=canaries if has_canaries else ~canaries,
        members=design.members[target],
        labels=candidates.labels[: len(candidates)],
        units=candidates.units,
        delta=settings.delta,
        confidence=settings.confidence,
        attacks=shares,
    )


def _by_kind(
    scores: Floats, attack: str, candidates: Candidates, members: Bools, settings: Settings
) -> dict[str, AttackMetrics]:
    """Measure the scores of one target by kind of candidate; by units too, where records share them."""
    found: dict[str, AttackMetrics] = {}
    for kind, who in candidates.by_kind().items():
        if (metrics := _metrics(scores, who, candidates, members, settings)) is not None:
            found[kind] = metrics
    if candidates.groups is not None and RECORD in found:
        who = candidates.kinds == RECORD
        combined = {GROUP: "mean", **({f"{GROUP}, likelihood ratio": "sum"} if "lira-online" in attack else {})}
        for kind, how in combined.items():
            own, inside = per_group(scores[who], members[who], candidates.units[who], how)
            if inside.any() and not inside.all():
                found[kind] = split_metrics(own, inside, confidence=settings.confidence)
    return found


def _metrics(
    scores: Floats, who: Bools, candidates: Candidates, members: Bools, settings: Settings
) -> AttackMetrics | None:
    inside, groups = members[who], candidates.groups
    if inside.all() or not inside.any():
        return None
    units = None if groups is None else groups[who]
    return split_metrics(scores[who], inside, units, confidence=settings.confidence)


def _most_exposed(
    evidence: Evidence,
    candidates: Candidates,
    members: Bools,
    settings: Settings,
    attacks: Sequence[PlannedAttack],
) -> MostExposed:
    # Without the noise where that can be had, or else over as many draws as there are.
    plain = [attack.view for attack in attacks if attack.view.combination == "mean logit"]
    view = max(plain, key=lambda view: (view.access == "weights", view.draws))
    names = [attack.name for attack in attacks if attack.view == view]
    attack = PlannedAttack("rmia-online" if "rmia-online" in names else "lira-offline-global", view)
    scores = attack.published.score(evidence, view)
    distance = separation(*evidence.moments(view))
    count = min(len(candidates), max(FEWEST_EXPOSED, int(EXPOSED_SHARE * len(candidates))))
    order = np.argsort(-distance, kind="stable")
    chosen = np.isin(np.arange(len(candidates)), order[:count])
    worst = int(order[0])
    return MostExposed(
        count=count,
        attack=f"{attack.name}, {view}",
        metrics=_metrics(scores, chosen, candidates, members, settings),
        worst=worst,
        worst_kind=str(candidates.kinds[worst]),
        separation=float(distance[worst]),
        member=bool(members[worst]),
    )


def without_population(candidates: Candidates, shadows: int) -> list[str]:
    """Name the attacks that are left out where every row is in some model."""
    if candidates.population or not shadows:
        return []
    names = sorted(name for name in ATTACKS if "population" in ATTACKS[name].needs)
    return [f"Every row is in some model, so there is no population, and these are left out: {', '.join(names)}."]


def exposed_units(models: Models, design: Design) -> Exposed | None:
    """Name the units whose membership the models give away, by their place among the sorted units of the candidates.

    None where the models of a leave-one-out design do not come in complete pairs.
    """
    targets = design.targets
    paired = len(targets) % 2 == 0 and (design.partner[targets[::2]] == targets[1::2]).all()
    if not paired or len(targets) < 2:
        return None
    _, first, codes = np.unique(models.candidates.units, return_index=True, return_inverse=True)
    values = np.zeros((len(targets), len(first)))
    for row, number in enumerate(targets.tolist()):
        signals = next(iter(models.answers(number).values()))
        confidence = signals.average("mean_confidence", signals.averages[-1])[: len(codes)]
        values[row] = np.bincount(codes, weights=confidence) / np.bincount(codes)
    return exposed(values, design.members[targets][:, first])


def tested(guarantee: Guarantee, comparison: Comparison) -> Guarantee:
    """Say what is proven for the neighbours and the unit that the lower bound is about."""
    if guarantee.claimed_epsilon == float("inf"):
        return guarantee
    if comparison.unit == "group" and per_record(guarantee):
        return nothing_proven(
            "The guarantee is for one record, and this audit is about groups of records.", comparison.delta
        )
    if guarantee.neighbours == "add_remove" and comparison.neighbours == "swap":
        swapped = guarantee.as_swap()
        if swapped.neighbours == "swap":
            return swapped
        return nothing_proven(
            "The guarantee is for adding or removing a record, this audit tests replacing one, and what was released "
            "is not known, so that the one cannot be counted as the other.",
            comparison.delta,
        )
    if guarantee.neighbours == "swap" and comparison.neighbours == "add_remove":
        return nothing_proven(
            "The guarantee is for replacing a record, and this audit tests adding or removing one.", comparison.delta
        )
    return guarantee
