"""Old names: audits are in :mod:`resperturb.auditing`, results in :mod:`resperturb.bounds`."""

from resperturb.lazy import lazy_names

__getattr__ = lazy_names(
    __name__,
    {},
    {
        "resperturb.attacks": ["AttackFailedError"],
        "resperturb.auditing": ["audit", "audit_predictions", "read_audit"],
        "resperturb.bounds": ["CANARIES", "GROUP", "RECORD", "AttackResult", "AttackScores", "AuditResult"],
        "resperturb.training": ["audit_run"],
    },
)
