"""Training: one loop, resumable, reproducible from its seed."""

from typing import TYPE_CHECKING

from resperturb.environment import environment
from resperturb.extras import needed
from resperturb.lazy import lazy_names

needed("train", "training")

from resperturb.training.predict import accuracy, normalize, predict  # at once: a module is called predict too

if TYPE_CHECKING:
    from resperturb.training.audited import AskedRun, RunTrainee, audit_run
    from resperturb.training.checkpoint import Progress
    from resperturb.training.config import CanaryConfig, DataConfig, TrainConfig, make_config
    from resperturb.training.distributed import Execution
    from resperturb.training.inputs import Inputs, load_inputs
    from resperturb.training.loop import InterruptedTrainingError, train
    from resperturb.training.many import train_many
    from resperturb.training.method import Method, method_of, register_method
    from resperturb.training.methods.dpsgd import Dpsgd, DpsgdSteps
    from resperturb.training.network import build_model, network_fingerprint
    from resperturb.training.run import Run, open_run
    from resperturb.training.steps import Steps

__all__ = [
    "AskedRun",
    "CanaryConfig",
    "DataConfig",
    "Dpsgd",
    "DpsgdSteps",
    "Execution",
    "Inputs",
    "InterruptedTrainingError",
    "Method",
    "Progress",
    "Run",
    "RunTrainee",
    "Steps",
    "TrainConfig",
    "accuracy",
    "audit_run",
    "build_model",
    "environment",
    "load_inputs",
    "make_config",
    "method_of",
    "network_fingerprint",
    "normalize",
    "open_run",
    "predict",
    "register_method",
    "train",
    "train_many",
]

# To open a finished run takes few of these.
_ROOMS = {
    "audited": ["AskedRun", "RunTrainee", "audit_run"],
    "checkpoint": ["Progress"],
    "config": ["CanaryConfig", "DataConfig", "TrainConfig", "make_config"],
    "distributed": ["Execution"],
    "inputs": ["Inputs", "load_inputs"],
    "loop": ["InterruptedTrainingError", "train"],
    "many": ["train_many"],
    "method": ["Method", "method_of", "register_method"],
    "methods.dpsgd": ["Dpsgd", "DpsgdSteps"],
    "network": ["build_model", "network_fingerprint"],
    "run": ["Run", "open_run"],
    "steps": ["Steps"],
}
if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _ROOMS)
