"""One step of training: take a batch, follow its gradient. The loop and the benchmark run this very code."""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from resperturb.data.images import ImageSet
from resperturb.errors import UsageError
from resperturb.noise import derive_key, keyed_generator
from resperturb.training.augment import crop_and_flip, resized_crop_and_flip
from resperturb.training.checkpoint import Progress
from resperturb.training.config import TrainConfig
from resperturb.training.distributed import ON_ITS_OWN, Execution, World, share_statistics
from resperturb.training.network import build_noisy
from resperturb.training.predict import normalize


def _device(accelerator: str, world: World) -> torch.device:
    if accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    if accelerator in ("auto", "gpu", "mps") and torch.backends.mps.is_available() and world.size == 1:
        return torch.device("mps")
    if accelerator not in ("auto", "cpu"):
        raise UsageError(f"there is no accelerator {accelerator!r} here; leave it at auto, or take cpu.")
    return torch.device("cpu")


def _precision(precision: str, device: torch.device) -> tuple[torch.dtype | None, Any]:
    """Give the type that layers compute in, and what scales gradients of 16 bits, which would be rounded to zero."""
    if precision == "32-true":
        return None, None
    if precision == "16-mixed" and device.type != "cpu":  # a processor has bf16 in its place
        return torch.float16, torch.amp.GradScaler(device.type)
    return torch.bfloat16, None


class StepOutcome(NamedTuple):
    """How a step went for the images that this process took: the sum of their losses, and how many were right."""

    loss_sum: float
    correct: int
    seen: int


class Steps:
    """A network in training on ``members`` by SGD; :meth:`take` is one step.

    What a step does follows from the weights, the optimizer, torch's random state, and the place in the training that
    ``Progress`` names: with these a training resumes as if it had never stopped.

    Of several processes each takes its share of every batch, and all end with the same weights. Their random state is
    set anew at each step, from the seed or the secret, the place and the rank; without a secret the noise is new
    whenever the training starts.
    """

    memory_format = torch.channels_last

    def __init__(self, config: TrainConfig, members: ImageSet, execution: Execution = ON_ITS_OWN) -> None:
        world, secret = execution.world, execution.secret
        self.config, self.members, self.world = config, members, world
        # What the noise of training comes from.
        self.origin = config.seed if config.seeded_noise else secret if secret is not None else os.urandom(16)
        self._images = members.images
        if isinstance(self._images, Tensor):
            self._images = self._images.contiguous(memory_format=self.memory_format)
        self.per_epoch = steps_per_epoch(config, members)
        self.device = _device(execution.accelerator, world)
        self._dtype, self._scaler = _precision(config.precision, self.device)
        torch.manual_seed(config.seed)
        model, self.notes = build_noisy(config, members)
        self.model: nn.Module = model.to(memory_format=self.memory_format)  # type: ignore[call-overload]
        if world.size > 1:
            self.model = share_statistics(self.model, self.device)
        self.optimizer = _optimizer(config, self.model)
        self._weights = class_weights(config, members)
        self._set_up()
        self._ordered_epoch = -1
        self._batches: tuple[Tensor, ...] = ()

    def _set_up(self) -> None:
        """Move the model to its device; among several processes, let their gradients be averaged."""
        self.module = self.model.to(self.device)
        if self.world.size > 1:
            place = None if self.device.type == "cpu" else [self.device.index]
            self.module = DistributedDataParallel(self.module, place)

    def take(self, progress: Progress) -> StepOutcome:
        """Take the next step and say how it went."""
        self._set_learning_rate(progress.epoch)
        if self.world.size > 1 or not self.config.seeded_noise:
            set_random_state(derive_key(b"step", self.origin, progress.epoch, progress.step, *self.world.mark))
        indices = self._shuffled(progress)
        augmentation = keyed_generator(derive_key(b"augmentation", self.config.seed, progress.epoch, progress.step))
        images, labels = self._batch(indices, augmentation)
        logits = self._logits(images)
        chosen = self.config.loss
        if chosen is None:
            loss = self._loss(logits, labels, len(indices))
        else:
            loss = chosen.of_batch(logits, labels, progress.epoch)
        self.optimizer.zero_grad()
        if self._scaler is None:
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
        else:
            self._scaler.scale(loss).backward()
            self._scaler.step(self.optimizer)
            self._scaler.update()
        progress.step += 1
        loss_sum = float(loss.detach()) * len(indices) / self.world.size
        return StepOutcome(loss_sum, correct(logits, labels), len(labels))

    @contextmanager
    def released(self) -> Iterator[nn.Module]:
        """Show the network as it is published, for as long as the context lasts."""
        yield self.model

    def _logits(self, images: Tensor) -> Tensor:
        with nullcontext() if self._dtype is None else torch.autocast(self.device.type, self._dtype):
            logits: Tensor = self.module(images)
        return logits.float()

    def _loss(self, logits: Tensor, labels: Tensor, batch: int) -> Tensor:
        """Give the loss whose gradient, averaged over the processes, is that of the mean over the whole ``batch``."""
        if self.world.size == 1 and self._weights is None:
            return F.cross_entropy(logits, labels, label_smoothing=self.config.label_smoothing)
        # The shares of a batch need not be equal, and one may be empty.
        return self._loss_sum(logits, labels) * (self.world.size / batch)

    def _loss_sum(self, logits: Tensor, labels: Tensor) -> Tensor:
        weights = None if self._weights is None else self._weights.to(logits.device)
        return F.cross_entropy(
            logits, labels, weight=weights, label_smoothing=self.config.label_smoothing, reduction="sum"
        )

    def epsilon(self, progress: Progress) -> float | None:
        """The epsilon that the method of training may claim after the steps taken so far; None if it claims none."""
        if not self.config.method.private:
            return None
        taken = progress.epoch * self.per_epoch + progress.step
        return self.config.method.guarantee(self.config, len(self.members), taken).claimed_epsilon

    def _set_learning_rate(self, epoch: int) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.learning_rate(epoch)

    def _shuffled(self, progress: Progress) -> Tensor:
        if self._ordered_epoch != progress.epoch:
            order = epoch_order(len(self.members), self.config.seed, progress.epoch)
            self._ordered_epoch, self._batches = progress.epoch, torch.split(order, self.config.batch_size)
        return self._batches[progress.step]

    def _batch(self, indices: Tensor, augmentation: torch.Generator) -> tuple[Tensor, Tensor]:
        """Fetch this process's share of the records at ``indices``."""
        share, whole = self.world.share(len(indices)), len(indices)
        indices = indices[share]
        images = self._images[indices]
        if self.config.augment != "none":
            augment = crop_and_flip if self.config.augment == "crop" else resized_crop_and_flip
            images = augment(images, augmentation, share, whole)
        images = images.to(self.device, memory_format=self.memory_format)
        labels = self.members.labels[indices].to(self.device)
        return normalize(images, self.config.mean, self.config.std), labels


