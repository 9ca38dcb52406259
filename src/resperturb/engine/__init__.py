"""Many tasks at once: in processes of this machine or on a Ray cluster."""

from typing import TYPE_CHECKING

from resperturb.engine.local import local as local_engine
from resperturb.engine.local import usable_cores
from resperturb.engine.task import DiedError, Engine, Shared, Task
from resperturb.lazy import lazy_names

if TYPE_CHECKING:
    from resperturb.engine.ray import RayEngine

__all__ = ["DiedError", "Engine", "RayEngine", "Shared", "Task", "local_engine", "usable_cores"]

_MOVED = {"resperturb.training.many": ["TrainTask"], "resperturb.training": ["train_many"]}
if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, {"ray": ["RayEngine"]}, _MOVED)
