"""The program of every process of the group in test_distributed.py; torchrun starts two."""

import json
import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed

from resperturb.errors import ResperturbError, UsageError
from resperturb.noise import standard_normal, training_key
from resperturb.training.checkpoint import Progress
from resperturb.training.config import TrainConfig
from resperturb.training.distributed import Execution, joined
from resperturb.training.inputs import load_inputs
from resperturb.training.loop import InterruptedTrainingError, Update, train
from resperturb.training.steps import Steps
from tests.conftest import tiny_config

# 60 records in batches of 7: the last batch has four, and shares are never equal.
PLAIN = {"batch_size": 7, "norm": "group", "label_smoothing": 0.1, "augment": True, "epochs": 2}
BATCH_NORM = {"epochs": 1, "batch_size": 59, "lr": 0.01}  # the last batch is one record: one share is empty
NOISY = {"perturbation": {"name": "additive", "gamma": 0.5}, "dropout": 0.1, "epochs": 20}
WITHOUT_PRIVACY = {"name": "dpsgd", "noise_multiplier": 0.0, "clip": None, "max_physical_batch": 4}
BFLOAT16 = {**BATCH_NORM, "precision": "bf16-mixed"}
DPSGD = {"method": WITHOUT_PRIVACY, "epochs": 2}
PRIVATE = {"method": {"name": "dpsgd", "noise_multiplier": 1.0}, "epochs": 1}
DRAWS = 20000


def config(**changes: object) -> TrainConfig:
    return tiny_config(**{"data": {"image_size": 8}, **changes})


def interrupt(update: Update) -> None:
    if update.step == 5:
        os.kill(os.getpid(), signal.SIGINT)


def message(error: type[ResperturbError], work) -> str:  # type: ignore[no-untyped-def]
    try:
        work()
    except error as found:
        return str(found)
    return "no error"


def main(folder: Path) -> None:
    said: dict[str, object] = {}
    train(config(**PLAIN), out=folder / "plain")
    train(config(**BATCH_NORM), out=folder / "batch_norm")
    train(config(**BFLOAT16), out=folder / "bfloat16")
    train(config(**DPSGD), out=folder / "dpsgd")
    train(config(**PRIVATE), out=folder / "private")
    train(config(**NOISY), out=folder / "noisy")
    train(config(**PLAIN), out=folder / "begun_by_one")
    with_ctrl_c = {"out": folder / "begun_by_two", "on_update": interrupt}
    said["interrupted"] = message(InterruptedTrainingError, lambda: train(config(**PLAIN), **with_ctrl_c))  # type: ignore[arg-type]
    of_the_batch = {"name": "additive", "gamma": 0.5, "scale": "batch_std"}
    said["batch_std"] = message(UsageError, lambda: train(config(perturbation=of_the_batch), runs=folder))

    with joined() as world:
        said["differ"] = message(UsageError, lambda: world.same("their rank", str(world.rank)))

        def fail_once() -> None:
            if world.rank == 1:
                raise UsageError("no such images.")

        said["together"] = message(UsageError, lambda: world.together(fail_once))
        said["first"] = message(UsageError, lambda: world.first(lambda: world.leads and config(epochs=0)))

        noisy = config(**NOISY)
        steps = Steps(noisy, load_inputs(noisy.data).members(), Execution(world=world))
        progress = Progress()
        for _ in range(3):
            steps.take(progress)
        said["random"] = torch.rand(1).item()  # where dropout would go on
        said["weights"] = [float(parameter.double().sum()) for parameter in steps.model.parameters()]
    torch.manual_seed(0)
    torch.save(standard_normal(torch.empty(DRAWS), training_key()), folder / f"noise{world.rank}.pt")
    (folder / f"said{world.rank}.json").write_text(json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