def steps_per_epoch(config: TrainConfig, members: ImageSet) -> int:
    """Count the steps in which as many records are used as there are."""
    return math.ceil(len(members) / config.batch_size)


def _optimizer(config: TrainConfig, model: nn.Module) -> torch.optim.Optimizer:
    # Not fused: that would save a five-hundredth of a step, and goes wrong without a word where a gradient or a
    # restored momentum is not laid out as its weight is.
    if config.optimizer == "sgd":
        return torch.optim.SGD(
            model.parameters(), lr=config.lr, momentum=config.momentum, weight_decay=config.weight_decay
        )
    return torch.optim.AdamW(model.parameters(), lr=config.lr, weight_decay=config.weight_decay)


def class_weights(config: TrainConfig, members: ImageSet) -> Tensor | None:
    """Give the weight of each class in the loss: as told, or so that every class counts as much as another."""
    if config.class_weights is None:
        return None
    if config.class_weights != "balanced":
        if len(config.class_weights) != members.num_classes:
            raise UsageError(
                f"there are {len(config.class_weights)} class weights and {members.num_classes} classes "
                f"({', '.join(members.classes[:5])}{', ...' if members.num_classes > 5 else ''}); "
                "give one weight per class, or balanced."
            )
        return torch.tensor(config.class_weights)
    counts = torch.bincount(members.labels, minlength=members.num_classes).clamp(min=1)
    return len(members) / (members.num_classes * counts.float())


def epoch_order(count: int, seed: int, epoch: int) -> Tensor:
    """Shuffle ``count`` records for one epoch: a function of the seed and the epoch alone.

    >>> epoch_order(5, seed=0, epoch=0).equal(epoch_order(5, seed=0, epoch=0))
    True
    """
    return torch.randperm(count, generator=keyed_generator(derive_key(b"order", seed, epoch)))


def set_random_state(key: bytes) -> None:
    """Let all that torch draws from now on, on any device, follow from ``key``."""
    torch.set_rng_state(keyed_generator(key).get_state())
    if torch.cuda.is_available():
        torch.cuda.manual_seed(int.from_bytes(key[:8], "little") >> 1)


def correct(logits: Tensor, labels: Tensor) -> int:
    """Count the rows whose largest logit is at the label.

    >>> correct(torch.tensor([[1.0, 2.0], [2.0, 1.0]]), torch.tensor([1, 1]))
    1
    """
    return int((logits.detach().argmax(dim=1) == labels).sum())
