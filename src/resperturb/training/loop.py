"""The training loop: one, short, resumable to the step, the same bit for bit whether or not it was interrupted.

In several processes all of them run this loop and stay at the same step. The first one alone touches the run on disk,
so that the others need not see that disk.
"""

import json
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from resperturb.data.images import ImageSet
from resperturb.data.rows import in_chunks
from resperturb.environment import environment
from resperturb.errors import ResperturbError, StoppedError, UsageError
from resperturb.files import plain, write_bytes
from resperturb.noise import generator_name
from resperturb.perturbation import weights
from resperturb.training.checkpoint import Checkpoint, EpochMetrics, Progress, read_checkpoint, save_checkpoint
from resperturb.training.config import TrainConfig
from resperturb.training.distributed import Execution, World, joined
from resperturb.training.inputs import Inputs, load_inputs
from resperturb.training.network import check_network, network_fingerprint
from resperturb.training.precision import settle_precision
from resperturb.training.predict import ClassScores, class_scores, normalize, predict
from resperturb.training.run import Run, TrainingResult, held_run
from resperturb.training.steps import StepOutcome, Steps

# How many times in a training the test images are looked at: often enough for a curve, rarely enough to be free. Of
# few training images that is less often, so that four are trained on for each that is looked at.
TEST_EVALUATIONS = 5
TRAINED_ON_PER_LOOK = 4


@dataclass(frozen=True)
class Update:
    """What a training tells its caller after every step."""

    step: int
    steps: int
    epoch: int
    metrics: EpochMetrics | None = None


class InterruptedTrainingError(StoppedError):
    """The training was asked to stop; what it had is saved."""


def train(
    config: TrainConfig,
    *,
    out: Path | None = None,
    runs: Path = Path("runs"),
    draws: int = 1,
    accelerator: str = "auto",
    on_update: Callable[[Update], None] = lambda update: None,
) -> Run:
    """Train what ``config`` says and return the finished run; one that is finished already is returned as it is.

    A run that was killed resumes from its last checkpoint and ends with the same weights. Under ``torchrun`` its
    processes train one model together; the first of them alone is sure to see the run on its disk.

    Args:
        out: The folder of the run; None for one under ``runs`` that is named by the hash of the configuration.
        draws: Noise draws that the final accuracies are averaged over.
        accelerator: ``auto`` for a GPU if there is one, ``cpu``, ``gpu``, ``cuda`` or ``mps``.
        on_update: Called after every step, in the first process.

    Raises:
        UsageError: The configuration cannot be trained, or the folder holds something else.
        InterruptedTrainingError: It was asked to stop; what it had is saved.
        ResperturbError: The training diverged, or a file could not be written.
    """
    with joined(accelerator) as world, ExitStack() as held:
        world.together(lambda: check_network(config))
        inputs = world.together(lambda: load_inputs(config.data))
        final = world.together(lambda: resolve_config(config, inputs))
        if final.precision == "auto":  # measured by one process for all
            final = world.first(lambda: settle_precision(final, inputs, out, runs, accelerator))
        world.same("what they train", final.digest)
        _check(final, world)

        def take_hold() -> tuple[Run, bool]:
            run = held.enter_context(held_run(final, out, runs))
            return run, run.finished

        run, finished = world.first(take_hold)
        if not finished:
            _train(run, inputs, draws, accelerator, on_update if world.leads else lambda update: None, world)
        return run


def _check(config: TrainConfig, world: World) -> None:
    if world.size > 1 and config.perturbation is not None and config.perturbation.mixes_records:
        raise UsageError(
            "noise of scale 'batch_std' follows the whole batch, of which each of several processes sees its share "
            "only; use the scale 'constant', or one process."
        )
    if world.size > 1 and config.loss is not None:
        raise UsageError(f"the loss {config.loss.name} is one of whole batches; train in one process.")


def resolve_config(config: TrainConfig, inputs: Inputs) -> TrainConfig:
    """Say everything that names a run: the very images, and what its method takes from their number."""
    bound = config.model_copy(update={"data": config.data.model_copy(update={"fingerprint": inputs.fingerprint})})
    bound = bound.method.settle(bound, inputs.members())
    changes: dict[str, Any] = {"network_fingerprint": network_fingerprint(config)}
    for name in ("mean", "std"):
        value = getattr(bound, name)
        if isinstance(value, tuple) and len(value) != inputs.train.channels:
            if inputs.train.channels != 1:
                raise UsageError(f"{name} has {len(value)} values, and the images {inputs.train.channels} channels.")
            changes[name] = round(sum(value) / len(value), 6)  # constants of colour images, for grey ones
    return bound.model_copy(update=changes)


