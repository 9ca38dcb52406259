"""The training loop: one, short, resumable to the step, the same bit for bit whether or not it was interrupted."""

import fcntl
import json
import math
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from resperturb import weights
from resperturb.data.images import ImageSet
from resperturb.errors import ResperturbError
from resperturb.files import write_bytes, write_json
from resperturb.models.build import build
from resperturb.noise import derive_key
from resperturb.perturbation import clipping_of, perturb
from resperturb.training.augment import crop_and_flip
from resperturb.training.checkpoint import Progress, load_checkpoint, save_checkpoint
from resperturb.training.config import TrainConfig
from resperturb.training.inputs import Inputs, fingerprint, load_inputs
from resperturb.training.predict import accuracy, normalize, predict
from resperturb.training.run import Run, create_run, environment

# How many times in a training the test images are looked at: often enough for a curve, rarely enough to be free.
TEST_EVALUATIONS = 5
# Compiling takes about a minute; trainings of more steps than this win it back.
STEPS_WORTH_COMPILING = 1000


@dataclass(frozen=True)
class Update:
    """What a training tells its caller after every step."""

    step: int
    steps: int
    epoch: int
    metrics: dict[str, Any] | None = None


class InterruptedTrainingError(ResperturbError):
    """The training was asked to stop; what it had is saved."""


def train(
    config: TrainConfig,
    *,
    out: Path | None = None,
    runs: Path = Path("runs"),
    draws: int = 1,
    accelerator: str = "auto",
    compiled: bool | None = None,
    on_update: Callable[[Update], None] = lambda update: None,
) -> Run:
    """Train what ``config`` says and return the finished run; one that is finished already is returned as it is.

    ``draws`` is the number of noise draws that the final accuracies are averaged over. ``compiled`` runs the step
    through ``torch.compile``; left out, that is done for long trainings where a C++ compiler is there. A run that was
    killed goes on from its last checkpoint and ends with the same weights.
    """
    inputs = load_inputs(config.data)
    config = with_fingerprint(config, inputs)
    run = create_run(config, out, runs)
    with _only_process(run):
        if not run.finished:
            _train(run, inputs, draws, accelerator, compiled, on_update)
    return run


def with_fingerprint(config: TrainConfig, inputs: Inputs) -> TrainConfig:
    """Bind a configuration to the very images it is used with."""
    return config.model_copy(update={"data": config.data.model_copy(update={"fingerprint": fingerprint(inputs)})})


def _train(
    run: Run,
    inputs: Inputs,
    draws: int,
    accelerator: str,
    compiled: bool | None,
    on_update: Callable[[Update], None],
) -> None:
    from lightning_fabric import Fabric

    config = run.config
    members = inputs.members(config.data.part)
    fabric = Fabric(accelerator=accelerator, devices=1)
    torch.manual_seed(config.seed)
    model = build_model(config, members).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(
        model.parameters(), lr=config.lr, momentum=config.momentum, weight_decay=config.weight_decay
    )
    steps = math.ceil(len(members) / config.batch_size)
    if worth_compiling(config.epochs * steps) if compiled is None else compiled:
        model.compile(dynamic=False)
    module, optimizer = fabric.setup(model, optimizer)
    progress = load_checkpoint(run.checkpoint_path, model, optimizer, config.digest) or Progress()
    started = time.monotonic() - progress.seconds

    def save_progress() -> None:
        progress.seconds = time.monotonic() - started
        save_checkpoint(run.checkpoint_path, model, optimizer, progress, config.digest)

    with _stop_requests() as stop_requested:
        while progress.epoch < config.epochs:
            epoch = progress.epoch
            for group in optimizer.param_groups:
                group["lr"] = config.learning_rate(epoch)
            model.train()
            batches = torch.split(epoch_order(len(members), config.seed, epoch), config.batch_size)
            for step in range(progress.step, steps):
                images, labels = _batch(members, batches[step], config, (epoch, step), fabric.device)
                logits = module(images)
                loss = F.cross_entropy(logits, labels, label_smoothing=config.label_smoothing)
                optimizer.zero_grad()
                fabric.backward(loss)
                optimizer.step()
                progress.step = step + 1
                progress.seen += len(labels)
                progress.loss_sum += float(loss.detach()) * len(labels)
                progress.correct += int((logits.detach().argmax(dim=1) == labels).sum())
                if not math.isfinite(progress.loss_sum):
                    raise ResperturbError(_not_finite(config, epoch, step))
                on_update(Update(epoch * steps + step + 1, config.epochs * steps, epoch))
                if stop_requested():
                    save_progress()
                    raise InterruptedTrainingError(
                        f"stopped in epoch {epoch + 1} of {config.epochs}, after batch {step + 1} of {steps}. "
                        f"Everything is saved in {run.path}: the same command goes on from there."
                    )
            metrics = _end_of_epoch(progress, model, inputs, config)
            save_progress()
            _write_metrics(run, progress.history)
            on_update(Update((epoch + 1) * steps, config.epochs * steps, epoch, metrics))
    _finish(run, model, inputs, members, progress, draws)


