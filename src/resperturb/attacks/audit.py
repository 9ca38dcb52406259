"""An audit: every attack on a run, what it finds and how sure that is, and what that says about what is proven."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resperturb.attacks.candidates import RECORD, Candidates, candidates
from resperturb.attacks.catalogue import Attack, Evidence, ShadowStatistics, attacks_on, views
from resperturb.attacks.lira import separation
from resperturb.attacks.outcome import MembershipScores, save_outcome
from resperturb.attacks.shadow import check_shadow, run_shadow_attack, shadow_config, shadow_folder
from resperturb.attacks.signals import Access, Query, Signals, View, collect
from resperturb.attacks.verdict import Design, Proven, compare, lower_bound, proven
from resperturb.auditing.metrics import auc, auc_interval, balanced_accuracy, tpr_at_fpr
from resperturb.auditing.result import LowerBound
from resperturb.auditing.scores import Scores, check_probability
from resperturb.errors import UsageError
from resperturb.files import write_json
from resperturb.training.config import TrainConfig
from resperturb.training.fanout import train_many
from resperturb.training.run import Run

SCHEMA = 1
# The share of records that are looked at as the most exposed, and the fewest of them.
EXPOSED_SHARE, FEWEST_EXPOSED = 0.02, 20

CAVEATS = (
    "An attack that finds nothing proves nothing: a stronger one may exist. What is found is a leak.",
    "balanced_accuracy is that of the best threshold in hindsight, which flatters the attack when records are few.",
    "The best of many attacks is found in hindsight: its AUC is a little too high. The bounds on epsilon are not "
    "concerned: the attacks they come from were fixed before, and their number is corrected for.",
)

OnStage = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Settings:
    """What an audit is asked to do.

    ``draws`` are the numbers of noise draws that are combined; ``shadows`` is 0 for an audit of one run.
    """

    shadows: int = 16
    jobs: int | None = None
    draws: tuple[int, ...] = (1, 16)
    delta: float = 1e-5
    confidence: float = 0.95
    resamples: int = 1000

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
    shadows = _shadows(target, settings, on_stage)
    statistics = _statistics(target, shadows, asked, queries, seen, on_stage) if shadows else None
    evidence = Evidence(_answers(target, asked, queries), statistics, len(asked))
    attacks = attacks_on(seen, len(shadows))
    bounds = _Bounds.of(target, asked, members, settings, attacks)
    entries = []
    for number, attack in enumerate(attacks):
        on_stage("scoring", number, len(attacks))
        scores = attack.method.score(evidence, attack.view)
        entry = {
            "attack": attack.name,
            "reference": attack.method.reference,
            "access": attack.view.access,
            "draws": attack.view.draws,
            "combination": attack.view.combination if attack.view.draws > 1 else None,
            "view": str(attack.view),
            "headline": attack.headline,
            "by_kind": _by_kind(scores, members, asked, settings),
            "epsilon_lower": None,
        }
        if attack.bounding and (bound := bounds.at(scores)) is not None:
            entry["epsilon_lower"] = bound.to_dict()
        if attack.headline:
            _keep(target, attack, entry, scores, members, asked)
        entries.append(entry)
    entries += _learned(target, settings) if shadows and target.config.data.part != "all" else []
    result = {
        "schema": SCHEMA,
        "run": str(target.path),
        "hash": target.config.digest,
        "delta": settings.delta,
        "confidence": settings.confidence,
        "target": {key: target.result[key] for key in ("train_accuracy", "test_accuracy", "gap", "records")},
        "shadows": _described(shadows),
        "candidates": {kind: int((asked.kinds == kind).sum()) for kind in dict.fromkeys(asked.kinds.tolist())},
        "attacks": entries,
        "exposed": None if statistics is None else _exposed(evidence, statistics, members, asked, settings, seen),
        **bounds.verdict(entries),
        "caveats": list(CAVEATS),
    }
    write_json(target.path / "audit.json", _finite(result))
    return result


def check_auditable(target: Run) -> None:
    """Refuse a target of which it is not known who was in and who was out."""
    data = target.config.data
    _ = target.result  # unfinished runs are refused here
    if data.part == "shadow_train":
        raise UsageError(f"{target.path} is a shadow of the paper's attack; audit a run of the part target_train.")
    if data.part == "all" and data.canaries is None:
        raise UsageError(
            f"{target.path} was trained on all of its images and without canaries, so there is nobody of whom it is "
            "known that they were left out; train with --part target_train (the default) or audit, or with canaries."
        )


def queries_of(target: Run, draws: Sequence[int]) -> list[Query]:
    """Say how the models are to be asked: with and without noise, and the members of an ensemble apart."""
    strategy = target.config.strategy
    noisy = strategy is not None and any(value for key, value in vars(strategy).items() if key in _LEVELS)
    queries = [Query("noise on", tuple(sorted(set(draws))))] if noisy else []
    queries.append(Query("noise off"))
    networks = ensemble_size(target.config)
    if networks > 1:
        queries.append(Query("members apart", (networks,)))
    return queries


_LEVELS = ("gamma", "input_std", "output_std")


def ensemble_size(config: TrainConfig) -> int:
    """How many networks a model is made of.

    >>> from resperturb.training.config import DataConfig
    >>> ensemble_size(TrainConfig(data=DataConfig(spec="x"), model="en5-resnet8"))
    5
    """
    found = re.match(r"en(\d+)-", config.model)
    return int(found[1]) if found else 1


def shadow_configs(target: TrainConfig, count: int) -> list[TrainConfig]:
    """Say how shadows are trained: as the target, on subsets that coins decide, every record in half of them.

    >>> from resperturb.training.config import DataConfig
    >>> target = TrainConfig(data=DataConfig(spec="x"))
    >>> [(config.data.part, config.data.subset_seed) for config in shadow_configs(target, 2)]
    [('audit', 2), ('audit', 3)]
    """
    # Neither the coins of the target nor their opposite.
    first = 2 * (target.data.subset_seed // 2 + 1)
    part = "all" if target.data.part == "all" else "audit"
    return [
        target.model_copy(
            update={
                "data": target.data.model_copy(update={"part": part, "subset_seed": first + number}),
                "seed": target.seed + 1 + number,
            }
        )
        for number in range(count)
    ]


def _shadows(target: Run, settings: Settings, on_stage: OnStage) -> list[Run]:
    if not settings.shadows:
        return []
    configs = shadow_configs(target.config, settings.shadows)
    if target.config.data.part != "all":
        configs += _learned_shadows(target.config)
    done = 0
    on_stage("training shadows", done, len(configs))

    def count(run: Run) -> None:
        nonlocal done
        done += 1
        on_stage("training shadows", done, len(configs))

    runs = train_many(configs, shadow_folder(target), settings.jobs, count)
    shadows = runs[: settings.shadows]
    for shadow in shadows:
        check_shadow(target, shadow)
    return shadows


def _answers(run: Run, asked: Candidates, queries: Sequence[Query]) -> dict[Access, Signals]:
    return {query.access: collect(run, asked, query) for query in queries}


def _statistics(
    target: Run,
    shadows: Sequence[Run],
    asked: Candidates,
    queries: Sequence[Query],
    seen: Sequence[View],
    on_stage: OnStage,
) -> ShadowStatistics:
    statistics = ShadowStatistics.empty(seen, len(asked.images))
    for number, shadow in enumerate(shadows):
        on_stage("asking shadows", number, len(shadows))
        statistics.add(_answers(shadow, asked, queries), asked.members(shadow.config.data))
    return statistics


def _by_kind(
    scores: Scores, members: NDArray[np.bool_], asked: Candidates, settings: Settings
) -> dict[str, dict[str, Any]]:
    found = {}
    for kind, chosen in _kinds(asked):
        ins, outs = scores[chosen & members], scores[chosen & ~members]
        if ins.size and outs.size:
            found[kind] = _measured(ins, outs, settings)
    return found


def _kinds(asked: Candidates) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Each kind of candidate; and all canaries together where there are several kinds."""
    kinds = list(dict.fromkeys(asked.kinds.tolist()))
    for kind in kinds:
        yield kind, asked.kinds == kind
    if len([kind for kind in kinds if kind != RECORD]) > 1:
        yield "canaries", asked.kinds != RECORD


