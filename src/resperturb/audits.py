"""Old names: audits are in :mod:`resperturb.auditing`, and the audit of a run in :mod:`resperturb.training`."""

import importlib
import warnings
from typing import Any

_MOVED = {"audit": "auditing", "audit_predictions": "auditing", "read_audit": "auditing", "audit_run": "training"}


def __getattr__(name: str) -> Any:
    if name not in _MOVED:
        raise AttributeError(f"module 'resperturb.audits' has no attribute {name!r}")
    room = f"resperturb.{_MOVED[name]}"
    warnings.warn(f"import {name} from {room} instead of resperturb.audits", DeprecationWarning, stacklevel=2)
    return getattr(importlib.import_module(room), name)
