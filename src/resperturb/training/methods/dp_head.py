"""DP head: a linear classifier on frozen public features, with a guarantee per record or per group of records.

The mechanisms and their proofs are those of :mod:`resperturb.heads`. Every epoch is one step on all records. The
noise of a step follows from the secret of the run and the number of the step, so that a step that is taken again
after a crash releases the same sum.
"""

import logging
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import nn

from resperturb.data.images import ImageSet
from resperturb.errors import UsageError
from resperturb.features.networks import OnFeatures
from resperturb.heads import HEADS, Descent, OneShot
from resperturb.heads.gradient import clipped_sums
from resperturb.heads.release import noise_of, noisy
from resperturb.heads.rows import rows_of
from resperturb.models.names import ON_FEATURES
from resperturb.models.source import source_of
from resperturb.noise import derive_key
from resperturb.privacy.dp_head import check_numbers, head_guarantee, head_mu, too_few
from resperturb.privacy.guarantee import Assumption, Guarantee, nothing_proven
from resperturb.training.checkpoint import Progress
from resperturb.training.config import PRETRAINED, TrainConfig
from resperturb.training.distributed import Execution
from resperturb.training.method import Method, PositiveOrNone, register_method
from resperturb.training.steps import StepOutcome, Steps, correct

_logger = logging.getLogger(__name__)

CONFIRMED = Assumption(
    "assumed", "The user's own weights or features were made without these records, as the user said."
)


@register_method("dp-head")
class DpHead(Method):
    """How a DP head is trained; the defaults were fixed on Fashion-MNIST and need no search.

    The learning rate of the configuration is the largest one: it falls with the number of units and with epsilon,
    which are public. With a group column the guarantee is for a whole group.

    >>> DpHead().target_epsilon, DpHead().label
    (3.0, 'DP head 3')
    """

    title: ClassVar = "DP head"
    private: ClassVar = True
    channels_last: ClassVar = False
    relative_cost: ClassVar = 0.1
    defaults: ClassVar[Mapping[str, Any]] = {
        "model": f"{ON_FEATURES}scattering",
        "epochs": 100,
        "lr": 80.0,
        "schedule": "constant",
        "weight_decay": 0.0,
    }

    target_epsilon: PositiveOrNone = Field(
        default=3.0, description="The epsilon that it is to give; inf for the same head without noise."
    )
    delta: Annotated[float, Field(gt=0, lt=1)] = Field(default=1e-5, description="The delta of epsilon; 1e-5.")
    head: Literal["gradient", "one-shot"] = Field(
        default="gradient", description="dp-head: noisy gradient descent, or sums that are released once."
    )
    clip: Annotated[float, Field(gt=0)] = Field(
        default=0.1, description="Norm that contributions are clipped to; 0.1."
    )
    public_features: bool = Field(
        default=False, description="dp-head: my own weights or features were made without these images."
    )
    units: Annotated[int, Field(gt=0)] | None = None  # settle() counts them

    @property
    def label(self) -> str:
        """Give epsilon."""
        return f"DP head {'without noise' if self.target_epsilon is None else f'{self.target_epsilon:g}'}"

    @property
    def mu(self) -> float:
        """The Gaussian-DP parameter of the whole training."""
        return head_mu(math.inf if self.target_epsilon is None else self.target_epsilon, self.delta)

    def describe(self) -> str:
        """Give the head and its clipping."""
        noise = "without noise" if self.target_epsilon is None else f"epsilon {self.target_epsilon:g}"
        clip = f", contributions clipped to {self.clip:g}" if self.head == "gradient" else ""
        return f"DP head, {noise}, {HEADS[self.head].words}{clip}"

    def settings(self, config: TrainConfig) -> Descent:
        """Return the constants of the descent."""
        return Descent(steps=config.epochs, clip=self.clip, momentum=config.momentum, largest_rate=config.lr)

    def check(self, config: TrainConfig) -> None:
        """Refuse what the proof does not cover, and what a head does not have."""
        if not source_of(config.network).frozen:
            raise UsageError(
                f"a DP head is trained on frozen features, not on the network {config.model}; leave --model out and "
                "name the features: --features scattering."
            )
        if config.model_args.get("head", "linear") != "linear":
            raise UsageError("a DP head is linear; train a CNN on features by --method dpsgd.")
        foreign = {
            "--gamma": config.perturbation is not None,
            "--class-weights": config.class_weights is not None,
            "--label-smoothing": config.label_smoothing > 0,
            "--loss": config.loss is not None,
            "--augment": config.augment != "none",
            "--optimizer": config.optimizer != "sgd",
            "--precision": config.precision not in ("32-true", "auto"),
        }
        if named := [flag for flag, given in foreign.items() if given]:
            raise UsageError(f"a DP head has no use for {', '.join(named)}: leave it out.")

    def settle(self, config: TrainConfig, members: ImageSet) -> TrainConfig:
        """Count the units, and set the learning rate and the size of the batch that follow from their number."""
        self._check_public(config)
        units = len(members) if members.groups is None else len(np.unique(members.groups))
        changes: dict[str, Any] = {
            "method": self.model_copy(update={"units": units}),
            "batch_size": len(members),
            "lr": self.settings(config).learning_rate(units, self.mu),
        }
        if self.head == "one-shot":
            changes["epochs"] = 1
        return config.model_copy(update=changes)

    def _check_public(self, config: TrainConfig) -> None:
        """Ask about features that a user brings along; refuse those of a network trained on the same images."""
        from resperturb.training.run import check_public_start

        check_public_start(config)
        weights = str(config.model_args.get("weights", ""))
        own = config.network.name.startswith("file:") or weights not in ("", PRETRAINED)
        if own and not self.public_features:
            raise UsageError(
                "the features, or the weights that compute them, come from a file of your own: the guarantee holds "
                "only if they were made without these images. If so, say it: --public-features."
            )

    def steps(self, config: TrainConfig, members: ImageSet, execution: Execution) -> "HeadSteps":
        """Compute the features and prepare the rows."""
        return HeadSteps(config, members, execution)

    def guarantee(self, config: TrainConfig, records: int, steps: int, delta: float | None = None) -> Guarantee:
        """Say what a number of steps proves, for one record or for one group of the group column.

        >>> from resperturb.training.config import make_config
        >>> config = make_config(data={"spec": "x", "group_column": "patient"}, method="dp-head")
        >>> proven = config.method.guarantee(config, records=1000, steps=100)
        >>> round(proven.epsilon, 6), proven.protects[:11]
        (3.0, 'one patient')
        """
        delta = self.delta if delta is None else delta
        if self.target_epsilon is None:
            return nothing_proven("The head was trained without noise.", delta)
        # Counted for the rows that this configuration was settled for; in proportion for others, as of an audit.
        units = records if self.units is None else round(self.units * records / config.batch_size)
        proven = head_guarantee(
            mu=self.mu * math.sqrt(min(1.0, steps / config.epochs)),
            delta=delta,
            head=HEADS[self.head].words,
            records=max(1, min(records, units)),
            unit=_unit(config),
            secrecy=config.secrecy,
            extra=(CONFIRMED,) if self.public_features else (),
        )
        return replace(proven, details={**proven.details, "clip": self.clip})


