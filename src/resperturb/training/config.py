"""What a training is made of. The hash of it names the run, so nothing is trained twice and nothing stale is used."""

import hashlib
import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from resperturb.data.canaries import KINDS
from resperturb.data.poison import Kind
from resperturb.errors import UsageError
from resperturb.models.build import build
from resperturb.perturbation import Strategy, strategy_from_dict, strategy_to_dict

SCHEMA = 1

# What the learning rate is divided by, and at which shares of the epochs.
SCHEDULES: dict[str, tuple[int, tuple[float, ...]]] = {
    "he": (10, (0.5, 0.75)),
    "quarter": (4, (0.2, 0.4, 0.6, 0.8)),
    "constant": (1, ()),
}

Part = Literal["target_train", "shadow_train", "audit", "all"]
Positive = Annotated[int, Field(gt=0)]
Count = Annotated[int, Field(ge=0)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class CanaryConfig(_Frozen):
    """How many canaries of each kind are made, and from which seed; each is put in by its own coin.

    >>> CanaryConfig(mislabelled=100).counts["mislabelled"]
    100
    """

    clean: Count = 0
    mislabelled: Count = 0
    out_of_distribution: Count = 0
    blank: Count = 0
    near_duplicate: Count = 0
    seed: Count = 0

    @property
    def counts(self) -> dict[str, int]:
        """The number of each kind."""
        return {kind: getattr(self, kind) for kind in KINDS}


class PoisonConfig(_Frozen):
    """A poisoned record: of which kind, in how many copies, and whether this model is trained on them at all.

    >>> PoisonConfig(kind="clipbkd", present=True).copies
    1
    """

    kind: Kind
    copies: Positive = 1
    present: bool


class DataConfig(_Frozen):
    """Which images, how to read them, and which part of them the model is trained on.

    ``part`` is one of the paper's quarters, drawn from ``split_seed``; or ``audit``, to which each image of the
    target half belongs by its own fair coin, tossed from ``subset_seed``; or all of the training images. An attack
    needs to know who was in and who was out, so a model of all images can only be attacked through ``canaries``:
    records made for the purpose, added in memory by coins that are tossed from ``subset_seed`` too. ``poison`` is for
    audits over many trainings, half of them with a record that is made to be noticed.
    """

    spec: str
    image_column: str | None = None
    label_column: str | None = None
    group_column: str | None = None
    image_size: Positive | None = None
    limit: Positive | None = None
    split_seed: int = 0
    part: Part = "target_train"
    subset_seed: Count = 0
    canaries: CanaryConfig | None = None
    poison: PoisonConfig | None = None
    fingerprint: str = ""


class DpsgdConfig(_Frozen):
    """How DP-SGD clips and noises gradients; the defaults are the paper's.

    ``clip`` is the largest norm of one record's gradient, None for no clipping, and the noise on a batch's sum of
    gradients is ``noise_multiplier`` times that. ``target_epsilon`` asks for the noise that gives it at ``delta``;
    it is replaced by that noise once the number of records is known. ``seeded`` draws batches and noise from the
    run's seed instead of from the operating system.

    >>> DpsgdConfig().noise_multiplier
    1.1
    """

    noise_multiplier: Annotated[float, Field(ge=0)] | None = None
    target_epsilon: Annotated[float, Field(gt=0)] | None = None
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    clip: Annotated[float, Field(gt=0)] | None = 1.0
    max_physical_batch: Positive = 64
    seeded: bool = False

    @model_validator(mode="before")
    @classmethod
    def _paper_noise(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("noise_multiplier") is values.get("target_epsilon") is None:
            return {**values, "noise_multiplier": 1.1}
        return values

    @model_validator(mode="after")
    def _consistent(self) -> "DpsgdConfig":
        if self.noise_multiplier is not None and self.target_epsilon is not None:
            raise UsageError("the noise is either given (noise_multiplier) or found (target_epsilon); drop one.")
        if self.clip is None and self.noise_multiplier != 0:
            raise UsageError(
                "gradients that are not clipped have no norm for the noise to be a multiple of; give a finite clip, "
                "or a noise_multiplier of 0 for a run without privacy."
            )
        return self


class TrainConfig(_Frozen):
    """Everything that decides what the trained weights are.

    The defaults are the paper's: SGD with momentum 0.9 and weight decay 1e-4, batches of 128, a learning rate of 0.1
    that the schedule ``he`` divides by 10 at 50% and 75% of the epochs, and ``quarter`` by 4 at 20, 40, 60 and 80%.
    Pixels are normalised by constants rather than by statistics of the private images, which would leak through them.
    With ``dpsgd`` gradients are clipped and noised, and the paper's ``quarter`` and GroupNorm are the defaults.

    >>> config = TrainConfig(data=DataConfig(spec="fashion-sample"))
    >>> config.model, config.epochs, len(config.digest)
    ('resnet8', 100, 16)
    """

    data: DataConfig
    model: str = "resnet8"
    norm: Literal["batch", "group"] = "batch"
    skip: bool = True
    perturbation: dict[str, Any] = Field(default_factory=lambda: strategy_to_dict(None))
    epochs: Positive = 100
    batch_size: Positive = 128
    lr: Annotated[float, Field(gt=0)] = 0.1
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: Annotated[float, Field(ge=0)] = 1e-4
    schedule: Literal["he", "quarter", "constant"] = "he"
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    augment: bool = False
    mean: float = 0.5
    std: Annotated[float, Field(gt=0)] = 0.25
    seed: int = 0
    dpsgd: DpsgdConfig | None = None

    @model_validator(mode="before")
    @classmethod
    def _dpsgd_defaults(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("dpsgd") is not None:
            return {"norm": "group", "schedule": "quarter", **values}
        return values

    @field_validator("perturbation")
    @classmethod
    def _complete(cls, value: dict[str, Any]) -> dict[str, Any]:
        return strategy_to_dict(strategy_from_dict(value))

    @model_validator(mode="after")
    def _known_model(self) -> "TrainConfig":
        import torch

        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            build(self.model, num_classes=2, norm=self.norm, skip=self.skip)
        return self

    @model_validator(mode="after")
    def _records_stay_apart(self) -> "TrainConfig":
        if self.dpsgd is not None and self.norm == "batch":
            raise UsageError(
                "DP-SGD bounds what each record does to the weights, and BatchNorm lets every record of a batch "
                "change the gradients of the others, so no epsilon would hold; pass --norm group."
            )
        if self.dpsgd is not None and self.perturbation.get("scale") == "batch_std":
            raise UsageError(
                "DP-SGD bounds what each record does to the weights, and noise of scale 'batch_std' depends on the "
                "whole batch, so no epsilon would hold; use the scale 'constant'."
            )
        return self

    @property
    def strategy(self) -> Strategy | None:
        """The perturbation as an object."""
        return strategy_from_dict(self.perturbation)

    @property
    def digest(self) -> str:
        """Sixteen hexadecimal digits that name what this configuration trains."""
        values = self.model_dump(mode="json")
        if values["data"]["poison"] is None:  # runs without any keep the names that they had before there was poison
            del values["data"]["poison"]
        canonical = json.dumps({"schema": SCHEMA, **values}, sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]

    def learning_rate(self, epoch: int) -> float:
        """Give the learning rate of an epoch, counted from 0.

        >>> config = TrainConfig(data=DataConfig(spec="fashion-sample"), epochs=4)
        >>> [round(config.learning_rate(e), 4) for e in range(4)]
        [0.1, 0.1, 0.01, 0.001]
        """
        factor, shares = SCHEDULES[self.schedule]
        passed = sum(epoch >= share * self.epochs for share in shares)
        return self.lr / float(factor**passed)


def make_config(**values: Any) -> TrainConfig:
    """Build a :class:`TrainConfig`, or say in one sentence which value is wrong.

    >>> make_config(data={"spec": "fashion-sample"}, epochs=0)
    Traceback (most recent call last):
    ...
    resperturb.errors.UsageError: epochs: Input should be greater than 0 (got 0).
    """
    try:
        return TrainConfig(**values)
    except ValidationError as error:
        raise UsageError(" ".join(_sentence(problem) for problem in error.errors())) from None


def _sentence(problem: Any) -> str:
    cause = problem.get("ctx", {}).get("error")
    if isinstance(cause, UsageError):
        return str(cause)
    return f"{'.'.join(map(str, problem['loc']))}: {problem['msg']} (got {problem['input']!r})."
