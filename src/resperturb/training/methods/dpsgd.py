"""DP-SGD: clip each record's gradient, add noise to the sum, and state what that proves.

The gradients of single records are those of :mod:`resperturb.training.grad_sample`, Opacus clips them, the noise is
this package's, and the accounting is :mod:`resperturb.privacy.dpsgd`. Batches are Poisson samples, as the accounting
requires: each record joins each batch at random, independently. So batches differ in size, and an empty one is a step
too, of noise alone.

Several processes draw the same sample of all records and share it out. The first one adds the noise, once, to the sum
over all of them, so the guarantee does not depend on their number.

Two options of De et al. 2022 (arXiv:2204.13650) cost no privacy. A record's gradient may be the mean over several
augmented copies, which is clipped once. The published weights may be an average over the steps, which is computed
from noisy weights alone.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from resperturb.data.images import ImageSet
from resperturb.errors import UsageError
from resperturb.noise import derive_key, keyed_generator, noisy_sum
from resperturb.privacy.dpsgd import PUBLIC_COUNT, calibrate_dpsgd, dpsgd_guarantee
from resperturb.privacy.guarantee import Assumption, Guarantee
from resperturb.privacy.length import training_length
from resperturb.training.checkpoint import Progress
from resperturb.training.config import TrainConfig
from resperturb.training.distributed import ON_ITS_OWN, Execution
from resperturb.training.grad_sample import grad_sample_hooks
from resperturb.training.method import Method, PositiveOrNone, register_method
from resperturb.training.steps import StepOutcome, Steps, correct, set_random_state, steps_per_epoch

# Stands for a clipping norm that is never reached: Opacus would multiply an infinite one by a noise of zero.
_NEVER_CLIPS = torch.finfo(torch.float32).max


@register_method("dpsgd")
class Dpsgd(Method):
    """How DP-SGD clips and noises gradients; the defaults are the paper's.

    ``clip`` is None for no clipping. ``target_epsilon`` is replaced by the noise that gives it once the number of
    records is known. A record's gradient is the mean over its augmented copies.

    >>> Dpsgd().noise_multiplier
    1.1
    """

    title: ClassVar = "DP-SGD"
    private: ClassVar = True
    channels_last: ClassVar = False
    relative_cost: ClassVar = 3.0
    defaults: ClassVar = {"norm": "group", "schedule": "quarter"}

    noise_multiplier: Annotated[float, Field(ge=0)] | None = Field(
        default=None, description="Noise on the gradients, in multiples of --clip; 1.1."
    )
    target_epsilon: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="The epsilon to give: of dp-head 3; of dpsgd instead of the noise."
    )
    delta: Annotated[float, Field(gt=0, lt=1)] = Field(default=1e-5, description="The delta of epsilon; 1e-5.")
    clip: PositiveOrNone = Field(
        default=1.0, description="Largest norm of one image's gradient; 1.0, or inf; of dp-head 0.1."
    )
    max_physical_batch: Annotated[int, Field(gt=0)] = Field(default=64, description="Most images at once; 64.")
    augment_multiplicity: Annotated[int, Field(gt=0)] = Field(
        default=1, description="dpsgd: augmented copies of each image in a step; 1."
    )
    ema: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None, description="dpsgd: publish averaged weights that decay by this per step: 0.999."
    )

    @model_validator(mode="before")
    @classmethod
    def _paper_noise(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("noise_multiplier") is values.get("target_epsilon") is None:
            return {**values, "noise_multiplier": 1.1}
        return values

    @model_validator(mode="after")
    def _consistent(self) -> "Dpsgd":
        if self.noise_multiplier is not None and self.target_epsilon is not None:
            raise UsageError("the noise is either given (noise_multiplier) or found (target_epsilon); drop one.")
        if self.clip is None and self.noise_multiplier != 0:
            raise UsageError(
                "gradients that are not clipped have no norm for the noise to be a multiple of; give a finite clip, "
                "or a noise_multiplier of 0 for a run without privacy."
            )
        return self

    @property
    def label(self) -> str:
        """Give the noise multiplier."""
        return f"DP-SGD {self.noise_multiplier or 0:g}"

    def describe(self) -> str:
        """Give noise and clipping."""
        clip = "no clipping" if self.clip is None else f"gradients clipped to {self.clip:g}"
        copies = f", {self.augment_multiplicity} augmented copies" if self.augment_multiplicity > 1 else ""
        average = "" if self.ema is None else f", weights averaged ({self.ema:g})"
        return f"DP-SGD, noise {self.noise_multiplier or 0:g}, {clip}{copies}{average}"

    def check(self, config: TrainConfig) -> None:
        """Refuse what lets records of a batch see each other."""
        if config.norm == "batch":
            raise UsageError(
                "DP-SGD bounds what each record does to the weights, and BatchNorm lets every record of a batch "
                "change the gradients of the others, so no epsilon would hold; pass --norm group."
            )
        if config.perturbation is not None and config.perturbation.mixes_records:
            raise UsageError(
                "DP-SGD bounds what each record does to the weights, and noise of scale 'batch_std' depends on the "
                "whole batch, so no epsilon would hold; use the scale 'constant'."
            )
        if config.loss is not None:
            raise UsageError(
                f"DP-SGD bounds the gradient of each record's cross-entropy; leave the loss {config.loss.name} out."
            )
        if config.class_weights == "balanced":
            raise UsageError(
                "balanced class weights are computed from the labels of the records, which DP-SGD must not look at; "
                "give weights that you know from elsewhere, one per class."
            )
        if self.augment_multiplicity > 1 and config.augment == "none" and not config.is_noisy:
            raise UsageError(
                "copies of an image differ only if they are augmented; add --augment crop, or leave "
                "--augment-multiplicity out."
            )
        if config.precision == "16-mixed":
            raise UsageError("16-bit floats need a loss that is scaled, which clipping undoes; use bf16-mixed.")

    def settle(self, config: TrainConfig, members: ImageSet) -> TrainConfig:
        """Replace a wanted epsilon by the noise that gives it, now that the records are there to be counted."""
        from resperturb.training.run import check_public_start

        if self.noise_multiplier != 0:
            check_public_start(config)
        steps = config.epochs * steps_per_epoch(config, members)
        whole = training_length(steps=steps, batch_size=config.batch_size, records=len(members))
        if self.target_epsilon is None:
            return config
        found = calibrate_dpsgd(epsilon=self.target_epsilon, delta=self.delta, length=whole)
        # Up to the next ten-thousandth, so that the same wish has the same name on every machine.
        noise = math.ceil(found.details["noise_multiplier"] * 1e4) / 1e4
        settled = self.model_copy(update={"noise_multiplier": noise, "target_epsilon": None})
        return config.model_copy(update={"method": settled})

    def steps(self, config: TrainConfig, members: ImageSet, execution: Execution) -> "DpsgdSteps":
        """Build the network, with the hooks that take the gradients of single records."""
        return DpsgdSteps(config, members, execution)

    def guarantee(self, config: TrainConfig, records: int, steps: int, delta: float | None = None) -> Guarantee:
        """Say what a number of steps proves: epsilon and delta, what they protect, and what they rest on.

        >>> from resperturb.training.config import make_config
        >>> config = make_config(
        ...     data={"spec": "x"}, batch_size=100, method={"name": "dpsgd", "noise_multiplier": 1.0}
        ... )
        >>> proven = config.method.guarantee(config, records=1000, steps=20)
        >>> round(proven.epsilon, 2), proven.delta, proven.details["steps"]
        (3.59, 1e-05, 20)
        """
        assert self.noise_multiplier is not None  # settle() has found it
        found = dpsgd_guarantee(
            noise_multiplier=self.noise_multiplier,
            length=training_length(steps=steps, batch_size=config.batch_size, records=records),
            delta=self.delta if delta is None else delta,
        )
        details = {**found.details, "clip": self.clip}
        return replace(found, assumptions=(*assumptions(config), *found.not_met), details=details)


class DpsgdSteps(Steps):
    """A network in training on ``members`` by DP-SGD; :meth:`take` is one step.

    Everything random in a step comes from the secret of the run, or from its seed if the configuration says so:
    batches, noise on the gradients, augmentation and the noise of a perturbation.
    """

    # Opacus returns gradients that are laid out one after the other; mixing layouts would cost more than it wins.
    memory_format = torch.contiguous_format

    def __init__(self, config: TrainConfig, members: ImageSet, execution: Execution = ON_ITS_OWN) -> None:
        from opacus.validators import ModuleValidator

        super().__init__(config, members, execution)
        assert isinstance(config.method, Dpsgd)
        assert config.method.noise_multiplier is not None  # settle() has found it
        self.dpsgd = config.method
        # The wrapper puts hooks into the layers. It is kept for them only: the model that is trained, saved and asked
        # stays the unwrapped one, with the names it had.
        problems = [str(error) for error in ModuleValidator.validate(self.model, strict=False)]
        if problems:
            raise UsageError(
                f"{config.model} has layers whose gradients cannot be taken for each record alone: "
                f"{' '.join(problems[:3])} Choose another network for DP-SGD."
            )
        self._hooks = grad_sample_hooks(self.model)
        self._dp_optimizer = _clipping(
            self.optimizer,
            self._add_noise,
            noise_multiplier=self.dpsgd.noise_multiplier,
            max_grad_norm=_NEVER_CLIPS if self.dpsgd.clip is None else self.dpsgd.clip,
            expected_batch_size=config.batch_size,
        )
        self._noise_key = b""

    def _add_noise(self, parameters: Sequence[Any]) -> None:
        """Set the gradients: sums over all processes, to which the first one adds noise."""
        assert self.dpsgd.noise_multiplier is not None
        std = self.dpsgd.noise_multiplier * (self.dpsgd.clip or 0.0)
        for number, parameter in enumerate(parameters):
            total = self.world.on_first(parameter.summed_grad.contiguous())
            if self.world.leads and std:
                total = noisy_sum(total, derive_key(self._noise_key, number), std)
            parameter.grad = self.world.of_first(total).view_as(parameter)

    def _set_up(self) -> None:
        # No averaging of gradients on the way: those of single records must stay apart until they are clipped.
        self.module = self.model.to(self.device)
        for value in self.model.state_dict().values():
            self.world.of_first(value)

    def sample(self, progress: Progress) -> Tensor:
        """Draw the records of the next step; asked again, it draws the same."""
        return poisson_sample(len(self.members), self.config.batch_size, self._key(progress))

    def _key(self, progress: Progress) -> bytes:
        return derive_key(b"dpsgd", self.origin, progress.epoch, progress.step)

    def take(self, progress: Progress) -> StepOutcome:
        """Take the next step and say how it went."""
        self._set_learning_rate(progress.epoch)
        key = self._key(progress)
        indices = self.sample(progress)
        augmentation = keyed_generator(derive_key(key, b"augmentation"))
        set_random_state(derive_key(key, b"perturbation", *self.world.mark))
        self._noise_key = derive_key(key, b"gradient")
        self._dp_optimizer.zero_grad(set_to_none=True)
        at_once = max(1, self.dpsgd.max_physical_batch // self.dpsgd.augment_multiplicity) * self.world.size
        chunks = indices.tensor_split(max(1, math.ceil(len(indices) / at_once)))
        outcomes = []
        for number, chunk in enumerate(chunks, start=1):
            outcomes.append(self._add_gradients(*self._copies(chunk, augmentation)))
            if number < len(chunks):
                self._dp_optimizer.signal_skip_step(True)
                self._dp_optimizer.step()
                self._dp_optimizer.zero_grad(set_to_none=True)
        self._dp_optimizer.step()
        self._average(progress.epoch * self.per_epoch + progress.step)
        progress.step += 1
        return StepOutcome(*map(sum, zip(*outcomes, strict=True)))

    def _copies(self, indices: Tensor, augmentation: torch.Generator) -> tuple[Tensor, Tensor]:
        """Fetch this process's share of the records, the augmented copies of each next to each other."""
        copies = [self._batch(indices, augmentation) for _ in range(self.dpsgd.augment_multiplicity)]
        images = torch.stack([images for images, _ in copies], dim=1).flatten(0, 1)
        return images, copies[0][1].repeat_interleave(len(copies))

    def _add_gradients(self, images: Tensor, labels: Tensor) -> StepOutcome:
        """Compute the gradient of each record: the mean over its copies."""
        if not len(images):
            for parameter in self._dp_optimizer.params:
                parameter.grad_sample = parameter.new_zeros(0, *parameter.shape)
            return StepOutcome(0.0, 0, 0)
        logits = self._logits(images)
        loss = self._loss_sum(logits, labels)
        loss.backward()  # type: ignore[no-untyped-call]
        for parameter in self._dp_optimizer.params:
            # In the precision of the weights: a norm of 16 bits is wrong by half a percent, and so would be the clip.
            gradients = parameter.grad_sample.to(parameter.dtype)
            if (copies := self.dpsgd.augment_multiplicity) > 1:
                gradients = gradients.unflatten(0, (-1, copies)).mean(dim=1)
            parameter.grad_sample = gradients
        return StepOutcome(float(loss.detach()), correct(logits, labels), len(labels))

    def _average(self, taken: int) -> None:
        """Move the averages towards the weights; the first steps count less, as they are far from the rest."""
        if self.dpsgd.ema is None:
            return
        decay = min(self.dpsgd.ema, (1 + taken) / (10 + taken))
        for parameter in self._dp_optimizer.params:
            # A part of the optimizer's state, so that checkpoints hold it.
            average = self.optimizer.state[parameter].setdefault("average", parameter.detach().clone())
            average.lerp_(parameter.detach(), 1 - decay)

    @contextmanager
    def released(self) -> Iterator[nn.Module]:
        """Give the network its averaged weights, if there are any, for as long as the context lasts."""
        self._exchange()
        try:
            yield self.model
        finally:
            self._exchange()

    def _exchange(self) -> None:
        for parameter, state in self.optimizer.state.items():
            if "average" in state:
                parameter.data, state["average"] = state["average"], parameter.data