def _unit(config: TrainConfig) -> str:
    """Name what is protected as a whole: a record, or a group where the images have groups."""
    data = config.data
    return data.unit if data.group_column or data.group_pattern else "record"


class HeadSteps(Steps):
    """A head in training; a step is a release of the noisy sum over all members."""

    memory_format = torch.contiguous_format

    def __init__(self, config: TrainConfig, members: ImageSet, execution: Execution) -> None:
        if execution.world.size > 1:
            raise UsageError("a DP head is trained in one process; start it without torchrun.")
        _logger.info("reading or computing the features of %s images", f"{len(members):,}")
        super().__init__(config, members, execution)
        self.per_epoch = 1  # also of more records than the configuration was settled for: the guarantee counts epochs
        assert isinstance(config.method, DpHead)
        assert isinstance(self.model, OnFeatures)
        assert isinstance(self.model.head, nn.Linear)
        self.method, self.weight = config.method, self.model.head.weight
        unit = None if members.groups is None else np.unique(members.groups, return_inverse=True)[1]
        labels, classes = members.labels.numpy(), members.num_classes
        self.rows = rows_of(self.model.features(members.images), labels, classes, unit, self.method.units)
        self.descent = self.method.settings(config)
        drawn = (OneShot() if self.method.head == "one-shot" else self.descent).numbers(self.rows.x.shape[1], classes)
        check_numbers(drawn)
        self.contributions = clipped_sums(self.rows, self.method.clip)
        self.x, self.labels = torch.from_numpy(self.rows.x), members.labels
        units = self.method.units or len(members)
        if not math.isinf(self.method.mu) and (few := too_few(units, self.method.mu, _unit(config), classes)):
            self.notes.append(few)

    def take(self, progress: Progress) -> StepOutcome:
        """Release the sum of the next step and follow it."""
        self._set_learning_rate(progress.epoch)
        key = derive_key(b"dp-head", self.origin, progress.epoch)
        noise = noise_of(int.from_bytes(key))
        if self.method.head == "one-shot":
            solved = OneShot().fit(self.rows, self.method.mu, noise)
            self.weight.data.copy_(torch.from_numpy(solved.T))
        else:
            weights = self.weight.detach().cpu().numpy().T
            total = self.contributions(weights)
            released = noisy(total, self.descent.sigma(self.method.mu), noise(weights.shape))
            self.weight.grad = torch.from_numpy(released.T / self.rows.units).to(self.weight)
            self.optimizer.step()
        progress.step += 1
        with torch.no_grad():
            logits = self.x @ self.weight.cpu().T
        loss = F.cross_entropy(logits, self.labels, reduction="sum")
        return StepOutcome(float(loss), correct(logits, self.labels), len(self.labels))
