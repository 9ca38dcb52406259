"""From answers to an audit: score every candidate by every attack, measure, bound epsilon, and compare."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resperturb.attacks.catalogue import PlannedAttack, attacks_on, error_shares, views
from resperturb.attacks.evidence import Answers, Evidence, ShadowStatistics
from resperturb.attacks.lira import separation
from resperturb.attacks.signals import Query
from resperturb.audits.result import keep_attack
from resperturb.bounds.attack_metrics import AttackMetrics, attack_metrics
from resperturb.bounds.audit_result import (
    CANARIES,
    GROUP,
    RECORD,
    AttackResult,
    AttackScores,
    AuditResult,
    Model,
    MostExposed,
    Shadows,
    corrected,
)
from resperturb.bounds.comparison import Comparison, Neighbours, per_group
from resperturb.bounds.result import LowerBound
from resperturb.bounds.scores import Scores, check_probability
from resperturb.data.canaries import Bools
from resperturb.errors import ResperturbError, UsageError
from resperturb.privacy import Guarantee, nothing_proven

# The share of candidates that are looked at as the most exposed, and the fewest of them.
EXPOSED_SHARE, FEWEST_EXPOSED = 0.02, 20

CAVEATS = (
    "An attack that finds nothing proves nothing: a stronger one may exist. What is found is a leak.",
    "Balanced accuracy is that of the best threshold in hindsight, which flatters the attack when records are few.",
    "The strongest of many attacks is found in hindsight: its AUC is a little too high. Bounds on epsilon are not "
    "concerned: the attacks they come from were fixed before, and their number is corrected for.",
)


@dataclass(frozen=True)
class Settings:
    """At which delta and confidence an audit speaks, and over how many draws of the noise attacks combine answers."""

    draws: tuple[int, ...] = (1, 16)
    delta: float = 1e-5
    confidence: float = 0.95

    def __post_init__(self) -> None:
        check_probability("delta", self.delta)
        check_probability("confidence", self.confidence)
        if not self.draws or min(self.draws) < 1:
            raise UsageError(f"draws must be whole numbers of at least 1, not {self.draws}.")
        object.__setattr__(self, "draws", tuple(sorted(set(self.draws))))


def check_shadow_count(shadows: int) -> None:
    """Refuse a number of shadow models that does not put every record into half of them, and outside of two."""
    if shadows and (shadows < 4 or shadows % 2):
        raise UsageError(
            f"an audit needs an even number of at least 4 shadow models, so that each record is in half of them and "
            f"outside of two; not {shadows}. For an audit without shadow models say --one-run (shadows=0)."
        )


@dataclass(frozen=True, eq=False)
class Candidates:
    """The rows that every model was asked about: first the candidates, then the population.

    Attributes:
        members: Who of the candidates the target was trained on.
        labels: The label of every candidate.
        kinds: ``record``, or the kind of canary, of every candidate.
        groups: The group of every candidate; None where each stands alone.
        population: How many rows of the population follow.
        neighbours: What chance decided about the records: a coin each (``add_remove``) or a cut (``swap``). Canaries
            always have a coin each.
    """

    members: Bools
    labels: NDArray[np.int64]
    kinds: NDArray[np.str_]
    groups: NDArray[Any] | None = None
    population: int = 0
    neighbours: Neighbours = "add_remove"

    def __len__(self) -> int:
        return len(self.kinds)

    @property
    def units(self) -> NDArray[np.int64]:
        """The unit of every candidate: its group, or the candidate alone."""
        return np.arange(len(self)) if self.groups is None else np.unique(self.groups, return_inverse=True)[1]

    def by_kind(self) -> dict[str, Bools]:
        """Who is of each kind; all canaries together too, where there are several kinds."""
        found = {kind: self.kinds == kind for kind in dict.fromkeys(self.kinds.tolist())}
        if len([kind for kind in found if kind != RECORD]) > 1:
            found[CANARIES] = self.kinds != RECORD
        return found

    def design(self, settings: Settings, attacks: int, wanted: Neighbours | None) -> Comparison:
        """Say how epsilon is bounded: by the canaries where there are any, for the wanted neighbours if possible.

        Fair coins can also be read as a cut at random; a cut cannot be read as coins.
        """
        canaries = self.kinds != RECORD
        has_canaries = bool(canaries.any())
        neighbours: Neighbours = "add_remove" if has_canaries else self.neighbours
        if wanted == "swap":
            neighbours = "swap"
        return Comparison(
            neighbours=neighbours,
            chosen=canaries if has_canaries else ~canaries,
            members=self.members,
            labels=self.labels,
            units=self.units,
            delta=settings.delta,
            confidence=settings.confidence,
            attacks=attacks,
        )


def assess(
    candidates: Candidates,
    target: Answers,
    shadows: Iterable[tuple[Answers, Bools]],
    shadow_count: int,
    *,
    queries: Sequence[Query],
    settings: Settings,
    model: Model,
    guarantee: Guarantee,
    more: Sequence[AttackResult] = (),
    caveats: Sequence[str] = (),
    digests: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    on_attack: Callable[[int, int], None] = lambda done, count: None,
) -> AuditResult:
    """Turn the answers of a target and of shadow models into an audit.

    Args:
        candidates: Who was asked about.
        target: The target's answers about candidates and population.
        shadows: The answers of every shadow model, and which of all rows it was trained on; read one at a time.
        shadow_count: How many there are.
        queries: How the models were asked.
        settings: Delta, confidence and draws.
        model: The target, described.
        guarantee: What is proven about it.
        more: Results of attacks that were made elsewhere.
        caveats: What else must be said with the numbers.
        digests: What the audit is bound to.
        environment: With what it was made.
        folder: Where fixed attacks keep their scores; nowhere if None.
        on_attack: Told of progress.

    Returns:
        The audit. It is not saved.
    """
    seen = views(queries)
    statistics = None
    accuracies: list[float] = []
    if shadow_count:
        statistics = ShadowStatistics.empty(seen, len(candidates) + candidates.population)
        for answers, trained_on in shadows:
            accuracies.append(share_correct(answers, ~trained_on))
            check_learned(model.test_accuracy, accuracies[-1], int((~trained_on).sum()), candidates, len(accuracies))
            statistics.add(answers, trained_on)
    evidence = Evidence(target, statistics, len(candidates))
    attacks = [
        attack
        for attack in attacks_on(seen, shadow_count)
        if candidates.population or "population" not in attack.published.needs
    ]
    bounding = error_shares(shadow_count)
    # Where nothing is claimed there is nothing to stand beside: then all audits are made alike.
    claimed = guarantee.claimed_epsilon < float("inf")
    wanted: Neighbours | None = guarantee.neighbours if claimed and guarantee.neighbours != "any" else None
    design = candidates.design(settings, bounding, wanted)
    results = list(more)
    bounds: list[LowerBound] = []
    kept: dict[str, AttackScores] = {}
    for number, attack in enumerate(attacks):
        on_attack(number, len(attacks))
        result, scores = _attacked(attack, evidence, candidates, settings, design)
        results.append(result)
        if result.lower_bound is not None:
            bounds.append(result.lower_bound)
        if attack.fixed and folder is not None:
            kept[result.key] = _split(scores, candidates, result.kind)
    results = list(corrected(results, settings.confidence))
    for result in results:
        if folder is not None and result.key in kept:
            keep_attack(folder, result, kept[result.key], dict(digests or {}))
    return AuditResult(
        model=model,
        shadows=_described(accuracies),
        candidates={kind: int(who.sum()) for kind, who in candidates.by_kind().items() if kind != CANARIES},
        groups=None if candidates.groups is None else len(np.unique(candidates.groups)),
        population=candidates.population,
        attacks=tuple(results),
        exposed=None if statistics is None else _most_exposed(evidence, candidates, settings, attacks),
        epsilon_lower=design.best(bounds),
        guarantee=guarantee,
        tested_guarantee=_tested(guarantee, design),
        delta=settings.delta,
        confidence=settings.confidence,
        draws=settings.draws,
        caveats=(*CAVEATS, *caveats),
        digests=dict(digests or {}),
        environment=dict(environment or {}),
        folder=folder,
    )


def share_correct(answers: Answers, who: Bools) -> float:
    """The share of right predictions over some rows, by one draw of the model as it is served."""
    first = next(iter(answers.values()))
    return float(first.correct[who, 0].mean()) if who.any() else float("nan")


def check_learned(target: float, shadow: float, rows: int, candidates: Candidates, number: int) -> None:
    """Refuse a shadow model that has not learned: an attack with it would report privacy that is not there.

    It must have learned half as much as the target beyond naming the most frequent class, give or take two standard
    errors of an accuracy on so many ``rows``.
    """
    classes = np.bincount(candidates.labels)
    chance = float(classes.max() / classes.sum())
    luck = 1 / rows**0.5
    if target - chance > luck and shadow - chance < (target - chance) / 2 - luck:
        raise ResperturbError(
            f"shadow model {number} did not learn: its accuracy on records that it was not trained on is "
            f"{shadow:.3f}, the target's is {target:.3f}, and always naming the most frequent class gives "
            f"{chance:.3f}. An attack with it would look harmless whatever the target leaks. Train for longer, or "
            "audit without shadow models (--one-run, shadows=0)."
        )


def _attacked(
    attack: PlannedAttack, evidence: Evidence, candidates: Candidates, settings: Settings, design: Comparison
) -> tuple[AttackResult, Scores]:
    scores = attack.published.score(evidence, attack.view)
    metrics: dict[str, AttackMetrics] = {}
    for kind, who in candidates.by_kind().items():
        found = _metrics(scores, who, candidates, settings)
        if found is not None:
            metrics[kind] = found
    if candidates.groups is not None and RECORD in metrics:
        who = candidates.kinds == RECORD
        combined = {GROUP: "mean", **({f"{GROUP}, likelihood ratio": "sum"} if "lira-online" in attack.name else {})}
        for kind, how in combined.items():
            own, members = per_group(scores[who], candidates.members[who], candidates.units[who], how)
            if members.any() and not members.all():
                metrics[kind] = attack_metrics(own[members], own[~members], confidence=settings.confidence)
    view = attack.view
    several = view.draws > 1 or view.combination == "votes"
    result = AttackResult(
        name=attack.name,
        reference=attack.published.reference,
        access=view.access,
        draws=view.draws,
        combination=view.combination if several else None,
        fixed=attack.fixed,
        metrics=metrics,
        lower_bound=design.bound(scores, f"{attack.name}, {view}") if attack.bounding else None,
    )
    return result, scores


def _metrics(scores: Scores, who: Bools, candidates: Candidates, settings: Settings) -> AttackMetrics | None:
    ins, outs = who & candidates.members, who & ~candidates.members
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


def _split(scores: Scores, candidates: Candidates, kind: str) -> AttackScores:
    who = candidates.by_kind()[kind]
    return AttackScores(scores[who & candidates.members], scores[who & ~candidates.members])


def _most_exposed(
    evidence: Evidence, candidates: Candidates, settings: Settings, attacks: Sequence[PlannedAttack]
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
        metrics=_metrics(scores, chosen, candidates, settings),
        worst=worst,
        worst_kind=str(candidates.kinds[worst]),
        separation=float(distance[worst]),
        member=bool(candidates.members[worst]),
    )


def _described(accuracies: Sequence[float]) -> Shadows:
    if not accuracies:
        return Shadows(0)
    return Shadows(len(accuracies), min(accuracies), float(np.mean(accuracies)), max(accuracies))


def _tested(guarantee: Guarantee, design: Comparison) -> Guarantee:
    """What is proven for the neighbours and the unit that the lower bound is about."""
    if guarantee.claimed_epsilon == float("inf"):
        return guarantee
    if design.unit == "group" and guarantee.details.get("unit", RECORD) == RECORD:
        return nothing_proven(
            "The guarantee is for one record, and this audit bounds what a group of records tells.", design.delta
        )
    if guarantee.neighbours == "add_remove" and design.neighbours == "swap":
        swapped = guarantee.as_swap()
        if swapped.neighbours == "swap":
            return swapped
        return nothing_proven(
            "The guarantee is for adding or removing a record, this audit tests replacing one, and what was released "
            "is not known, so that the one cannot be counted as the other.",
            design.delta,
        )
    if guarantee.neighbours == "swap" and design.neighbours == "add_remove":
        return nothing_proven(
            "The guarantee is for replacing a record, and this audit tests adding or removing one.", design.delta
        )
    return guarantee