def _train(
    run: Run,
    inputs: Inputs,
    draws: int,
    accelerator: str,
    on_update: Callable[[Update], None],
    world: World,
) -> None:
    config = run.config
    members = inputs.members()
    secret = None if config.seeded_noise else world.first(run.noise_secret)
    steps = config.method.steps(config, members, Execution(accelerator, world, secret))
    progress, best = _begin(run, steps, world)
    started = time.monotonic() - progress.seconds
    total = config.epochs * steps.per_epoch

    def save_progress() -> None:
        progress.seconds = time.monotonic() - started
        generator = _generator(steps)
        save_checkpoint(run.checkpoint_path, steps.model, steps.optimizer, progress, config.digest, generator, best)

    def end_epoch() -> EpochMetrics:
        metrics = _end_of_epoch(progress, steps, inputs)
        if progress.best_epoch == progress.epoch:
            best.update({name: value.detach().cpu().clone() for name, value in steps.model.state_dict().items()})
        save_progress()
        _write_metrics(run, progress.history)
        return metrics

    steps.model.train()
    with _stop_requests(alone=world.size == 1) as stop_requested:
        waited = world.first(lambda: progress.epoch - progress.best_epoch)
        while progress.epoch < config.epochs and (config.patience is None or waited < config.patience):
            epoch = progress.epoch
            while progress.step < steps.per_epoch:
                outcome = _take_step(steps, progress)
                on_update(Update(epoch * steps.per_epoch + progress.step, total, epoch))
                loss_sum, right, seen, stop = world.sum(*outcome, stop_requested())
                progress.loss_sum += loss_sum
                progress.correct += int(right)
                progress.seen += int(seen)
                if not math.isfinite(progress.loss_sum):
                    raise ResperturbError(
                        f"the loss is not finite any more in epoch {epoch + 1}, batch {progress.step}: the training "
                        f"has diverged. {_advice(config)}"
                    )
                if stop:
                    progress.epsilon = steps.epsilon(progress)
                    world.first(save_progress)
                    raise InterruptedTrainingError(
                        f"stopped in epoch {epoch + 1} of {config.epochs}, after batch {progress.step} of "
                        f"{steps.per_epoch}. Everything is saved in {run.path}: rerun the same command to resume."
                    )
            metrics, waited = world.first(lambda: (end_epoch(), progress.epoch - progress.best_epoch))
            progress.start_epoch(epoch + 1)
            on_update(Update((epoch + 1) * steps.per_epoch, total, epoch, metrics))
    with steps.released():
        world.first(lambda: _finish(run, steps, inputs, members, progress, best, draws))


def _begin(run: Run, steps: Steps, world: World) -> tuple[Progress, dict[str, torch.Tensor]]:
    """Go on from the checkpoint, in all processes alike, or start; also give the best weights so far."""
    found: Checkpoint | Progress = world.first(
        lambda: read_checkpoint(run.checkpoint_path, run.config.digest) or Progress()
    )
    best: dict[str, torch.Tensor] = {}
    if isinstance(found, Checkpoint):
        best = found.best
        if found.generator and found.generator != _generator(steps):
            raise ResperturbError(
                f"the noise of {run.path} was drawn by {found.generator}, and this machine has {_generator(steps)}, "
                "which draws other numbers from the same seed; resume it where it was started, or delete "
                f"{run.checkpoint_path} to train from the start."
            )
        try:
            found.restore(steps.model, steps.optimizer)
        except (RuntimeError, ValueError, KeyError, TypeError) as error:
            raise ResperturbError(
                f"{run.checkpoint_path} does not fit the network of this run; delete it to train from the start."
            ) from error
        found = found.progress
    if world.size not in found.processes:
        found.processes.append(world.size)
    return found, best


def _take_step(steps: Steps, progress: Progress) -> StepOutcome:
    """Take a step, or say why BatchNorm cannot."""
    try:
        return steps.take(progress)
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise UsageError(
            f"a batch of one image of {' by '.join(map(str, steps.members.size))} pixels leaves BatchNorm a single "
            f"value per channel, which has no spread: of {len(steps.members)} images in batches of "
            f"{steps.config.batch_size}. Choose another --batch-size, or --norm group."
        ) from error


def _end_of_epoch(progress: Progress, steps: Steps, inputs: Inputs) -> EpochMetrics:
    config, epoch = steps.config, progress.epoch
    seen = progress.seen  # DP-SGD may, rarely, draw nothing but empty batches from a few records
    metrics = EpochMetrics(
        epoch=epoch + 1,
        lr=config.learning_rate(epoch),
        loss=progress.loss_sum / seen if seen else None,
        train_accuracy=progress.correct / seen if seen else None,
    )
    if (epoch + 1) % epochs_between_looks(config.epochs, len(steps.members), len(inputs.test)) == 0:
        with steps.released() as model:
            scores = evaluate(model, inputs.test, config, draws=1)
        metrics = replace(metrics, **{f"test_{name}": value for name, value in vars(scores).items()})
    if config.patience is not None:
        with steps.released() as model:
            found = evaluate(model, inputs.train.select(inputs.validation), config, draws=1)
        metrics = replace(metrics, validation_accuracy=found.accuracy)
    progress.start_epoch(epoch + 1)
    progress.epsilon = steps.epsilon(progress)
    metrics = replace(metrics, epsilon=progress.epsilon)
    progress.history.append(metrics)
    return metrics


