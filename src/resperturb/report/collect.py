"""Everything a report needs to know of a model: what it is, and what its audit found."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Self

from resperturb.auditing.store import Scores, open_scores
from resperturb.auditing.trainee import Trainee
from resperturb.bounds.attack_metrics import AttackMetrics, TruePositiveRate
from resperturb.bounds.audit_result import GROUP, RECORD, AttackResult, AttackScores, AuditResult
from resperturb.bounds.intervals import Interval
from resperturb.bounds.result import LowerBound
from resperturb.errors import UsageError
from resperturb.privacy import Guarantee
from resperturb.report.subject import Subject
from resperturb.report.wording import group_name


@dataclass(frozen=True)
class Finding:
    """What one attack found among one kind of candidate."""

    attack: AttackResult
    kind: str

    @property
    def name(self) -> str:
        """The attack with the answers that it saw."""
        return self.attack.full_name

    @property
    def metrics(self) -> AttackMetrics:
        """Area, rates and intervals."""
        return self.attack.metrics[self.kind]

    @property
    def auc(self) -> float:
        """The area under the ROC curve."""
        return self.metrics.auc

    @property
    def interval(self) -> Interval:
        """The interval of the area."""
        return self.metrics.auc_interval


@dataclass(frozen=True, eq=False)
class ReportedModel:
    """A model and its audit, if it was audited."""

    subject: Subject
    audit: AuditResult | None

    def trainee(self) -> Trainee:
        """Return what trains models of the same recipe, for an audit.

        Raises:
            UsageError: The folder holds no recipe.
        """
        raise UsageError(f"{self.name} is an audit, and an audit holds no recipe to train models by.")

    @property
    def name(self) -> str:
        """The name that the report gives it."""
        return self.subject.name

    @property
    def defence(self) -> str:
        """What keeps it from leaking, in a word or two."""
        return self.subject.defence or "not stated"

    @cached_property
    def guarantee(self) -> Guarantee:
        """What is proven about it, computed from its configuration."""
        return self.subject.guarantee(None if self.audit is None else self.audit.delta)

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """The guarantee and, where the audit tests it for other neighbours, what it is for those.

        The last is the one that :attr:`lower` may be compared with.
        """
        tested = None if self.audit is None else self.audit.tested_guarantee
        one = self.guarantee
        if tested is None or (tested.neighbours, tested.claimed_epsilon) == (one.neighbours, one.claimed_epsilon):
            return (one,)
        return one, tested

    @property
    def unit(self) -> str:
        """What a group of records is called: ``patient``; ``group`` where that is not known."""
        return group_name(self.audit)

    @property
    def lower(self) -> LowerBound | None:
        """The lower bound on epsilon that its audit showed."""
        return None if self.audit is None else self.audit.epsilon_lower

    @property
    def bound(self) -> LowerBound | None:
        """The lower bound, where the audit's design allows one."""
        return None if self.lower is None or self.lower.unmet else self.lower

    @property
    def leaks(self) -> bool:
        """Whether a leak was seen."""
        return self.audit is not None and self.audit.leaks

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of candidates that attacks are compared on: groups where there are any, records, or canaries."""
        if self.audit is None or not self.audit.attacks:
            return ()
        there = list(dict.fromkeys(kind for attack in self.audit.attacks for kind in attack.metrics))
        groups = tuple(kind for kind in there if kind.startswith(GROUP))
        return groups or ((RECORD,) if RECORD in there else (self.audit.attacks[0].kind,))

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What the fixed attacks found among these candidates, the strongest first."""
        return () if self.audit is None else self.found_by(self.audit.fixed or self.audit.attacks, self.kinds)

    @property
    def strongest(self) -> Finding | None:
        """What the strongest fixed attack found; None without an audit."""
        return self.findings[0] if self.findings else None

    @property
    def deciding(self) -> Finding | None:
        """The finding by which a leak is seen, where it is not the strongest attack's: of another attack or kind."""
        if self.audit is None or not self.leaks or self.findings[0].metrics.shows_leak:
            return None
        return Finding(*self.audit.headline)

    @property
    def tpr(self) -> TruePositiveRate | None:
        """The strongest attack's true positive rate at a false positive rate of 1%."""
        return None if self.strongest is None else self.strongest.metrics.at_fpr(0.01)

    @cached_property
    def scored(self) -> tuple[Finding, ...]:
        """The findings whose scores are kept, the strongest first, those on single records after those on groups."""
        if self.audit is None or self.audit.folder is None:
            return ()
        return self.findings if RECORD in self.kinds else self.findings + self.found_by(self.audit.fixed, (RECORD,))

    def scores(self, finding: Finding) -> AttackScores:
        """Return the scores of a finding of :attr:`scored`.

        Raises:
            ResperturbError: Scores are damaged, missing, or of another model.
        """
        return self._kept.pooled(finding.attack.key, finding.kind)

    @cached_property
    def _kept(self) -> Scores:
        assert self.audit is not None
        assert self.audit.folder is not None
        return open_scores(self.audit.folder, self.audit.digests.get("scores", ""))

    @staticmethod
    def found_by(attacks: Sequence[AttackResult], kinds: Sequence[str]) -> tuple[Finding, ...]:
        """Return what attacks found among kinds of candidates, the strongest first."""
        found = (Finding(attack, kind) for attack in attacks for kind in kinds if kind in attack.metrics)
        return tuple(sorted(found, key=lambda one: -one.auc))

    def published(self) -> Self:
        """Leave out accuracies on training records, which the proof of a finite epsilon assumes to stay private."""
        if math.isinf(self.guarantee.claimed_epsilon):
            return self
        tested = (one for one in self.subject.curves if one.test_accuracy is not None)
        curves = tuple(replace(one, train_accuracy=None) for one in tested)
        return replace(self, subject=replace(self.subject, train_accuracy=None, curves=curves))

    def to_dict(self) -> dict[str, object]:
        """Give the model's line of a comparison as plain data."""
        subject = self.subject
        line: dict[str, object] = {
            "name": self.name,
            "defence": subject.defence or None,
            "description": subject.description or None,
            "level": subject.level,
            "network": subject.network or None,
            "train_accuracy": subject.train_accuracy,
            "test_accuracy": subject.test_accuracy,
            "gap": subject.gap,
            "guarantee": self.guarantee.to_dict(),
            "epsilon_lower": None if self.lower is None else self.lower.to_dict(),
            "verdict": None if self.audit is None else self.audit.verdict,
        }
        if self.strongest is not None:
            point = self.tpr
            line["attack"] = {
                "name": self.strongest.name,
                "candidates": self.strongest.kind,
                "of": len({one.name for one in self.findings}),
                "auc": self.strongest.auc,
                "auc_interval": list(self.strongest.interval),
                "tpr_at_1_percent_fpr": None if point is None or point.tied else point.tpr,
                "leaks": self.leaks,
            }
        return line


