"""Training: one loop, resumable, reproducible from its seed."""

from resperturb.training.config import DataConfig, TrainConfig, make_config
from resperturb.training.loop import train
from resperturb.training.predict import accuracy, predict
from resperturb.training.run import Run, open_run

__all__ = ["DataConfig", "Run", "TrainConfig", "accuracy", "make_config", "open_run", "predict", "train"]