def _measured(ins: Scores, outs: Scores, settings: Settings) -> dict[str, Any]:
    confidence, resamples = settings.confidence, settings.resamples
    points = tpr_at_fpr(ins, outs, confidence=confidence, resamples=resamples)
    return {
        "auc": auc(ins, outs),
        "auc_interval": list(auc_interval(ins, outs, confidence=confidence, resamples=resamples)),
        "balanced_accuracy": balanced_accuracy(ins, outs),
        "tpr_at_fpr": {f"{point.fpr:g}": point.to_dict() for point in points},
        "members": int(ins.size),
        "nonmembers": int(outs.size),
    }


def _keep(
    target: Run, attack: Attack, entry: dict[str, Any], scores: Scores, members: NDArray[np.bool_], asked: Candidates
) -> None:
    """Keep a headline attack among the attacks of the run, for its report: on the records if there are any."""
    kind = RECORD if (asked.kinds == RECORD).any() else "canaries"
    chosen = dict(_kinds(asked)).get(kind, np.ones_like(members))
    split = MembershipScores(scores[chosen & members], scores[chosen & ~members])
    summary = {
        "attack": f"{attack.name}, {attack.view}",
        "reference": attack.method.reference,
        "candidates": kind,
        **entry["by_kind"].get(kind, next(iter(entry["by_kind"].values()))),
    }
    save_outcome(target.path, attack.key, split, _finite(summary))


