"""The first page: for each model a risk band, how strong the evidence is, and what to do next."""

from collections.abc import Iterable
from dataclasses import dataclass

from resperturb.bounds.attack_metrics import AttackMetrics
from resperturb.bounds.audit_result import AuditResult
from resperturb.report.collect import ReportedModel
from resperturb.report.gate import Check, Decision, Outcome, decide
from resperturb.report.policy import EVIDENCE, Policy
from resperturb.report.wording import counted

BANDS: dict[Outcome, str] = {
    "failed": "above the policy",
    "unknown": "not known",
    "met": "within the policy, by what was tried",
}
RESIDUAL = (
    "A stronger attack, or one with more shadow models, may find more.",
    "Only membership was tested: not reconstruction, attribute inference, or what several releases tell together.",
    "Averages hide people: single records may be far more exposed than the AUC says.",
)


@dataclass(frozen=True)
class ModelDecision:
    """One line of the first page; ``exposed`` is who is most exposed, empty where that was not measured."""

    name: str
    decision: Decision
    evidence: str
    exposed: str

    @property
    def band(self) -> str:
        """How the model stands to the policy, in a few words."""
        return BANDS[self.decision.outcome]

    @property
    def advice(self) -> str:
        """What to do next."""
        return advice(self.decision.outcome, self.decision.checks)


def advice(outcome: Outcome, checks: Iterable[Check]) -> str:
    """Say what to do next.

    Args:
        outcome: Of the decision.
        checks: What it rests on.

    Returns:
        A sentence that asks for the evidence that is lacking, where any is.

    >>> advice("unknown", [Check("shadow model", "unknown", "", 0.0, None, 16.0)])
    'Decide nothing yet: audit it with at least 16 shadow models first.'
    """
    if outcome == "failed":
        return "Do not release the weights, nor an interface to them, as they are."
    if outcome == "met":
        return "Nothing speaks against it among what was tried; a person who knows the data decides."
    open_checks = [check for check in checks if check.outcome == "unknown"]
    if any(check.demand == "audit" for check in open_checks):
        return "Decide nothing yet: audit it first."
    lacking = [counted(int(c.limit), c.demand) for c in open_checks if c.demand in EVIDENCE.values() and c.limit]
    if lacking:
        return f"Decide nothing yet: audit it with at least {' and '.join(lacking)} first."
    return "Decide nothing yet: audit it with more candidates, or more shadow models, for this leaves it open."


def decision_of(model: ReportedModel, policy: Policy) -> ModelDecision:
    """Decide about one model by a policy."""
    audit = model.audit
    decision = decide(audit, model.guarantee, policy)
    if audit is None:
        return ModelDecision(model.name, decision, _without_audit(model), "")
    evidence = decision.tried if audit.shadows.count else f"one run: {decision.tried}"
    return ModelDecision(model.name, decision, evidence, _exposed(audit))


def _without_audit(model: ReportedModel) -> str:
    if not model.attacks:
        return "none: neither attacked nor audited"
    saw = "saw a leak" if model.leaks else "saw no leak"
    return f"{counted(len(model.attacks), 'attack')} that {saw}; not audited"


def _exposed(audit: AuditResult) -> str:
    found = []
    if audit.exposed is not None and audit.exposed.metrics is not None:
        who = f"the {audit.exposed.count} candidates that shadow models tell apart best"
        found.append(f"{who}, {_area(audit.exposed.metrics)}")
    if audit.canaries is not None:
        found.append(f"canaries, {_area(audit.canaries)}")
    return "; ".join(found)


def _area(metrics: AttackMetrics) -> str:
    low, high = metrics.auc_interval
    return f"AUC {metrics.auc:.3f} ({low:.3f} to {high:.3f})"
