"""From answers to an audit: score every candidate by every attack, measure, bound epsilon, and compare."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from resperturb.attacks.catalogue import PlannedAttack, attacks_on, error_shares, views
from resperturb.attacks.evidence import Evidence, ShadowStatistics
from resperturb.attacks.lira import separation
from resperturb.attacks.registry import ATTACKS, AttackFailedError
from resperturb.attacks.signals import Query, View
from resperturb.auditing.candidates import Candidates
from resperturb.auditing.design import Chance, Design
from resperturb.auditing.fit import Models
from resperturb.bounds.arrays import Bools, Floats, Singles
from resperturb.bounds.attack_metrics import AttackMetrics, attack_metrics
from resperturb.bounds.audit_result import (
    GROUP,
    RECORD,
    AttackResult,
    Model,
    MostExposed,
    Shadows,
    corrected,
)
from resperturb.bounds.comparison import Comparison, Neighbours, per_group
from resperturb.bounds.result import LowerBound
from resperturb.bounds.scores import check_probability
from resperturb.errors import UsageError
from resperturb.privacy import Guarantee, nothing_proven

# The share of candidates that are looked at as the most exposed, and the fewest of them.
EXPOSED_SHARE, FEWEST_EXPOSED = 0.02, 20

UNBOUNDED: Mapping[Chance, str] = {
    "balanced": "every row is in exactly half of all models, so membership was not decided by independent coins.",
    "given": "membership was not decided by coins; the training set and the held-out set were given.",
}


@dataclass(frozen=True)
class Settings:
    """At which delta and confidence an audit speaks, and over how many draws of the noise attacks combine answers."""

    draws: tuple[int, ...] = (1, 16)
    delta: float = 1e-5
    confidence: float = 0.95

    def __post_init__(self) -> None:
        check_probability("delta", self.delta)
        check_probability("confidence", self.confidence)
        whole = all(isinstance(number, int | np.integer) for number in self.draws)
        if not self.draws or not whole or min(self.draws) < 1:
            raise UsageError(f"draws must be whole numbers of at least 1, not {self.draws}.")
        object.__setattr__(self, "draws", tuple(sorted({int(number) for number in self.draws})))


@dataclass(frozen=True, eq=False)
class Assessed:
    """What attacks found on one design.

    Attributes:
        attacks: Results, with intervals that hold together.
        scores: Scores by key of the fixed attacks, ``[T, n]``.
        epsilon: The lower bound.
        exposed: The most exposed candidates, of one target.
        comparison: How epsilon was bounded.
        shadows: The shadow models of a target.
        caveats: What else must be said.
    """

    attacks: tuple[AttackResult, ...]
    scores: dict[str, Singles]
    epsilon: LowerBound
    exposed: MostExposed | None
    comparison: Comparison
    shadows: Shadows
    caveats: tuple[str, ...] = ()


def queries_of(models: Models, numbers: Sequence[int]) -> tuple[Query, ...]:
    """Return the queries that all of some models answered.

    Raises:
        UsageError: A model was queried in another way.
    """
    wanted = models.summary(numbers[0]).queries
    for number in numbers[1:]:
        if (found := models.summary(number).queries) != wanted:
            raise UsageError(
                f"model {number} was queried by {_listed(found)}, and model {numbers[0]} by {_listed(wanted)}; every "
                "model must be of the same kind (noisy or not, of as many networks)."
            )
    return wanted


def _listed(queries: Sequence[Query]) -> str:
    return ", ".join(f"{query.access} x {query.draws}" for query in queries)


def shadow_statistics(
    models: Models, evidence: Sequence[tuple[int, Bools]], seen: Sequence[View]
) -> ShadowStatistics | None:
    """Combine the answers of shadow models, one at a time; None without any."""
    if not evidence:
        return None
    found = ShadowStatistics.empty(seen, len(models.candidates.rows))
    for number, about in evidence:
        found.add(models.answers(number), models.members(number), _padded(about, models.candidates))
    return found


def _padded(about: Bools, candidates: Candidates) -> Bools | None:
    """Every model may speak about the population."""
    return None if about.all() else np.pad(about, (0, candidates.population), constant_values=True)


def assess(
    models: Models, design: Design, settings: Settings, guarantee: Guarantee, more: Sequence[str] = ()
) -> Assessed:
    """Assess one target.

    Args:
        models: The models and their answers.
        design: Who was trained on what, without models that did not learn.
        settings: Delta, confidence and draws.
        guarantee: What is proven about the target.
        more: Names of attacks that are fixed beforehand besides the default ones.

    Returns:
        What was found.
    """
    candidates = models.candidates
    target = int(design.targets[0])
    others = list(design.evidence(target))
    seen = views(queries_of(models, [target, *(number for number, _ in others)]))
    answers = models.answers(target)
    statistics = shadow_statistics(models, others, seen)
    evidence = Evidence(answers, statistics, len(candidates), partial(each_of, models, others))
    attacks = attacks_on(seen, len(others), more, candidates.population > 0)
    comparison = comparison_of(candidates, design, target, settings, guarantee, error_shares(len(others), more))
    results, bounds = [], []
    scores: dict[str, Singles] = {}
    failed: list[str] = []
    for attack in attacks:
        try:
            found = np.asarray(attack.published.score(evidence, attack.view), dtype=np.float64)
        except AttackFailedError as error:
            failed.append(f"{attack.name}, {attack.view}, is left out: {error}")
            continue
        result = result_of(attack, metrics_of(found, attack.name, candidates, design.members[target], settings))
        if attack.bounding and design.chance not in UNBOUNDED:
            result = replace(result, lower_bound=comparison.bound(found, f"{attack.name}, {attack.view}"))
            bounds.append(result.lower_bound)
        if attack.fixed:
            scores[result.key] = found[None].astype(np.float32)
        if result.metrics:
            results.append(result)
    if not results:
        raise UsageError("no kind of candidate has both members and non-members; the audit needs both.")
    unbounded = UNBOUNDED.get(design.chance)
    shift = without_population(candidates, len(others))
    if unbounded and statistics is not None and design.chance == "given":
        from resperturb.auditing.existing import shift_by_models, shift_words

        view = next(view for view in seen if view.combination == "mean logit")
        said = shift_words(
            shift_by_models(statistics, view, design.members[target], candidates.units),
            "the mean answer of shadow models that saw neither",
        )
        shift += (said,) if said else ()
    return Assessed(
        corrected(results, settings.confidence),
        scores,
        comparison.nothing(unbounded) if unbounded else comparison.best([one for one in bounds if one is not None]),
        None
        if statistics is None
        else _most_exposed(evidence, candidates, design.members[target], settings, attacks),
        comparison,
        described(models, [number for number, _ in others]),
        (*shift, *failed),
    )


def each_of(
    models: Models, others: Sequence[tuple[int, Bools]], view: View, signal: str = "", *, stage: str = ""
) -> tuple[Singles, Bools]:
    """Read the values of single shadow models."""
    answers = (models.answers(number, stage)[view.access] for number, _ in others)
    values = [one.average(signal, view.draws) if signal else one.statistic(view) for one in answers]
    return np.stack(values).astype(np.float32), np.stack([models.members(number) for number, _ in others])


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


def result_of(attack: PlannedAttack, metrics: dict[str, AttackMetrics]) -> AttackResult:
    """Describe a planned attack with what it found."""
    view = attack.view
    several = view.draws > 1 or view.combination == "votes"
    return AttackResult(
        name=attack.name,
        reference=attack.published.reference,
        access=view.access,
        draws=view.draws,
        combination=view.combination if several else None,
        fixed=attack.fixed,
        metrics=metrics,
    )


def metrics_of(
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
                found[kind] = attack_metrics(own[inside], own[~inside], confidence=settings.confidence)
    return found


def _metrics(
    scores: Floats, who: Bools, candidates: Candidates, members: Bools, settings: Settings
) -> AttackMetrics | None:
    ins, outs = who & members, who & ~members
    if not (ins.any() and outs.any()):
        return None
    groups = candidates.groups
    return attack_metrics(
        scores[ins],
        scores[outs],
        confidence=settings.confidence,
        member_groups=None if groups is None else groups[ins],
        nonmember_groups=None if groups is None else groups[outs],
    )


def _most_exposed(
    evidence: Evidence,
    candidates: Candidates,
    members: Bools,
    settings: Settings,
    attacks: Sequence[PlannedAttack],
) -> MostExposed | None:
    if evidence.shadows is None:
        return None
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


def without_population(candidates: Candidates, shadows: int) -> tuple[str, ...]:
    """Name the attacks that are left out where every row is in some model."""
    if candidates.population or not shadows:
        return ()
    names = sorted(name for name in ATTACKS if "population" in ATTACKS[name].needs)
    return (f"Every row is in some model, so there is no population, and these are left out: {', '.join(names)}.",)


def described(models: Models, numbers: Sequence[int]) -> Shadows:
    """Describe shadow models by their accuracy on rows that they were not trained on."""
    if not numbers:
        return Shadows(0)
    accuracies = [models.summary(number).on_others for number in numbers]
    return Shadows(len(numbers), min(accuracies), float(np.mean(accuracies)), max(accuracies))


def model_of(models: Models, design: Design, name: str, description: str) -> Model:
    """Describe the targets: the mean of their accuracies."""
    targets = design.targets.tolist()
    records = [int(design.members[number].sum()) + len(models.candidates.always) for number in targets]
    return Model(
        name=name,
        description=description,
        records=int(np.median(records)),
        train_accuracy=float(np.mean([models.summary(number).on_members for number in targets])),
        test_accuracy=float(np.mean([models.summary(number).on_others for number in targets])),
    )


def tested(guarantee: Guarantee, comparison: Comparison) -> Guarantee:
    """Say what is proven for the neighbours and the unit that the lower bound is about."""
    if guarantee.claimed_epsilon == float("inf"):
        return guarantee
    if comparison.unit == "group" and guarantee.details.get("unit", RECORD) == RECORD:
        return nothing_proven(
            "The guarantee is for one record, and this audit bounds what a group of records tells.", comparison.delta
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


def fixed_attacks(attacks: Sequence[PlannedAttack]) -> Iterator[PlannedAttack]:
    """Yield the attacks that were chosen before anything was measured."""
    return (attack for attack in attacks if attack.fixed)
