"""The scores of an audit's attacks: the one place where a report reads them."""

from dataclasses import dataclass

from resperturb.auditing.store import open_scores
from resperturb.bounds.audit_result import RECORD, AttackResult, AttackScores, AuditResult


@dataclass(frozen=True, eq=False)
class ScoredAttack:
    """An attack that was fixed beforehand with its scores on one kind of candidate: records, or else canaries."""

    result: AttackResult
    candidates: str
    scores: AttackScores

    @property
    def name(self) -> str:
        """The attack with the answers that it saw."""
        return self.result.full_name

    @property
    def auc(self) -> float:
        """The area under the ROC curve of these scores."""
        return self.result.metrics[self.candidates].auc


def scored_attacks(audit: AuditResult) -> list[ScoredAttack]:
    """Read the scores of the attacks that were fixed beforehand, the strongest first.

    Raises:
        ResperturbError: Scores are damaged, missing, or of another model.
    """
    if audit.folder is None:
        return []
    scores = open_scores(audit.folder, audit.digests.get("scores", ""))
    kinds = [(attack, RECORD if RECORD in attack.metrics else attack.kind) for attack in audit.fixed]
    found = [ScoredAttack(attack, kind, scores.pooled(attack.key, kind)) for attack, kind in kinds]
    return sorted(found, key=lambda one: -one.auc)