def _learned_shadows(target: TrainConfig) -> list[TrainConfig]:
    configs = {config.digest: config for config in (shadow_config(target, adaptive) for adaptive in (False, True))}
    return list(configs.values())


def _learned(target: Run, settings: Settings) -> list[dict[str, Any]]:
    """The paper's attack, with a shadow that knows of the perturbation and with one that does not."""
    found = []
    adaptive = [False, True][: len(_learned_shadows(target.config))]
    for knows in adaptive:
        for draws in {1, max(settings.draws)} if target.config.strategy else {1}:
            summary = run_shadow_attack(target, adaptive=knows, draws=draws)
            kept = ("auc", "auc_interval", "tpr_at_fpr", "members", "nonmembers")
            found.append(
                {
                    "attack": summary["attack"],
                    "reference": summary["reference"],
                    "access": "noise on" if target.config.strategy else "noise off",
                    "draws": draws,
                    "combination": "mean logit" if draws > 1 else None,
                    "view": str(View("noise on" if target.config.strategy else "noise off", draws)),
                    "headline": True,
                    "by_kind": {
                        RECORD: {**{key: summary[key] for key in kept}, "balanced_accuracy": summary["accuracy"]}
                    },
                    "epsilon_lower": None,
                }
            )
    return found


def _exposed(
    evidence: Evidence,
    statistics: ShadowStatistics,
    members: NDArray[np.bool_],
    asked: Candidates,
    settings: Settings,
    seen: Sequence[View],
) -> dict[str, Any]:
    """The records that shadows tell apart best, chosen without the target: what happens to them in the target."""
    view = next(view for view in seen if view.access == "noise off")
    inside, outside = evidence.moments(view)
    distance = separation(inside, outside)
    scores = Attack("lira-online-global", view).method.score(evidence, view)
    count = min(len(asked), max(FEWEST_EXPOSED, int(EXPOSED_SHARE * len(asked))))
    order = np.argsort(-distance, kind="stable")
    chosen = np.isin(np.arange(len(asked)), order[:count])
    ins, outs = scores[chosen & members], scores[chosen & ~members]
    worst = int(order[0])
    return {
        "chosen": f"the {count} candidates whose answers differ most between shadows with and without them",
        "attack": "lira-online-global",
        "view": str(view),
        "metrics": _measured(ins, outs, settings) if ins.size and outs.size else None,
        "worst": {
            "candidate": worst,
            "kind": str(asked.kinds[worst]),
            "training_image": int(asked.indices[worst]) if worst < len(asked.indices) else None,
            "separation": float(distance[worst]),
            "member": bool(members[worst]),
            "score": float(scores[worst]),
            "score_rank_from_the_top": int((scores > scores[worst]).sum()) + 1,
        },
    }


