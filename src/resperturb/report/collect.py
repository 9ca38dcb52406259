"""Everything a report needs to know of a model: what it is, and what its audit found."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from resperturb.bounds.attack_metrics import AttackMetrics, TruePositiveRate
from resperturb.bounds.audit_result import GROUP, RECORD, AttackResult, AuditResult
from resperturb.bounds.intervals import Interval
from resperturb.bounds.result import LowerBound
from resperturb.privacy import Guarantee
from resperturb.report.folders import Opened, open_folder
from resperturb.report.scored import ScoredAttack, scored_attacks
from resperturb.report.subject import Subject, subject_of_audit
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

    def tpr(self, fpr: float) -> TruePositiveRate | None:
        """The true positive rate, if so small a false positive rate can be seen among so many non-members."""
        return self.metrics.at_fpr(fpr)


@dataclass(frozen=True)
class Way:
    """The strongest attack among those that query the model in one way."""

    name: str
    finding: Finding


@dataclass(frozen=True, eq=False)
class ReportedModel:
    """A model under the name that the report gives it, with its audit if it was audited."""

    name: str
    subject: Subject
    audit: AuditResult | None = None

    @property
    def defence(self) -> str:
        """What keeps it from leaking, in a word or two."""
        return self.subject.defence

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
    def refuted(self) -> bool:
        """Whether the audit showed more than was proven possible."""
        return self.audit is not None and self.audit.verdict == "refuted"

    @property
    def leaks(self) -> bool:
        """Whether a leak was seen."""
        return self.audit is not None and self.audit.leaks

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of candidates that attacks are compared on: groups where there are any, records, or canaries."""
        if self.audit is None or not self.audit.attacks:
            return ()
        there = self.audit.attacks[0].metrics
        groups = tuple(kind for kind in there if kind.startswith(GROUP))
        return groups or ((RECORD,) if RECORD in there else (self.audit.attacks[0].kind,))

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What the fixed attacks found among these candidates, the strongest first."""
        fixed = () if self.audit is None else self.audit.fixed or self.audit.attacks
        every = (Finding(attack, kind) for attack in fixed for kind in self.kinds if kind in attack.metrics)
        return tuple(sorted(every, key=lambda one: -one.auc))

    @property
    def strongest(self) -> Finding | None:
        """What the strongest fixed attack found; None without an audit."""
        return self.findings[0] if self.findings else None

    @property
    def tpr(self) -> TruePositiveRate | None:
        """The strongest attack's true positive rate at a false positive rate of 1%."""
        return None if self.strongest is None else self.strongest.tpr(0.01)

    @cached_property
    def scored(self) -> Sequence[ScoredAttack]:
        """The scores of the fixed attacks, the strongest first."""
        return () if self.audit is None else scored_attacks(self.audit)

    @cached_property
    def ways(self) -> list[Way]:
        """What the strongest attack finds by each way to query: over so many draws of the noise, and without it."""
        best: dict[tuple[int, int], Way] = {}
        for attack in () if self.audit is None else self.audit.attacks:
            for kind in self.kinds:
                if kind not in attack.metrics:
                    continue
                draws = attack.draws
                name = f"{draws} draws" if attack.access == "served" and draws > 1 else attack.access
                order = ({"served": 0, "weights": 1}.get(attack.access, 2), draws)
                found = Finding(attack, kind)
                if order not in best or found.auc > best[order].finding.auc:
                    best[order] = Way(name, found)
        return [best[order] for order in sorted(best)]

    def to_dict(self) -> dict[str, object]:
        """Give the model's line of a comparison as plain data."""
        subject = self.subject
        line: dict[str, object] = {
            "name": self.name,
            "defence": subject.defence,
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


def model_of(opened: Opened) -> ReportedModel:
    """Report an opened folder under its own name."""
    return ReportedModel(opened.subject.name, opened.subject, opened.audit)


def model_of_audit(audit: AuditResult) -> ReportedModel:
    """Report an audit under the name of its model."""
    return ReportedModel(audit.model.name, subject_of_audit(audit, audit.model.name), audit)


def open_models(paths: Sequence[Path]) -> list[ReportedModel]:
    """Open folders of finished runs and of audits, under names that differ.

    Raises:
        UsageError: A folder holds neither.
    """
    models = [model_of(open_folder(path)) for path in paths]
    names = [model.name for model in models]
    # Numbers and not paths: a report says nothing of the machine that it was made on.
    unlike = [f"{n} ({names[: i + 1].count(n)})" if names.count(n) > 1 else n for i, n in enumerate(names)]
    return [ReportedModel(name, model.subject, model.audit) for name, model in zip(unlike, models, strict=True)]
