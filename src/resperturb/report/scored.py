"""The scores of an audit's attacks: the one place where a report reads them."""

from dataclasses import dataclass

from resperturb.bounds.audit_result import AttackResult, AttackScores, AuditResult
from resperturb.errors import ResperturbError


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
    from resperturb.audits.result import SCORES_FOLDER, kept_attacks

    if audit.folder is None:
        return []
    if "scores" in audit.digests:
        from resperturb.auditing.store import read_scores

        scores = read_scores(audit.folder, audit.digests["scores"])
        return [ScoredAttack(attack, scores.pooled(attack.key, attack.kind)) for attack in audit.fixed]
    kept = {one.result.key: one.scores for one in kept_attacks(audit.folder, audit.digests)}
    for attack in audit.fixed:
        if attack.key not in kept:
            raise ResperturbError(
                f"{audit.folder / SCORES_FOLDER / attack.key}.json is missing, and audit.json was made with it; run "
                "the audit again."
            )
    return [ScoredAttack(attack, kept[attack.key]) for attack in audit.fixed]