def kinds_of(attack: AttackResult) -> list[str]:
    """List the kinds of candidates of an attack, groups first."""
    return sorted(attack.metrics, key=lambda kind: not kind.startswith(GROUP))


@dataclass(frozen=True)
class FactRow:
    """A setting, its value for every model, and whether these differ."""

    label: str
    values: tuple[str, ...]
    differs: bool


def facts_table(runs: Sequence[ReportedModel], for_reviewers: bool = False) -> list[FactRow]:
    """Set the settings of the models side by side; a setting that no model has is left out."""
    columns = [{fact.label: fact for fact in run.subject.facts} for run in runs if run.subject.facts]
    rows = []
    for label, first in columns[0].items() if columns else ():
        values = tuple(column[label].value if label in column else "" for column in columns)
        if any(values) and (for_reviewers or not first.reviewers_only):
            rows.append(FactRow(label, values, first.compared and len(set(values)) > 1))
    return rows


def model_of_audit(audit: AuditResult, name: str | None = None) -> ReportedModel:
    """Report an audit; ``name`` is that of its model if None."""
    subject = Subject(
        name=audit.model.name if name is None else name,
        defence="",
        description=audit.model.description,
        train_accuracy=audit.model.train_accuracy,
        test_accuracy=audit.model.test_accuracy,
        guarantee=lambda delta: audit.guarantee,
        audit_command=None if audit.subject == "this model" else lambda option, n: f"rp.audit(..., {option}={n})",
    )
    return ReportedModel(subject, audit)


def open_models(paths: Sequence[Path]) -> list[ReportedModel]:
    """Open folders of finished runs and of audits, under names that differ.

    Raises:
        UsageError: A folder holds neither.
    """
    from resperturb.report.folders import open_folder

    models = [open_folder(path) for path in paths]
    names = [model.name for model in models]
    # Numbers and not paths: a report says nothing of the machine that it was made on.
    unlike = [f"{n} ({names[: i + 1].count(n)})" if names.count(n) > 1 else n for i, n in enumerate(names)]
    return [replace(one, subject=replace(one.subject, name=n)) for n, one in zip(unlike, models, strict=True)]
