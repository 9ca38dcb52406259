"""The scores of an audit's attacks: the one place where a report reads them."""

from dataclasses import dataclass

from resperturb.auditing.store import read_scores
from resperturb.bounds.audit_result import AttackResult, AttackScores, AuditResult


@dataclass(frozen=True, eq=False)
class ScoredAttack:
    """An attack that was fixed beforehand with its scores, on the kind of candidate that it is judged by."""

    result: AttackResult
    scores: AttackScores

    @property
    def name(self) -> str:
        """The attack with the answers that it saw."""
        return self.result.full_name

    @property
    def candidates(self) -> str:
        """The kind of its candidates: ``record`` or a kind of canary."""
        return self.result.kind


def scored_attacks(audit: AuditResult) -> list[ScoredAttack]:
    """Read the scores of the attacks that were fixed beforehand, the strongest first.

    Raises:
        ResperturbError: Scores are damaged, missing, or of another model.
    """
    if audit.folder is None:
        return []
    scores = read_scores(audit.folder, audit.digests.get("scores", ""))
    return [ScoredAttack(attack, scores.pooled(attack.key, attack.kind)) for attack in audit.fixed]
