"""Many tasks at once: in processes of this machine or on a Ray cluster."""

from resperturb.engine.fanout import TrainTask, train_many
from resperturb.engine.local import local as local_engine
from resperturb.engine.local import usable_cores
from resperturb.engine.ray import RayEngine
from resperturb.engine.task import DiedError, Engine, Task

__all__ = ["DiedError", "Engine", "RayEngine", "Task", "TrainTask", "local_engine", "train_many", "usable_cores"]