def epochs_between_looks(epochs: int, members: int, test: int) -> int:
    """Give the number of epochs after which the test accuracy is measured again.

    >>> epochs_between_looks(100, members=12_500, test=10_000), epochs_between_looks(20, members=2_500, test=10_000)
    (20, 20)
    """
    looks = epochs * members // (TRAINED_ON_PER_LOOK * test)
    return max(1, epochs // min(TEST_EVALUATIONS, max(1, looks)))


def evaluate(model: nn.Module, images: ImageSet, config: TrainConfig, draws: int) -> ClassScores:
    """Measure accuracy, AUROC, sensitivity and specificity on ``images``, with repeatable noise."""
    logits = predict(model, images.images, mean=config.mean, std=config.std, draws=draws, seed=config.seed)
    if not bool(torch.isfinite(logits).all()):
        raise ResperturbError(f"the network's answers are not finite: the training has diverged. {_advice(config)}")
    return class_scores(logits, images.labels)


def _finish(
    run: Run,
    steps: Steps,
    inputs: Inputs,
    members: ImageSet,
    progress: Progress,
    best: dict[str, torch.Tensor],
    draws: int,
) -> None:
    model, notes = steps.model, list(steps.notes)
    if best:
        model.load_state_dict(best)
        notes.append(
            f"Early stopping: the weights are those of epoch {progress.best_epoch} of {progress.epoch}, the best on "
            f"{len(inputs.validation)} validation images."
        )
    train_accuracy = evaluate(model, members, run.config, draws).accuracy
    last = progress.history[-1]
    if draws == 1 and not best and last.test_accuracy is not None:
        test = ClassScores(last.test_accuracy, last.test_auroc, last.test_sensitivity, last.test_specificity)
    else:
        test = evaluate(model, inputs.test, run.config, draws)
    weights.save(model, run.model_path)
    _write_metrics(run, progress.history)  # a process that was killed before it could may have left the last one out
    radius = getattr(run.config.perturbation, "clip_radius", None)
    result = TrainingResult(
        train_accuracy=train_accuracy,
        test_accuracy=test.accuracy,
        gap=train_accuracy - test.accuracy,
        auroc=test.auroc,
        sensitivity=test.sensitivity,
        specificity=test.specificity,
        notes=tuple(notes),
        draws=draws,
        processes=tuple(progress.processes),
        records=len(members),
        test_records=len(inputs.test),
        classes=tuple(members.classes),
        channels=members.channels,
        image_size=members.size,
        seconds=progress.seconds,
        environment={**environment(), **({"noise": noise} if (noise := _generator(steps)) else {})},
        inputs_clipped=None if radius is None else clipped_share(members, run.config, radius),
    )
    run.finish(result)


def _generator(steps: Steps) -> str:
    """Name what draws the noise of the perturbation; empty if there is none."""
    return generator_name(next(steps.model.parameters()).device) if steps.config.is_noisy else ""


def clipped_share(members: ImageSet, config: TrainConfig, radius: float) -> float:
    """Give the share of training images that ``clip_radius`` shortens, as they are without augmentation."""
    batches = (normalize(batch, config.mean, config.std) for batch in in_chunks(members.images, 100))
    norms = torch.cat([batch.flatten(1).norm(dim=1) for batch in batches])
    return float((norms > radius).double().mean())


def _write_metrics(run: Run, history: list[EpochMetrics]) -> None:
    lines = ({name: value for name, value in plain(entry).items() if value is not None} for entry in history)
    write_bytes(run.metrics_path, "".join(json.dumps(line) + "\n" for line in lines).encode())


def _advice(config: TrainConfig) -> str:
    gamma = getattr(config.perturbation, "gamma", None)
    return f"Try to lower --lr (it is {config.lr:g}){f' or --gamma (it is {gamma:g})' if gamma else ''}."


@contextmanager
def _stop_requests(alone: bool) -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C or SIGTERM into a polite request; a second one interrupts at once.

    One of several processes gets each request twice, from the terminal and from torchrun, and obeys once.
    """
    requested = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield requested.is_set
        return

    def ask(number: int, frame: Any) -> None:
        if requested.is_set() and alone:
            raise KeyboardInterrupt
        requested.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield requested.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
