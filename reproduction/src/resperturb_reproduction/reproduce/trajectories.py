"""Trainings that are measured every few epochs, so that a setting can be told from a passage.

A network on its way to memorising its images passes through many pairs of training and test accuracy. That a reading
of the paper meets a printed row says something only if the training ends there.
"""

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import TypeAdapter
from safetensors import safe_open
from torch import Tensor, nn

from resperturb.data import ImageSet
from resperturb.files import plain, write_bytes
from resperturb.perturbation import noise_off
from resperturb.training import (
    Inputs,
    Run,
    TrainConfig,
    accuracy,
    build_model,
    load_inputs,
    open_run,
    predict,
    train,
)

EVERY = 5
# Of each part, at most: a look at 12,500 images with 16 draws would take longer than the epochs between two looks.
IMAGES = 5_000
AVERAGED_IMAGES = 1_000
DRAWS = 16


@dataclass(frozen=True)
class Look:
    """What a network in training does after an epoch, its noise on unless said.

    Attributes:
        epoch: The number of epochs it was trained for.
        train_accuracy: On the first ``IMAGES`` of its training images, one draw.
        test_accuracy: On as many test images, one draw.
        auc: Of a threshold on the largest probability, training images against those of the held-out quarter.
        averaged_test_accuracy: Of the mean of ``DRAWS`` draws, on the first ``AVERAGED_IMAGES`` test images.
        one_draw_there: Of one draw, on these.
        noiseless_test_accuracy: With the noise switched off.
    """

    epoch: int
    train_accuracy: float
    test_accuracy: float
    auc: float
    averaged_test_accuracy: float | None = None
    one_draw_there: float | None = None
    noiseless_test_accuracy: float | None = None


def trajectory_path(folder: Path) -> Path:
    """Name the file of a run's trajectory."""
    return folder / "reproduce" / "trajectory.jsonl"


def read_trajectory(folder: Path) -> tuple[Look, ...]:
    """Read what was measured of a run while it was trained; nothing if it was not watched."""
    path = trajectory_path(folder)
    if not path.exists():
        return ()
    return tuple(TypeAdapter(Look).validate_json(line) for line in path.read_text().splitlines())


def watch(config: TrainConfig, folder: Path, on_look: Callable[[Look], None] = lambda look: None) -> Run:
    """Train like :func:`resperturb.training.train`, and measure the network every ``EVERY`` epochs.

    The measurements change nothing in the training. Stopped or killed, it resumes from its last checkpoint and
    measures what it had not measured yet.

    Args:
        config: What to train, on the part ``target_train``.
        folder: The folder of the run.
        on_look: Called after every measurement.

    Returns:
        The finished run.
    """
    inputs = load_inputs(config.data)

    def look() -> None:
        path = folder / "checkpoint.safetensors"
        if not path.exists():
            return
        epoch, weights = _after_an_epoch(path)
        seen = read_trajectory(folder)
        if epoch % EVERY or any(one.epoch == epoch for one in seen):
            return
        run = open_run(folder)
        with torch.random.fork_rng(devices=[]):  # the next step of the training draws from it
            model = build_model(run.config, inputs.members())
            model.load_state_dict(weights)
            found = _measured(model, run.config, inputs, epoch)
        lines = (json.dumps(plain(one)) + "\n" for one in (*seen, found))
        trajectory_path(folder).parent.mkdir(exist_ok=True)
        write_bytes(trajectory_path(folder), "".join(lines).encode())
        on_look(found)

    look()  # a training that was killed while it was measured
    return train(config, out=folder, on_update=lambda update: look() if update.metrics else None)


def _after_an_epoch(checkpoint: Path) -> tuple[int, dict[str, Tensor]]:
    """Read the epoch and the weights of a checkpoint; epoch -1 in the midst of one."""
    with safe_open(checkpoint, framework="pt") as file:
        progress = json.loads(file.metadata()["progress"])
        names = [name for name in file.keys() if name.startswith("model.")]  # noqa: SIM118 - a method of its own
        weights = {name.removeprefix("model."): file.get_tensor(name) for name in names}
    return -1 if progress["step"] else progress["epoch"], weights


def _measured(model: nn.Module, config: TrainConfig, inputs: Inputs, epoch: int) -> Look:
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    members, out = inputs.members(), inputs.train.select(inputs.quarters.target_out)

    def answers(images: ImageSet, count: int = IMAGES, draws: int = 1, silent: bool = False) -> Tensor:
        with noise_off(model) if silent else nullcontext():
            return predict(
                model,
                images.images[:count],
                mean=config.mean,
                std=config.std,
                draws=draws,
                seed=config.seed,
            )

    def share_right(logits: Tensor, images: ImageSet) -> float:
        return accuracy(logits, images.labels[: len(logits)])

    of_members, of_test = answers(members), answers(inputs.test)
    averaged = one_draw = noiseless = None
    if config.is_noisy:
        answered = answers(inputs.test, AVERAGED_IMAGES, DRAWS)
        averaged, one_draw = (share_right(logits, inputs.test) for logits in (answered, of_test[: len(answered)]))
        noiseless = share_right(answers(inputs.test, silent=True), inputs.test)
    return Look(
        epoch=epoch,
        train_accuracy=share_right(of_members, members),
        test_accuracy=share_right(of_test, inputs.test),
        auc=confidence_auc(of_members, answers(out)),
        averaged_test_accuracy=averaged,
        one_draw_there=one_draw,
        noiseless_test_accuracy=noiseless,
    )


def confidence_auc(members: Tensor, others: Tensor) -> float:
    """Measure how well a threshold on the largest probability tells members from others.

    Args:
        members: Logits of members.
        others: Logits of others.

    Returns:
        The AUC.

    >>> sure, unsure = torch.tensor([[9.0, 0.0], [1.0, 0.0]]), torch.tensor([[0.5, 0.0]])
    >>> confidence_auc(sure, unsure), confidence_auc(unsure, unsure)
    (1.0, 0.5)
    """
    from sklearn.metrics import roc_auc_score

    scores = torch.cat([logits.double().softmax(dim=1).amax(dim=1) for logits in (members, others)])
    return float(roc_auc_score([1] * len(members) + [0] * len(others), scores.numpy()))