def _clipping(optimizer: torch.optim.Optimizer, add_noise: Callable[[Sequence[Any]], None], **settings: Any) -> Any:
    """Wrap an optimizer so that Opacus clips gradients, and ``add_noise`` turns their sums into gradients."""
    from opacus.optimizers import DPOptimizer

    class Clipping(DPOptimizer):  # type: ignore[misc]
        def add_noise(self) -> None:
            add_noise(self.params)

    return Clipping(optimizer, **settings)


def poisson_sample(records: int, batch_size: int, key: bytes) -> Tensor:
    """Draw a batch: every record independently, ``batch_size`` of them on average. A function of ``key``.

    >>> poisson_sample(6, batch_size=3, key=bytes(16)).tolist()
    [1, 5]
    """
    tosses = torch.rand(records, dtype=torch.float64, generator=keyed_generator(key))
    return (tosses < batch_size / records).nonzero().flatten()


def assumptions(config: TrainConfig) -> tuple[Assumption, ...]:
    """What the guarantee of a training rests on, and which of it this code sees to."""
    return (
        Assumption("enforced", "Every record's gradient is clipped on its own before the noise is added."),
        Assumption("enforced", "Batches are Poisson samples: each record joins each batch independently."),
        Assumption("enforced", "No layer mixes records of a batch: GroupNorm in place of BatchNorm."),
        Assumption("enforced", "Pixels are normalised by constants, not by statistics of the records."),
        config.secrecy,
        PUBLIC_COUNT,
        *config.public_start,
        Assumption(
            "assumed",
            "Only the weights are published. The training accuracies and losses of the run are computed from the "
            "records without noise, and so is a choice among several runs.",
        ),
        Assumption("assumed", "A person is in one record only; k records of one person are protected less."),
    )