def worth_compiling(steps: int) -> bool:
    """Whether ``torch.compile`` would pay: a long training, and a C++ compiler to do it with."""
    compiler = os.environ.get("CXX", "g++")
    return steps >= STEPS_WORTH_COMPILING and shutil.which(compiler) is not None


def build_model(config: TrainConfig, images: ImageSet) -> nn.Module:
    """Build the network of ``config`` for ``images``, with its noise, from torch's global generator."""
    model = build(
        config.model,
        num_classes=images.num_classes,
        in_channels=images.channels,
        norm=config.norm,
        skip=config.skip,
    )
    strategy = config.strategy
    return model if strategy is None else perturb(model, strategy)


def epoch_order(count: int, seed: int, epoch: int) -> Tensor:
    """Shuffle ``count`` records for one epoch: a function of the seed and the epoch alone.

    >>> epoch_order(5, seed=0, epoch=0).equal(epoch_order(5, seed=0, epoch=0))
    True
    """
    return torch.randperm(count, generator=_generator(b"order", seed, epoch))


def _generator(*parts: bytes | int) -> torch.Generator:
    return torch.Generator().manual_seed(int.from_bytes(derive_key(*parts)[:8], "little"))


def _batch(
    members: ImageSet, indices: Tensor, config: TrainConfig, place: tuple[int, int], device: torch.device
) -> tuple[Tensor, Tensor]:
    images = members.images[indices]
    if config.augment:
        images = crop_and_flip(images, _generator(b"augmentation", config.seed, *place))
    images = images.to(device, memory_format=torch.channels_last)
    return normalize(images, config.mean, config.std), members.labels[indices].to(device)


def _end_of_epoch(progress: Progress, model: nn.Module, inputs: Inputs, config: TrainConfig) -> dict[str, Any]:
    epoch = progress.epoch
    metrics: dict[str, Any] = {
        "epoch": epoch + 1,
        "loss": progress.loss_sum / progress.seen,
        "train_accuracy": progress.correct / progress.seen,
        "lr": config.learning_rate(epoch),
    }
    if (epoch + 1) % max(1, config.epochs // TEST_EVALUATIONS) == 0:
        metrics["test_accuracy"] = measure(model, inputs.test, config, draws=1)
    progress.history.append(metrics)
    progress.epoch, progress.step = epoch + 1, 0
    progress.loss_sum, progress.correct, progress.seen = 0.0, 0, 0
    return metrics


def measure(model: nn.Module, images: ImageSet, config: TrainConfig, draws: int) -> float:
    """Measure the accuracy on ``images``, with repeatable noise."""
    logits = predict(model, images.images, mean=config.mean, std=config.std, draws=draws, seed=config.seed)
    return accuracy(logits, images.labels)


def _finish(run: Run, model: nn.Module, inputs: Inputs, members: ImageSet, progress: Progress, draws: int) -> None:
    clipped, clippable = clipping_of(model)
    train_accuracy = measure(model, members, run.config, draws)
    test_accuracy = measure(model, inputs.test, run.config, draws)
    weights.save(model, run.model_path)
    result = {
        "train_accuracy": train_accuracy,
        "test_accuracy": test_accuracy,
        "gap": train_accuracy - test_accuracy,
        "draws": draws,
        "records": len(members),
        "test_records": len(inputs.test),
        "classes": list(members.classes),
        "channels": members.channels,
        "image_size": list(members.size),
        "seconds": progress.seconds,
        "environment": environment(),
    }
    if clippable:
        result["inputs_clipped"] = clipped / clippable
    write_json(run.result_path, result)
    run.checkpoint_path.unlink(missing_ok=True)


def _write_metrics(run: Run, history: list[dict[str, Any]]) -> None:
    write_bytes(run.metrics_path, "".join(json.dumps(entry) + "\n" for entry in history).encode())


def _not_finite(config: TrainConfig, epoch: int, step: int) -> str:
    advice = f"lower --lr (it is {config.lr:g})"
    if config.strategy is not None and config.strategy.gamma > 0:
        advice += f" or --gamma (it is {config.strategy.gamma:g})"
    return (
        f"the loss is not finite any more in epoch {epoch + 1}, batch {step + 1}: the training has diverged. "
        f"Try to {advice}."
    )


@contextmanager
def _stop_requests() -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C or SIGTERM into a polite request; a second one interrupts at once."""
    requested = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield requested.is_set
        return

    def ask(number: int, frame: Any) -> None:
        if requested.is_set():
            raise KeyboardInterrupt
        requested.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield requested.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _only_process(run: Run) -> Iterator[None]:
    """Hold the run for this process; the lock is the kernel's, so a killed process leaves none behind."""
    try:
        handle = os.open(run.path / ".lock", os.O_CREAT | os.O_RDWR)
    except OSError as error:
        raise ResperturbError(f"cannot write in {run.path}: {error.strerror}.") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ResperturbError(f"another process is training {run.path}; wait for it or stop it.") from None
        yield
    finally:
        os.close(handle)
