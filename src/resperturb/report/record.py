"""What is known of a model's privacy, for machines: one object whose JSON schema is published with the documentation.

It names no record, no file and no seed. What a reviewer needs to make the model again is in ``for_reviewers``, which
is filled in only when asked for.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from resperturb.bounds.audit_result import RECORD, AttackResult, AuditResult
from resperturb.privacy import Guarantee
from resperturb.privacy.guarantee import Assumption
from resperturb.report.collect import ReportedModel
from resperturb.report.gate import Check, Decision, Outcome, decide
from resperturb.report.policy import Policy

SCHEMA = 1


@dataclass(frozen=True)
class Proven:
    """The guarantee; ``epsilon`` is null where nothing is proven, or an assumption is known not to hold."""

    words: str
    epsilon: float | None
    delta: float
    neighbours: Literal["swap", "add_remove", "any"]
    protects: str
    level: Literal["meaningful", "weak", "vacuous"]
    assumptions: tuple[Assumption, ...]


@dataclass(frozen=True)
class Shown:
    """The lower bound on epsilon that the audit showed."""

    words: str
    epsilon: float
    delta: float
    confidence: float
    neighbours: Literal["swap", "add_remove"]
    unit: Literal["record", "group"]


@dataclass(frozen=True)
class Attacked:
    """One attack on one kind of candidate; a rate is null where it cannot be seen, or where scores tie."""

    attack: str
    on: str
    fixed: bool
    auc: float
    auc_low: float
    auc_high: float
    tpr_at_1_percent_fpr: float | None
    tpr_at_0_1_percent_fpr: float | None
    members: int
    nonmembers: int


@dataclass(frozen=True)
class Audited:
    """What was tried and what it found; the candidates are counted and not named."""

    tried: str
    shadow_models: int
    records: int
    canaries: int
    groups: int | None
    confidence: float
    attacks: tuple[Attacked, ...]
    most_exposed: Attacked | None
    epsilon_shown: Shown
    verdict: Literal["refuted", "consistent", "gap", "nothing proven"]
    leak_seen: bool


@dataclass(frozen=True)
class Decided:
    """How the model stands to a policy."""

    outcome: Outcome
    words: str
    checks: tuple[Check, ...]
    policy: Policy


@dataclass(frozen=True)
class ForReviewers:
    """What it takes to make the model again. It may help an attacker: do not publish it."""

    data: str
    seeds: dict[str, int]
    weights: str


@dataclass(frozen=True)
class PrivacyRecord:
    """Everything that may be said about a model's privacy."""

    schema: int
    model: str
    defence: str
    trained_on: int | None
    train_accuracy: float
    test_accuracy: float
    proven: Proven
    audit: Audited | None
    decision: Decided
    made_by: str
    for_reviewers: ForReviewers | None = None


def privacy_record(model: ReportedModel, policy: Policy, for_reviewers: bool = False) -> PrivacyRecord:
    """Write down what is known of a model.

    Args:
        model: A run or an audit.
        policy: To decide by.
        for_reviewers: Also say from which data and seeds it was made.

    Returns:
        The record.
    """
    from resperturb import __version__

    decision = decide(model.audit, model.guarantee, policy)
    records = (
        model.run.result.records if model.run is not None else model.audit.model.records if model.audit else None
    )
    return PrivacyRecord(
        schema=SCHEMA,
        model=model.name,
        defence=model.noise or "not stated",
        trained_on=records,
        train_accuracy=model.train_accuracy,
        test_accuracy=model.test_accuracy,
        proven=_proven(model.guarantee),
        audit=None if model.audit is None else _audited(model.audit, decision),
        decision=Decided(decision.outcome, decision.words, decision.checks, policy),
        made_by=f"resperturb {__version__}",
        for_reviewers=_for_reviewers(model) if for_reviewers else None,
    )


def record_schema() -> dict[str, Any]:
    """The JSON schema of a record."""
    from pydantic import TypeAdapter

    schema = TypeAdapter(PrivacyRecord).json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def record_json(record: PrivacyRecord) -> dict[str, Any]:
    """The record as plain values, as its schema says."""
    from pydantic import TypeAdapter

    found: dict[str, Any] = TypeAdapter(PrivacyRecord).dump_python(record, mode="json")
    return found


def _proven(guarantee: Guarantee) -> Proven:
    epsilon = guarantee.claimed_epsilon
    return Proven(
        words=guarantee.words,
        epsilon=epsilon if epsilon < math.inf else None,
        delta=guarantee.delta,
        neighbours=guarantee.neighbours,
        protects=guarantee.protects,
        level=guarantee.level,
        assumptions=guarantee.assumptions,
    )


def _audited(audit: AuditResult, decision: Decision) -> Audited:
    lower, most = audit.epsilon_lower, audit.exposed
    records = audit.candidates.get(RECORD, 0)
    exposed = None
    if most is not None and most.metrics is not None:
        found = AttackResult(most.attack, "", "", 1, None, True, {"most exposed": most.metrics})
        exposed = _attacked(found, "most exposed", most.attack)
    return Audited(
        tried=decision.tried,
        shadow_models=audit.shadows.count,
        records=records,
        canaries=sum(audit.candidates.values()) - records,
        groups=audit.groups,
        confidence=audit.confidence,
        attacks=tuple(
            _attacked(attack, kind, attack.full_name) for attack in audit.attacks for kind in attack.metrics
        ),
        most_exposed=exposed,
        epsilon_shown=Shown(lower.words, lower.epsilon, lower.delta, lower.confidence, lower.neighbours, lower.unit),
        verdict=audit.verdict,
        leak_seen=audit.leaks,
    )


def _attacked(attack: AttackResult, kind: str, name: str) -> Attacked:
    metrics = attack.metrics[kind]
    rates = [metrics.at_fpr(rate) for rate in (0.01, 0.001)]
    seen = [None if rate is None or rate.tied else rate.tpr for rate in rates]
    return Attacked(
        attack=name,
        on=kind,
        fixed=attack.fixed,
        auc=metrics.auc,
        auc_low=metrics.auc_interval.low,
        auc_high=metrics.auc_interval.high,
        tpr_at_1_percent_fpr=seen[0],
        tpr_at_0_1_percent_fpr=seen[1],
        members=metrics.members,
        nonmembers=metrics.nonmembers,
    )


def _for_reviewers(model: ReportedModel) -> ForReviewers | None:
    if model.run is None:
        return None
    config = model.run.config
    seeds = {"training": config.seed, "split": config.data.split_seed, "subset": config.data.subset_seed}
    data = config.data.spec
    if Path(data).is_absolute():
        data = Path(data).name
    return ForReviewers(data, seeds, model.run.digests["weights"])