@dataclass(frozen=True, eq=False)
class _Bounds:
    """The lower bounds of an audit: from which candidates, in which design, at which corrected confidence."""

    upper: Proven
    design: Design
    chosen: NDArray[np.bool_]
    members: NDArray[np.bool_]
    labels: NDArray[np.int64]
    count: int
    settings: Settings
    refusal: str | None

    @classmethod
    def of(
        cls,
        target: Run,
        asked: Candidates,
        members: NDArray[np.bool_],
        settings: Settings,
        attacks: Sequence[Attack],
    ) -> "_Bounds":
        canaries = asked.kinds != RECORD
        chosen = canaries if canaries.any() else ~canaries
        has_coins = bool(asked.coins()[chosen].all())
        upper = proven(target, settings.delta, has_coins)
        design: Design = upper.design or ("coins" if has_coins else "pairs")
        refusal = None
        if not canaries.any() and asked.images.groups is not None:
            refusal = (
                "Records of one group were put in together, so their coins are not independent: add canaries to "
                "bound epsilon."
            )
        count = sum(attack.bounding for attack in attacks)
        return cls(upper, design, chosen, members, asked.labels[: len(asked)], count, settings, refusal)

    @property
    def each(self) -> float:
        """The confidence of each bound, so that all hold together with the one asked for (Bonferroni)."""
        return 1 - (1 - self.settings.confidence) / max(1, self.count)

    def at(self, scores: Scores) -> LowerBound | None:
        if self.refusal is not None:
            return None
        return lower_bound(
            scores[self.chosen],
            self.members[self.chosen],
            self.labels[self.chosen],
            self.design,
            self.settings.delta,
            self.each,
        )

    def verdict(self, entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
        bounded = [entry for entry in entries if entry["epsilon_lower"] is not None]
        best = max(bounded, key=lambda entry: float(entry["epsilon_lower"]["epsilon"]), default=None)
        lower = 0.0 if best is None else float(best["epsilon_lower"]["epsilon"])
        return {
            "epsilon_lower": {
                "epsilon": lower,
                "attack": None if best is None or lower == 0 else f"{best['attack']}, {best['view']}",
                "confidence": self.settings.confidence,
                "delta": self.settings.delta,
                "design": self.design,
                "candidates": int(self.chosen.sum()),
                "assumptions": [] if best is None else best["epsilon_lower"]["assumptions"],
                "correction": f"the best of {self.count} attacks that were fixed beforehand, each bounded at "
                f"confidence {self.each:.4g} (Bonferroni)",
                "refusal": self.refusal,
            },
            "epsilon_upper": self.upper.to_dict(),
            "verdict": compare(self.upper.epsilon, lower),
        }


def _described(shadows: Sequence[Run]) -> dict[str, Any]:
    accuracies = [float(shadow.result["test_accuracy"]) for shadow in shadows]
    return {
        "count": len(shadows),
        "hashes": [shadow.config.digest for shadow in shadows],
        "test_accuracy": {"lowest": min(accuracies), "mean": float(np.mean(accuracies)), "highest": max(accuracies)}
        if accuracies
        else None,
    }


def _finite(value: Any) -> Any:
    """Name what JSON has no number for."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return value


def audit_path(run: Run) -> Path:
    """Where the audit of a run is kept."""
    return run.path / "audit.json"
