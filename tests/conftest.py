"""What the tests share: one thread per worker, and one small trained and audited run."""

import os
import shutil
import signal
import sys
from collections.abc import Iterator

# Tests run in several processes; more threads than cores make each of them many times slower.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from pathlib import Path

import pytest
import torch
from hypothesis import settings

from resperturb.training.config import TrainConfig, make_config
from resperturb.training.run import Run

torch.set_num_threads(1)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what runs in its background deaf to Ctrl-C, and so would be every process that a test interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes depends on the machine, not on the code.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    """Forget what a test compiled: torch compiles a method a limited number of times."""
    yield
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()


def tiny_config(**changes: object) -> TrainConfig:
    """A training of a second: 60 images of the built-in sample in each quarter."""
    data = {"spec": "fashion-sample", "limit": 240, "part": "target_train", **changes.pop("data", {})}  # type: ignore[dict-item]
    return make_config(**{"data": data, "epochs": 3, "batch_size": 20, "seeded_noise": True, **changes})


def passed_off_as(run: Run, config: TrainConfig, folder: Path) -> Run:
    """A copy of a run that claims to be trained by another configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    liar = Run(folder, config)
    shutil.copy(run.model_path, liar.model_path)
    liar.finish(run.result)
    return liar


@pytest.fixture(scope="session")
def attacked_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that has memorised its images, audited without shadow models."""
    from resperturb.training.audited import audit_run
    from resperturb.training.loop import train

    folder: Path = tmp_path_factory.mktemp("attacked")
    run = train(tiny_config(epochs=40, data={"limit": 400}), runs=folder)
    audit_run(run, shadows=0, quiet=True)
    return run
