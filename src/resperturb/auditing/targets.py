"""Several targets: every model of a leave-one-out design is attacked once; answers are read one file at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from resperturb.attacks.catalogue import PlannedAttack, attacks_on, error_shares, views
from resperturb.attacks.evidence import Evidence, ShadowStatistics
from resperturb.attacks.registry import AttackFailedError
from resperturb.attacks.signals import View
from resperturb.auditing.assess import (
    UNBOUNDED,
    Assessed,
    Settings,
    comparison_of,
    described,
    each_of,
    fixed_attacks,
    metrics_of,
    queries_of,
    result_of,
    without_population,
)
from resperturb.auditing.design import Design
from resperturb.auditing.fit import Models
from resperturb.bounds.arrays import Bools, Singles
from resperturb.bounds.attack_metrics import AttackMetrics
from resperturb.bounds.audit_result import AttackResult, corrected
from resperturb.bounds.exposed import Exposed, exposed
from resperturb.bounds.result import LowerBound
from resperturb.bounds.targets import TargetMetrics, median_bound, over_targets, target_confidence
from resperturb.errors import UsageError
from resperturb.privacy import Guarantee


def assess_targets(
    models: Models,
    design: Design,
    settings: Settings,
    guarantee: Guarantee,
    more: Sequence[str] = (),
    place: Path | None = None,
) -> Assessed:
    """Assess every target by the models outside its pair.

    Args:
        models: The models and their answers.
        design: Who was trained on what, without models that did not learn.
        settings: Delta, confidence and draws.
        guarantee: What is proven about each.
        more: Names of attacks that are fixed beforehand besides the default ones.
        place: Folder of the matrices of scores; None for memory.

    Returns:
        Means over targets, with intervals that count targets.
    """
    candidates, targets = models.candidates, design.targets.tolist()
    used = [number for number in range(len(design)) if number not in design.unused]
    seen = views(queries_of(models, used))
    shadows = len(list(design.evidence(targets[0])))
    attacks = list(fixed_attacks(attacks_on(seen, shadows, more, candidates.population > 0)))
    if not attacks:
        raise UsageError("leave-one-out needs at least one attack that is fixed beforehand.")
    shares = error_shares(shadows, more)
    each = Settings(settings.draws, settings.delta, target_confidence(settings.confidence))
    scores = _matrices(attacks, len(targets), len(candidates), place)
    metrics: dict[str, list[dict[str, AttackMetrics]]] = {result_of(attack, {}).key: [] for attack in attacks}
    bounds: list[LowerBound] = []
    own: dict[str, list[LowerBound]] = {key: [] for key in metrics}
    failed: dict[str, str] = {}
    for row, (target, evidence) in enumerate(
        evidence_of(models, design, tuple(dict.fromkeys(attack.view for attack in attacks)))
    ):
        comparison = comparison_of(candidates, design, target, each, guarantee, shares)
        found: list[LowerBound] = []
        for attack in attacks:
            key = result_of(attack, {}).key
            if key in failed:
                continue
            try:
                scored = np.asarray(attack.published.score(evidence, attack.view), dtype=np.float64)
            except AttackFailedError as error:
                failed[key] = f"{attack.name}, {attack.view}, is left out: {error}"
                continue
            scores[key][row] = scored
            metrics[key].append(metrics_of(scored, attack.name, candidates, design.members[target], settings))
            if attack.bounding and design.chance not in UNBOUNDED:
                found.append(comparison.bound(scored, f"{attack.name}, {attack.view}"))
                own[key].append(found[-1])
        bounds.append(comparison.best(found))
    count = len(models.design.targets)
    for key in failed:
        del scores[key]
    results = [
        _over(attack, metrics[key], own[key], settings, count)
        for attack, key in zip(attacks, metrics, strict=True)
        if key not in failed
    ]
    unbounded = UNBOUNDED.get(design.chance)
    epsilon = comparison.nothing(unbounded) if unbounded else median_bound(bounds, settings.confidence, count)
    return Assessed(
        corrected([result for result in results if result.metrics], settings.confidence),
        scores,
        epsilon,
        None,
        comparison,
        described(models, [number for number, _ in design.evidence(targets[0])]),
        (*without_population(candidates, shadows), *failed.values()),
    )


def evidence_of(
    models: Models, design: Design, seen: Sequence[View], stage: str = ""
) -> Iterator[tuple[int, Evidence]]:
    """Yield every target with the evidence about it; answers are read twice, one file at a time.

    Args:
        models: The models and their answers.
        design: Who was trained on what.
        seen: The views that attacks use.
        stage: The checkpoint; the model itself if empty.

    Yields:
        The number of a target, and its evidence.
    """
    candidates = models.candidates
    everything = np.ones(len(candidates), dtype=bool)
    totals = ShadowStatistics.empty(seen, len(candidates.rows))

    def about(number: int, which: Bools) -> Bools:
        asked = everything if design.question is None else design.question[number]
        return np.pad(which & asked, (0, candidates.population), constant_values=bool(which.all()))

    for number in range(len(design)):
        if number not in design.unused:
            totals.add(models.answers(number, stage), models.members(number), about(number, everything))
    for target in design.targets.tolist():
        statistics, others = totals.copy(), list(design.evidence(target))
        speaking = dict(others)
        for number in range(len(design)):
            silent = ~speaking[number] if number in speaking else everything
            if number not in design.unused and silent.any():
                statistics.remove(models.answers(number, stage), models.members(number), about(number, silent))
        answers = models.answers(target, stage)
        yield target, Evidence(answers, statistics, len(candidates), partial(each_of, models, others, stage=stage))


def _matrices(
    attacks: Sequence[PlannedAttack], targets: int, candidates: int, place: Path | None
) -> dict[str, Singles]:
    """Make room for the scores of each attack; in files where there is a folder, for they may be large."""
    keys = [result_of(attack, {}).key for attack in attacks]
    if place is None:
        return {key: np.zeros((targets, candidates), dtype=np.float32) for key in keys}
    place.mkdir(parents=True, exist_ok=True)
    shape = (targets, candidates)
    return {
        key: np.lib.format.open_memmap(place / f"{key}.npy", mode="w+", dtype=np.float32, shape=shape) for key in keys
    }


def _over(
    attack: PlannedAttack,
    metrics: Sequence[dict[str, AttackMetrics]],
    bounds: Sequence[LowerBound],
    settings: Settings,
    models: int,
) -> AttackResult:
    """Combine what an attack finds on each target, for the kinds that every target has on both sides."""
    kinds = [kind for kind in metrics[0] if all(kind in one for one in metrics)]
    found = result_of(
        attack, {kind: over_targets([one[kind] for one in metrics], settings.confidence) for kind in kinds}
    )
    return replace(
        found,
        per_target={kind: tuple(TargetMetrics.of(one[kind]) for one in metrics) for kind in kinds},
        lower_bound=median_bound(bounds, settings.confidence, models) if bounds else None,
    )


def exposed_units(models: Models, design: Design) -> Exposed | None:
    """Name the units whose membership the models give away; None where models do not come in complete pairs.

    Args:
        models: The models and their answers.
        design: A leave-one-out design.

    Returns:
        The exposed units, by their place among the sorted units of the candidates.
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
