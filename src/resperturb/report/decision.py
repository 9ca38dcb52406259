"""The first page: for each model a risk band, how strong the evidence is, and what to do next."""

from dataclasses import dataclass

from resperturb.report.collect import ReportedModel
from resperturb.report.gate import Decision, Outcome, decide
from resperturb.report.policy import Policy

BANDS: dict[Outcome, str] = {
    "failed": "above the policy",
    "unknown": "not known",
    "met": "within the policy, by what was tried",
}
ADVICE: dict[Outcome, str] = {
    "failed": "Do not release the weights, nor an interface to them, as they are.",
    "unknown": "Decide nothing yet: audit with shadow models, and with more candidates, first.",
    "met": "Nothing speaks against it among what was tried; a person who knows the data decides.",
}
RESIDUAL = (
    "A stronger attack, or one with more shadow models, may find more.",
    "Only membership was tested: not reconstruction, attribute inference, or what several releases tell together.",
    "Averages hide people: single records may be far more exposed than the AUC says.",
)


@dataclass(frozen=True)
class ModelDecision:
    """One line of the first page."""

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
        return ADVICE[self.decision.outcome]


def decision_of(model: ReportedModel, policy: Policy) -> ModelDecision:
    """Decide about one model by a policy."""
    audit = model.audit
    decision = decide(audit, model.guarantee, policy)
    evidence = "none: not audited"
    exposed = "not measured"
    if audit is not None:
        strength = "one training, no shadow models" if not audit.shadows.count else "shadow models"
        evidence = f"{strength}: {decision.tried}"
        most = audit.exposed
        if most is not None and most.metrics is not None:
            low, high = most.metrics.auc_interval
            exposed = f"AUC {most.metrics.auc:.3f} ({low:.3f} to {high:.3f}) on the {most.count} most exposed"
    return ModelDecision(model.name, decision, evidence, exposed)
