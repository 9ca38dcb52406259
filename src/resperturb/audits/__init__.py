"""Audits: random membership, trained models, their answers, attacks, and what these show beside what is proven."""

from resperturb.audits.of_predictions import audit_predictions
from resperturb.audits.of_run import audit_run
from resperturb.audits.of_training import audit
from resperturb.audits.result import KeptAttack, kept_attacks, read_audit
from resperturb.audits.shadow import learned_shadow_configs, run_shadow_attack, shadow_attack, shadow_config
from resperturb.audits.shadow_network import LEARNING_RATES, AttackFailedError
from resperturb.audits.shadows import shadow_configs

__all__ = [
    "LEARNING_RATES",
    "AttackFailedError",
    "KeptAttack",
    "audit",
    "audit_predictions",
    "audit_run",
    "kept_attacks",
    "learned_shadow_configs",
    "read_audit",
    "run_shadow_attack",
    "shadow_attack",
    "shadow_config",
    "shadow_configs",
]
