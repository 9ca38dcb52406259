"""Audits: whatever fits models on given rows and answers queries about rows can be audited, by one pipeline."""

from typing import TYPE_CHECKING

from resperturb.lazy import lazy_names

if TYPE_CHECKING:
    from resperturb.auditing.api import audit, audit_model, audit_predictions, audit_trainee
    from resperturb.auditing.assess import Settings
    from resperturb.auditing.candidates import Candidates, candidates_of
    from resperturb.auditing.design import Design, given, leave_one_out, one_target
    from resperturb.auditing.function import Function
    from resperturb.auditing.store import Scores, open_scores, read_audit
    from resperturb.auditing.trainee import Fitted, Job, Trainee

__all__ = [
    "Candidates",
    "Design",
    "Fitted",
    "Function",
    "Job",
    "Scores",
    "Settings",
    "Trainee",
    "audit",
    "audit_model",
    "audit_predictions",
    "audit_trainee",
    "candidates_of",
    "given",
    "leave_one_out",
    "one_target",
    "open_scores",
    "read_audit",
]

_ROOMS = {
    "api": ["audit", "audit_model", "audit_predictions", "audit_trainee"],
    "assess": ["Settings"],
    "candidates": ["Candidates", "candidates_of"],
    "design": ["Design", "given", "leave_one_out", "one_target"],
    "function": ["Function"],
    "store": ["Scores", "open_scores", "read_audit"],
    "trainee": ["Fitted", "Job", "Trainee"],
}
# In 0.2 this was the name of resperturb.bounds.
_MOVED = (
    "AttackMetrics Confusion Given Guesses Interval LowerBound Ranks RocCurve ScoreAudit TruePositiveRate "
    "attack_metrics auc audit_scores balanced_accuracy binomial_interval check_scores clopper_pearson gdp one_run "
    "one_run_fdp read_scores roc_curve roc_points"
)
if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _ROOMS, {"resperturb.bounds": _MOVED.split()})
