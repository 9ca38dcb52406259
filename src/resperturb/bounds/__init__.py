"""What an attack shows: how well it does, and the epsilon that this refutes. Pure functions of scores.

Higher scores mean *member* everywhere. Every lower bound states its delta, its confidence and its assumptions.
"""

from resperturb.bounds.attack_metrics import AttackMetrics, TruePositiveRate, attack_metrics
from resperturb.bounds.audit_result import CANARIES, GROUP, RECORD, AttackResult, AttackScores, AuditResult
from resperturb.bounds.comparison import Comparison
from resperturb.bounds.fdp import one_run_fdp as one_run_fdp
from resperturb.bounds.intervals import Interval, binomial_interval
from resperturb.bounds.metrics import RocCurve, auc, balanced_accuracy, roc_curve, roc_points
from resperturb.bounds.one_run import one_run
from resperturb.bounds.rates import Given, Ranks, clopper_pearson, gdp
from resperturb.bounds.registry import register_bound
from resperturb.bounds.result import Confusion, Guesses, LowerBound
from resperturb.bounds.scores import CanaryScores, check_scores, read_scores
from resperturb.bounds.summary import ScoreAudit, audit_scores

__all__ = [
    "CANARIES",
    "GROUP",
    "RECORD",
    "AttackMetrics",
    "AttackResult",
    "AttackScores",
    "AuditResult",
    "CanaryScores",
    "Comparison",
    "Confusion",
    "Given",
    "Guesses",
    "Interval",
    "LowerBound",
    "Ranks",
    "RocCurve",
    "ScoreAudit",
    "TruePositiveRate",
    "attack_metrics",
    "auc",
    "audit_scores",
    "balanced_accuracy",
    "binomial_interval",
    "check_scores",
    "clopper_pearson",
    "gdp",
    "one_run",
    "read_scores",
    "register_bound",
    "roc_curve",
    "roc_points",
]
