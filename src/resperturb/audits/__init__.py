"""An audit: random membership, trained models, their answers, attacks, and what these show beside what is proven."""

from resperturb.audits.audit import Settings
from resperturb.audits.audit import audit as audit_run
from resperturb.audits.outcome import MembershipScores, load_scores, measures, roc_points, save_outcome
from resperturb.audits.shadow import LEARNING_RATES, attack_by_shadow, run_shadow_attack, shadow_attack, shadow_config
from resperturb.audits.shadows import learned_shadow_configs, shadow_configs
from resperturb.audits.verdict import lower_bound

__all__ = [
    "LEARNING_RATES",
    "MembershipScores",
    "Settings",
    "attack_by_shadow",
    "audit_run",
    "learned_shadow_configs",
    "load_scores",
    "lower_bound",
    "measures",
    "roc_points",
    "run_shadow_attack",
    "save_outcome",
    "shadow_attack",
    "shadow_config",
    "shadow_configs",
]
