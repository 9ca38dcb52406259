"""An audit: every attack on a run, what it finds and how sure that is, and what that says about what is proven."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resperturb.attacks.catalogue import Attack, Evidence, ShadowStatistics, attacks_on, views
from resperturb.attacks.signals import Access, Query, Signals, View
from resperturb.auditing.scores import Scores, check_probability
from resperturb.audits.ask import collect
from resperturb.audits.candidates import RECORD, Candidates, candidates
from resperturb.audits.leakage import CANARIES, by_kind, exposed, kinds
from resperturb.audits.outcome import MembershipScores, save_outcome
from resperturb.audits.shadow import AttackFailedError, run_shadow_attack
from resperturb.audits.shadows import described, learned_shadow_configs, train_shadows
from resperturb.audits.verdict import Bounds
from resperturb.engine import Engine
from resperturb.engine.local import local
from resperturb.errors import UsageError
from resperturb.files import write_json
from resperturb.models.names import parse_name
from resperturb.training.config import TrainConfig
from resperturb.training.run import Run

SCHEMA = 1

CAVEATS = (
    "An attack that finds nothing proves nothing: a stronger one may exist. What is found is a leak.",
    "balanced_accuracy is that of the best threshold in hindsight, which flatters the attack when records are few.",
    "The best of many attacks is found in hindsight: its AUC is a little too high. The bounds on epsilon are not "
    "concerned: the attacks they come from were fixed before, and their number is corrected for.",
)

GROUPED = (
    "Images of one group were in or out together, but intervals count every image by itself: they are too narrow, "
    "and another cut may give another AUC altogether. Train and audit with several --split-seed."
)

OnStage = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Settings:
    """What an audit is asked to do.

    ``draws`` are the numbers of noise draws that are combined; ``shadows`` is 0 for an audit of one run. Shadows are
    trained by ``engine``, ``jobs`` at a time.
    """

    shadows: int = 16
    jobs: int | None = None
    draws: tuple[int, ...] = (1, 16)
    delta: float = 1e-5
    confidence: float = 0.95
    resamples: int = 300
    engine: Engine = local

    def __post_init__(self) -> None:
        check_probability("delta", self.delta)
        check_probability("confidence", self.confidence)
        if self.shadows and (self.shadows < 4 or self.shadows % 2):
            raise UsageError(
                f"an audit needs an even number of at least 4 shadows, so that each record is in half of them and "
                f"outside of two; not {self.shadows}. For an audit without shadows say --one-run."
            )
        if not self.draws or min(self.draws) < 1:
            raise UsageError(f"draws must be whole numbers of at least 1, not {self.draws}.")


def audit(
    target: Run,
    settings: Settings = Settings(),  # noqa: B008 - it is frozen
    on_stage: OnStage = lambda what, done, count: None,
) -> dict[str, Any]:
    """Audit a run: train the shadows that are missing, attack, measure, bound. Keep all in the run and return it."""
    check_auditable(target)
    asked = candidates(target.config.data)
    members = asked.members(target.config.data)[: len(asked)]
    queries = queries_of(target, settings.draws)
    seen = views(queries)
    shadows: list[Run] = []
    statistics = None
    if settings.shadows:
        shadows = train_shadows(
            target,
            settings.shadows,
            settings.jobs,
            lambda done, count: on_stage("training shadows", done, count),
            settings.engine,
        )
        statistics = _statistics(shadows, asked, queries, seen, on_stage)
    evidence = Evidence(_answers(target, asked, queries), statistics, len(asked))
    attacks = attacks_on(seen, len(shadows))
    bounding = sum(attack.bounding for attack in attacks)
    bounds = Bounds.of(target, asked, members, settings.delta, settings.confidence, bounding)
    entries = []
    for number, attack in enumerate(attacks):
        on_stage("scoring", number, len(attacks))
        entries.append(_entry(target, attack, evidence, members, asked, settings, bounds))
    caveats = caveats_on(asked)
    if shadows:
        learned, failures = _learned(target, settings)
        entries += learned
        caveats += failures
    result = {
        "schema": SCHEMA,
        "run": str(target.path),
        "hash": target.config.digest,
        "delta": settings.delta,
        "confidence": settings.confidence,
        "target": {**target.result.accuracies(), "records": target.result.records},
        "shadows": described(shadows),
        "candidates": {kind: int((asked.kinds == kind).sum()) for kind in dict.fromkeys(asked.kinds.tolist())},
        "attacks": entries,
        "exposed": None if statistics is None else _exposed(evidence, members, asked, settings),
        **bounds.verdict(entries),
        "caveats": caveats,
    }
    write_json(target.path / "audit.json", plain(result))
    return result


def caveats_on(asked: Candidates) -> list[str]:
    """What has to be said with the numbers on these candidates."""
    return [*CAVEATS, *([] if asked.images.groups is None else [GROUPED])]


def check_auditable(target: Run) -> None:
    """Refuse a target of which it is not known who was in and who was out."""
    data = target.config.data
    _ = target.result  # unfinished runs are refused here
    if data.part == "shadow_train":
        raise UsageError(f"{target.path} is a shadow of the paper's attack; audit a run of the part target_train.")
    if data.part == "all" and data.canaries is None:
        raise UsageError(
            f"{target.path} was trained on all of its images and without canaries, so there is nobody of whom it is "
            "known that they were left out; train with --part target_train or audit, or with canaries."
        )


def queries_of(target: Run, draws: Sequence[int]) -> list[Query]:
    """Say how the models are to be asked: with and without noise, and the networks of an ensemble apart."""
    strategy = target.config.strategy
    noisy = strategy is not None and strategy.is_noisy
    queries = [Query("noise on", tuple(sorted(set(draws))))] if noisy else []
    queries.append(Query("noise off"))
    networks = ensemble_size(target.config)
    if networks > 1:
        queries.append(Query("networks apart", (networks,)))
    return queries


def ensemble_size(config: TrainConfig) -> int:
    """How many networks a model is made of.

    >>> from resperturb.training.config import DataConfig
    >>> ensemble_size(TrainConfig(data=DataConfig(spec="x"), model="en5-resnet8"))
    5
    """
    return parse_name(config.model).networks


def _answers(run: Run, asked: Candidates, queries: Sequence[Query]) -> dict[Access, Signals]:
    return {query.access: collect(run, asked, query) for query in queries}


def _statistics(
    shadows: Sequence[Run],
    asked: Candidates,
    queries: Sequence[Query],
    seen: Sequence[View],
    on_stage: OnStage,
) -> ShadowStatistics:
    """Ask one shadow after the other; what is kept of each does not grow with their number."""
    statistics = ShadowStatistics.empty(seen, len(asked.images))
    for number, shadow in enumerate(shadows):
        on_stage("asking shadows", number, len(shadows))
        statistics.add(_answers(shadow, asked, queries), asked.members(shadow.config.data))
    return statistics


def _entry(
    target: Run,
    attack: Attack,
    evidence: Evidence,
    members: NDArray[np.bool_],
    asked: Candidates,
    settings: Settings,
    bounds: Bounds,
) -> dict[str, Any]:
    """Run one attack: measure it on every kind of candidate, bound epsilon by it, keep it for the report."""
    scores = attack.method.score(evidence, attack.view)
    found = by_kind(scores, members, asked, settings.confidence, settings.resamples)
    bound = bounds.at(scores) if attack.bounding else None
    if attack.headline:
        _keep(target, attack, found, scores, members, asked)
    return {
        "attack": attack.name,
        "reference": attack.method.reference,
        **_axes(attack.view),
        "headline": attack.headline,
        "by_kind": found,
        "epsilon_lower": None if bound is None else bound.to_dict(),
    }


def _axes(view: View) -> dict[str, Any]:
    combined = view.draws > 1 or view.combination == "votes"
    return {
        "access": view.access,
        "draws": view.draws,
        "combination": view.combination if combined else None,
        "view": str(view),
    }


def _keep(
    target: Run,
    attack: Attack,
    found: dict[str, dict[str, Any]],
    scores: Scores,
    members: NDArray[np.bool_],
    asked: Candidates,
) -> None:
    """Keep an attack among those of the run, for its report: on the records, or if there are none the canaries."""
    of_kind = dict(kinds(asked))
    kind = next((kind for kind in (RECORD, CANARIES, *of_kind) if kind in found), None)
    if kind is None:
        return
    chosen = of_kind[kind]
    summary = {
        "attack": f"{attack.name}, {attack.view}",
        "reference": attack.method.reference,
        "candidates": kind,
        **found[kind],
    }
    split = MembershipScores(scores[chosen & members], scores[chosen & ~members])
    save_outcome(target.path, attack.key, split, plain(summary))


def _learned(target: Run, settings: Settings) -> tuple[list[dict[str, Any]], list[str]]:
    """The paper's attack on the records, with a shadow that knows of the perturbation and with one that does not.

    Its network may fail to learn where there is little to see; the other attacks stand without it, so that is told.
    """
    noisy = queries_of(target, settings.draws)[0].access == "noise on"
    kept = ("auc", "auc_interval", "tpr_at_fpr", "members", "nonmembers")
    found, failures = [], []
    for adaptive in (False, True)[: len(learned_shadow_configs(target.config))]:
        for draws in sorted({1, max(settings.draws)}) if noisy else [1]:
            try:
                summary = run_shadow_attack(target, adaptive=adaptive, draws=draws)
            except AttackFailedError as error:
                kind = "adaptive" if adaptive else "not adaptive"
                failures.append(f"The paper's attack ({kind}, draws: {draws}) is missing: {error}")
                continue
            measures = {key: summary[key] for key in kept} | {"balanced_accuracy": summary["accuracy"]}
            found.append(
                {
                    "attack": "shadow-adaptive" if adaptive else "shadow",
                    "reference": summary["reference"],
                    **_axes(View("noise on" if noisy else "noise off", draws)),
                    "headline": True,
                    "by_kind": {RECORD: measures},
                    "epsilon_lower": None,
                }
            )
    return found, failures


def _exposed(evidence: Evidence, members: NDArray[np.bool_], asked: Candidates, settings: Settings) -> dict[str, Any]:
    attack = Attack("rmia-online", View("noise off", 1))
    scores = attack.method.score(evidence, attack.view)
    inside, outside = evidence.moments(attack.view)
    found = exposed(scores, inside, outside, members, asked, settings.confidence, settings.resamples)
    return {"attack": attack.name, "view": str(attack.view), **found}


def plain(value: Any) -> Any:
    """Name what JSON has no number for.

    >>> plain({"epsilon": float("inf")})
    {'epsilon': 'inf'}
    """
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return value
