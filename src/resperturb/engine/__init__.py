"""Many tasks at once: in processes of this machine or on a Ray cluster."""

import importlib
import warnings
from typing import Any

from resperturb.engine.local import local as local_engine
from resperturb.engine.local import usable_cores
from resperturb.engine.ray import RayEngine
from resperturb.engine.task import DiedError, Engine, Shared, Task

__all__ = ["DiedError", "Engine", "RayEngine", "Shared", "Task", "local_engine", "usable_cores"]

_MOVED = {"TrainTask": "resperturb.training.many", "train_many": "resperturb.training"}


def __getattr__(name: str) -> Any:
    if name not in _MOVED:
        raise AttributeError(f"module 'resperturb.engine' has no attribute {name!r}")
    warnings.warn(f"import {name} from {_MOVED[name]} instead of resperturb.engine", DeprecationWarning, stacklevel=2)
    return getattr(importlib.import_module(_MOVED[name]), name)
