"""Audits: whatever fits models on given rows and answers queries about rows can be audited, by one pipeline."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from resperturb.auditing.api import audit, audit_model, audit_predictions, audit_trainee
    from resperturb.auditing.assess import Settings
    from resperturb.auditing.candidates import Candidates, candidates_of
    from resperturb.auditing.design import Design, given, leave_one_out, one_target
    from resperturb.auditing.function import Function
    from resperturb.auditing.store import Scores, read_audit, read_scores
    from resperturb.auditing.trainee import Fitted, Job, Trainee

_ROOMS = {
    "Candidates": "candidates",
    "Design": "design",
    "Fitted": "trainee",
    "Function": "function",
    "Job": "trainee",
    "Scores": "store",
    "Settings": "assess",
    "Trainee": "trainee",
    "audit": "api",
    "audit_model": "api",
    "audit_predictions": "api",
    "audit_trainee": "api",
    "candidates_of": "candidates",
    "given": "design",
    "leave_one_out": "design",
    "one_target": "design",
    "read_audit": "store",
    "read_scores": "store",
}
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
    "read_audit",
    "read_scores",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _ROOMS:
            raise AttributeError(f"module 'resperturb.auditing' has no attribute {name!r}")
        return getattr(importlib.import_module(f"resperturb.auditing.{_ROOMS[name]}"), name)
