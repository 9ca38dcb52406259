"""Many trainings at once: in processes of this machine or on a Ray cluster."""

from resperturb.engine.fanout import Engine, train_many
from resperturb.engine.local import DiedError, usable_cores
from resperturb.engine.local import local as local_engine
from resperturb.engine.ray import RayEngine

__all__ = ["DiedError", "Engine", "RayEngine", "local_engine", "train_many", "usable_cores"]
