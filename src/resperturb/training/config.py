"""What a training is made of. The hash of it names the run, so nothing is trained twice and nothing stale is used."""

import hashlib
import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

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

Part = Literal["target_train", "shadow_train", "all"]
Positive = Annotated[int, Field(gt=0)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class DataConfig(_Frozen):
    """Which images, how to read them, and which part of them the model is trained on.

    ``part`` is one of the paper's quarters, drawn from ``split_seed``, or all of the training images; only quarters
    can be attacked later, since an attack needs to know who was in and who was out.
    """

    spec: str
    image_column: str | None = None
    label_column: str | None = None
    group_column: str | None = None
    image_size: Positive | None = None
    limit: Positive | None = None
    split_seed: int = 0
    part: Part = "target_train"
    fingerprint: str = ""


class TrainConfig(_Frozen):
    """Everything that decides what the trained weights are.

    The defaults are the paper's: SGD with momentum 0.9 and weight decay 1e-4, batches of 128, a learning rate of 0.1
    that the schedule ``he`` divides by 10 at 50% and 75% of the epochs, and ``quarter`` by 4 at 20, 40, 60 and 80%.
    Pixels are normalised by constants rather than by statistics of the private images, which would leak through them.

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
    augment: bool = False
    mean: float = 0.5
    std: Annotated[float, Field(gt=0)] = 0.25
    seed: int = 0

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

    @property
    def strategy(self) -> Strategy | None:
        """The perturbation as an object."""
        return strategy_from_dict(self.perturbation)

    @property
    def digest(self) -> str:
        """Sixteen hexadecimal digits that name what this configuration trains."""
        canonical = json.dumps({"schema": SCHEMA, **self.model_dump(mode="json")}, sort_keys=True)
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
        raise UsageError(
            " ".join(
                f"{'.'.join(map(str, problem['loc']))}: {problem['msg']} (got {problem['input']!r})."
                for problem in error.errors()
            )
        ) from None
