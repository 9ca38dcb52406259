"""The configuration of a training. Its digest names the run, so nothing is trained twice and nothing stale is used.

A field with a description is an option of ``resperturb train``.
"""

import difflib
import hashlib
import json
import math
import re
import reprlib
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    PlainSerializer,
    ValidationError,
    model_validator,
)

from resperturb.data.canaries import KINDS
from resperturb.data.splits import RowNumbers
from resperturb.errors import UsageError
from resperturb.models.names import ON_FEATURES, NetworkName, parse_name
from resperturb.models.source import Argument, Request, source_of
from resperturb.perturbation import Strategy, strategy_from_dict, strategy_to_dict
from resperturb.privacy.guarantee import Assumption
from resperturb.training.loss import Loss, loss_of, parse_pairs
from resperturb.training.method import Method, method_of
from resperturb.training.predict import Constants

# Schema of config.json.
CONFIG_SCHEMA = 2

PRETRAINED = "pretrained"
VALIDATION = 0.1

# What the learning rate is divided by, and at which shares of the epochs.
SCHEDULES: dict[str, tuple[int, tuple[float, ...]]] = {
    "he": (10, (0.5, 0.75)),
    "quarter": (4, (0.2, 0.4, 0.6, 0.8)),
    "constant": (1, ()),
}
# Means and standard deviations of pixels between 0 and 1, per channel. They are constants of public data sets:
# statistics of the private images would leak through them.
NORMALIZATIONS: dict[str, tuple[Constants, Constants]] = {
    "half": (0.5, 0.25),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "inception": (0.5, 0.5),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)),
    "mnist": (0.1307, 0.3081),
}

Part = Literal["target_train", "shadow_train", "audit", "half", "all", "rows"]
Positive = Annotated[int, Field(gt=0)]
PositiveNumber = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=0)]
# Audits count on from a seed, and torch takes 64 bits.
Seed = Annotated[int, Field(ge=0, lt=2**62)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


Augmentation = Literal["none", "crop", "resized-crop"]


def _augmentation(value: object) -> object:
    return {False: "none", True: "crop"}[value] if isinstance(value, bool) else value


def _pairs(value: object) -> object:
    return parse_pairs(value) if isinstance(value, str) else value


def _on_features(values: dict[str, Any]) -> dict[str, Any]:
    """Turn ``features``, and the weights of their extractor, into the network that they are the frozen part of."""
    changed = dict(values)
    if (features := changed.pop("features", None)) is not None:
        if "model" in changed:
            raise UsageError("a network is either on frozen features (--features) or named by --model; drop one.")
        changed["model"] = f"{ON_FEATURES}{features}"
    if str(changed.get("model", "")).startswith(ON_FEATURES) and changed.get("weights"):
        args = _pairs(changed.get("model_args") or {})
        changed["model_args"] = {**(args if isinstance(args, dict) else {}), "weights": changed.pop("weights")}
    return changed


def _with_validation(values: dict[str, Any]) -> dict[str, Any]:
    """Keep a tenth of the images for early stopping, unless a share is given."""
    data = values.get("data")
    if values.get("patience") is None or data is None:
        return values
    if isinstance(data, DataConfig):
        return values if data.validation else {**values, "data": data.model_copy(update={"validation": VALIDATION})}
    return {**values, "data": {"validation": VALIDATION, **data}} if isinstance(data, dict) else values


def _counts(value: object) -> object:
    """Read the number of canaries of each kind.

    >>> _counts("mislabelled=60, blank=20")
    {'mislabelled': 60, 'blank': 20}
    """
    if not isinstance(value, str):
        return value
    counts = parse_pairs(value)
    if set(counts) - set(KINDS):
        raise UsageError(
            f"canaries are kinds with numbers, such as mislabelled=60,blank=20; not {value!r}. The kinds "
            f"are {', '.join(KINDS)}."
        )
    return counts


def _weights(value: object) -> object:
    """Read ``balanced``, or one weight per class: ``1,2.5``."""
    if not isinstance(value, str) or value == "balanced":
        return value
    try:
        return tuple(float(part) for part in value.split(","))
    except ValueError:
        raise UsageError(
            f"class_weights is balanced, or one weight per class, such as 1,2.5; not {value!r}."
        ) from None


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
    seed: Seed = 0

    @property
    def counts(self) -> dict[str, int]:
        """The number of each kind."""
        return {kind: getattr(self, kind) for kind in KINDS}


def _rows(value: object) -> RowNumbers | None:
    if value is None or isinstance(value, RowNumbers):
        return value
    return RowNumbers(value) if isinstance(value, str) else RowNumbers.of(value)


Rows = Annotated[
    InstanceOf[RowNumbers] | None,
    BeforeValidator(_rows),
    PlainSerializer(lambda rows: None if rows is None else rows.digest, return_type=str | None),
]


class DataConfig(_Frozen):
    """Which images, how to read them, and which part of them the model is trained on.

    ``part`` is one of:

    - ``all``: all training images;
    - ``target_train``, ``shadow_train``: one of the paper's quarters, drawn from ``split_seed``;
    - ``audit``, ``half``: images of the target half, or nearly all, each by its own fair coin from ``subset_seed``;
    - ``rows``: given row numbers of the training images followed by the canaries; see :meth:`TrainConfig.on_rows`.

    ``validation`` is the share of the training images that early stopping looks at: of a model of all images they are
    neither members nor non-members.
    ``canaries`` are records made for an audit, each added in memory by its own coin from ``subset_seed``.
    """

    spec: str = Field(description="Folder, file or name of the images.")
    part: Part = Field(default="all", description="What to train on; all training images unless given.")
    canaries: Annotated[CanaryConfig | None, BeforeValidator(_counts)] = Field(
        default=None, description="Records made to be audited: mislabelled=60,blank=20"
    )
    image_column: str | None = Field(default=None, description="Column of the images; guessed.")
    label_column: str | None = Field(default=None, description="Column of the labels; guessed.")
    group_column: str | None = Field(default=None, description="Column whose values stay together: patient.")
    group_pattern: str | None = Field(
        default=None, description=r"Group: match in that column or a file's name: ^C\d+"
    )
    positive: str | None = Field(default=None, description="Of two classes the positive one.")
    image_size: Positive | None = Field(default=None, description="Resize the short side to N pixels; crop.")
    bits: Annotated[int, Field(ge=1, le=16)] | None = Field(
        default=None, description="Bits of 16-bit values, if files do not say; 16."
    )
    limit: Positive | None = Field(default=None, description="Use N random images of each part.")
    validation: Annotated[float, Field(ge=0, lt=0.5)] = Field(
        default=0.0, description="Share of the training images kept for --patience; 0.1."
    )
    split_seed: Seed = Field(default=0, description="Seed of the split into quarters.")
    subset_seed: Seed = Field(default=0, description="Seed of the coins of audit and canaries.")
    rows: Rows = None
    canaries_for: Part = "all"
    fingerprint: str = ""

    @model_validator(mode="before")
    @classmethod
    def _of_earlier_versions(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("poison", ...) is None:
            return {name: value for name, value in values.items() if name != "poison"}
        return values

    @property
    def unit(self) -> str:
        """The name of what stays together: the group column, or a named group of the pattern.

        >>> DataConfig(spec="x", group_pattern="^(?P<patient>C[0-9]+)").unit
        'patient'
        """
        return self.group_column or next(iter(re.compile(self.group_pattern or "").groupindex), "group")

    @model_validator(mode="after")
    def _has_rows_where_it_needs_them(self) -> "DataConfig":
        if (self.part == "rows") != (self.rows is not None):
            raise UsageError("data.rows goes with the part 'rows', and only with that; see TrainConfig.on_rows.")
        return self


def _strategy(value: object) -> Strategy | None:
    if value is None or isinstance(value, Strategy):
        return value
    if not isinstance(value, dict):
        raise UsageError(f"a perturbation has a name and parameters: {{name: additive, gamma: 0.5}}; not {value!r}.")
    return strategy_from_dict(value)


Perturbation = Annotated[
    InstanceOf[Strategy] | None,
    BeforeValidator(_strategy),
    PlainSerializer(strategy_to_dict, return_type=dict[str, Any]),
]
MethodField = Annotated[
    Method, BeforeValidator(method_of), PlainSerializer(lambda method: method.to_dict(), return_type=dict[str, Any])
]
LossField = Annotated[
    InstanceOf[Loss] | None,
    BeforeValidator(loss_of),
    PlainSerializer(lambda loss: None if loss is None else loss.to_dict(), return_type=dict[str, Any] | None),
]


class TrainConfig(_Frozen):
    """Everything that decides what the trained weights are.

    The defaults are the paper's. The schedule ``he`` divides the learning rate by 10 at 50% and 75% of the epochs,
    and ``quarter`` by 4 at 20, 40, 60 and 80%.
    Networks of other sources bring what their users choose: AdamW, ``cosine`` after a warm-up, ImageNet's constants;
    see ``NetworkSource.recipe``. Pixels are normalised by constants (``normalization="imagenet"``, or ``mean`` and
    ``std``) rather than by statistics of the private images, which would leak through them.
    ``method`` is how it is trained: ``{"name": "sgd"}``, or ``{"name": "dpsgd", ...}`` with its parameters, which
    brings the paper's ``quarter`` and GroupNorm as defaults. Training noise comes from a secret of the operating
    system; ``seeded_noise`` draws it from ``seed`` instead, for experiments that must repeat, and proves nothing.

    >>> config = TrainConfig(data=DataConfig(spec="fashion-sample"))
    >>> config.model, config.epochs, len(config.digest)
    ('resnet8', 100, 16)
    """

    data: DataConfig
    model: str = Field(default="resnet8", description="resnet8, timm:NAME, my_package.nets:make, en5-resnet8...")
    model_args: Annotated[dict[str, Argument], BeforeValidator(_pairs)] = Field(
        default_factory=dict, description="Arguments of its constructor: key=value,..."
    )
    weights: str | None = Field(default=None, description="Start from a safetensors file, or pretrained.")
    network_fingerprint: str = ""
    norm: Literal["batch", "group"] = Field(default="batch", description="group: GroupNorm instead of BatchNorm.")
    skip: bool = Field(default=True, description="Keep the skip connections (resnet8...).")
    dropout: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0, description="Dropout inside a block (resnet8...)."
    )
    perturbation: Perturbation = None
    seeded_noise: bool = Field(default=False, description="Draw noise from --seed, to repeat; proves nothing.")
    method: MethodField = Field(default_factory=lambda: method_of("sgd"))
    epochs: Positive = Field(default=100, description="Passes over the images; 100, or 20 with --weights.")
    patience: Positive | None = Field(
        default=None, description="Stop N epochs after the best validation accuracy; keep the best."
    )
    batch_size: Positive = Field(default=128, description="Images per step; 128.")
    optimizer: Literal["sgd", "adamw"] = Field(default="sgd", description="sgd for resnet8..., adamw for others.")
    lr: PositiveNumber = Field(default=0.1, description="First learning rate; 0.1 for resnet8..., else 1e-3.")
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(default=0.9, description="Momentum of SGD; 0.9.")
    weight_decay: Annotated[float, Field(ge=0)] = Field(
        default=1e-4, description="Weight decay; 1e-4 for resnet8..., else 0.05."
    )
    schedule: Literal["he", "quarter", "constant", "cosine"] = Field(
        default="he", description="How the rate falls: he /10 twice, quarter /4 4 times."
    )
    warmup_epochs: Count = Field(default=0, description="Epochs in which the rate rises first.")
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = Field(default=0.0, description="Label smoothing.")
    loss: LossField = Field(
        default=None, description="Instead of cross-entropy: relaxloss:alpha=0.5 or hamp:gamma=0.95,alpha=0.001"
    )
    class_weights: Annotated[Literal["balanced"] | tuple[PositiveNumber, ...] | None, BeforeValidator(_weights)] = (
        Field(default=None, description="Weights in the loss: balanced, or one per class: 1,2.5")
    )
    augment: Annotated[Augmentation, BeforeValidator(_augmentation)] = Field(
        default="none", description="Random flips and crops; resized-crop for large images."
    )
    mean: float | tuple[float, ...] = 0.5
    std: PositiveNumber | tuple[PositiveNumber, ...] = 0.25
    precision: Literal["32-true", "bf16-mixed", "16-mixed", "auto"] = Field(
        default="32-true", description="Floating-point precision; auto: bf16 where it is faster, not for DP."
    )
    seed: Seed = Field(default=0, description="Seed of the first weights and of the order.")

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_network_and_method(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        method = method_of(values.get("method") or "sgd")
        values = _with_validation(_on_features(values))
        source = source_of(parse_name(values.get("model", method.defaults.get("model", "resnet8"))))
        tuned = source.fine_tuning if values.get("weights") else {}
        chosen = {**source.recipe, **tuned, **method.defaults, **values, "method": method}
        name = chosen.pop("normalization", None)
        if name is not None and source.frozen:
            raise UsageError("features bring their own normalisation of the pixels; leave --normalization out.")
        if name is not None:
            if name not in NORMALIZATIONS:
                raise UsageError(f"unknown normalization {name!r}; known are {', '.join(NORMALIZATIONS)}.")
            mean, std = NORMALIZATIONS[name]
            chosen = {"mean": mean, "std": std, **chosen}
        return chosen

    @model_validator(mode="after")
    def _checked(self) -> "TrainConfig":
        source = source_of(self.network)
        if not self.network.source:  # others are asked when the training starts, for that imports their libraries
            source.check(self.network.single, Request(2, skip=self.skip, dropout=self.dropout))
        if isinstance(self.mean, tuple) != isinstance(self.std, tuple) or (
            isinstance(self.mean, tuple) and isinstance(self.std, tuple) and len(self.mean) != len(self.std)
        ):
            raise UsageError("mean and std are two numbers, or as many of each as the images have channels.")
        if self.loss is not None and (self.label_smoothing or self.class_weights is not None):
            raise UsageError(f"label smoothing and class weights go with cross-entropy, not with {self.loss.name}.")
        if (self.patience is None) != (self.data.validation == 0):
            raise UsageError("validation images are kept for --patience, and --patience needs some; give both.")
        if self.patience is not None and self.data.part not in ("all", "rows"):
            raise UsageError(f"--patience goes with all training images, not with the part {self.data.part!r}.")
        if self.patience is not None and self.method.private:
            raise UsageError(
                f"--patience chooses an epoch by private images, which the guarantee of {self.method.title} does not "
                "cover; set --epochs instead."
            )
        self.method.check(self)
        return self

    @property
    def network(self) -> NetworkName:
        """The name of the network, taken apart."""
        return parse_name(self.model)

    @property
    def is_noisy(self) -> bool:
        """Whether the answers of the network are random."""
        return self.perturbation is not None and self.perturbation.is_noisy

    @property
    def secrecy(self) -> Assumption:
        """Whether the noise of the training could be drawn again."""
        if self.seeded_noise:
            return Assumption(
                "not met",
                "The noise must be secret, and it follows from the seed of the run (--seeded-noise): anyone who "
                "knows the seed can draw it again and subtract it.",
            )
        return Assumption(
            "enforced", "The noise comes from 128 bits of the operating system, deleted when the training ended."
        )

    @property
    def public_start(self) -> tuple[Assumption, ...]:
        """What a proof assumes of trained weights, or of frozen features, that the training starts from."""
        frozen = source_of(self.network).frozen
        if self.weights is None and not frozen:
            return ()
        what = "frozen features" if frozen else "weights that training started from"
        return (Assumption("assumed", f"The {what} are public: they were made without these records."),)

    @property
    def digest(self) -> str:
        """Sixteen hexadecimal digits that name what this configuration trains.

        They are those of version 0.2: a field that was added later counts only where it is not at its default.
        """
        values = {**_named(self), "data": _named(self.data), **self._named_method()}
        values["augment"] = {"none": False, "crop": True}.get(self.augment, self.augment)
        canonical = json.dumps({"schema": 1, **values}, sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]

    def _named_method(self) -> dict[str, Any]:
        parameters = self.method.to_dict()
        name = parameters.pop("name")
        if name == "dpsgd":
            for added, default in (("augment_multiplicity", 1), ("ema", None)):
                if parameters[added] == default:
                    del parameters[added]
            return {"dpsgd": {**parameters, "seeded": self.seeded_noise}}
        other = {} if name == "sgd" else {"method": self.method.to_dict()}
        return {"dpsgd": None, **other, **({} if self.seeded_noise else {"seeded_noise": False})}

    def on_rows(self, rows: Any, seed: int) -> "TrainConfig":
        """Give the same recipe for other records.

        Row numbers are those of the table, the training images and then the canaries of this configuration, so that
        they mean the same for every model of an audit.

        >>> config = TrainConfig(data=DataConfig(spec="fashion-sample")).on_rows([5, 2], seed=1)
        >>> config.data.part, config.data.rows.numbers.tolist(), config.seed
        ('rows', [2, 5], 1)
        """
        data = self.data
        changes = {
            "part": "rows",
            "rows": RowNumbers.of(rows),
            "canaries_for": data.canaries_for if data.part == "rows" else data.part,
            "subset_seed": 0,
        }
        return self.model_copy(update={"data": data.model_copy(update=changes), "seed": seed})

    def learning_rate(self, epoch: int) -> float:
        """Give the learning rate of an epoch, counted from 0.

        >>> config = TrainConfig(data=DataConfig(spec="fashion-sample"), epochs=4)
        >>> [round(config.learning_rate(e), 4) for e in range(4)]
        [0.1, 0.1, 0.01, 0.001]
        """
        warmup = min(self.warmup_epochs, self.epochs // 2)
        if epoch < warmup:
            return self.lr * (epoch + 1) / (warmup + 1)
        if self.schedule == "cosine":
            return self.lr * (1 + math.cos(math.pi * (epoch - warmup) / (self.epochs - warmup))) / 2
        factor, shares = SCHEDULES[self.schedule]
        passed = sum(epoch >= share * self.epochs for share in shares)
        return self.lr / float(factor**passed)

    def input_radius(self, channels: int, height: int, width: int) -> float:
        """Give the largest norm that an image of this shape can have after normalisation.

        >>> round(TrainConfig(data=DataConfig(spec="fashion-sample")).input_radius(1, 28, 28), 3)
        56.0
        """
        means, stds = (value if isinstance(value, tuple) else (value,) * channels for value in (self.mean, self.std))
        largest = (max(abs(mean), abs(1 - mean)) / std for mean, std in zip(means, stds, strict=True))
        return math.sqrt(height * width * sum(value**2 for value in largest))


# Fields that digests did not have at first, and two that they have under other names.
_ADDED = {
    *("bits", "rows", "canaries_for", "group_pattern", "positive", "validation", "patience", "model_args", "weights"),
    *("network_fingerprint", "optimizer", "warmup_epochs", "class_weights", "precision", "loss"),
}
_RENAMED = {"method", "seeded_noise"}


def _named(config: BaseModel) -> dict[str, Any]:
    """Take the values that a digest names."""
    fields = type(config).model_fields
    defaults = {name: fields[name].get_default(call_default_factory=True, validated_data={}) for name in fields}
    values = config.model_dump(mode="json", exclude=_RENAMED).items()
    return {name: value for name, value in values if name not in _ADDED or getattr(config, name) != defaults[name]}


def make_config(**values: Any) -> TrainConfig:
    """Build a :class:`TrainConfig` of plain data or objects, or say in one sentence which value is wrong.

    >>> make_config(data={"spec": "fashion-sample"}, epochs=0)
    Traceback (most recent call last):
    ...
    resperturb.errors.UsageError: epochs: Input should be greater than 0 (got 0).
    >>> make_config(data={"spec": "fashion-sample"}, epoch=3)
    Traceback (most recent call last):
    ...
    resperturb.errors.UsageError: there is no setting 'epoch'; did you mean 'epochs'?
    """
    try:
        return TrainConfig(**values)
    except ValidationError as error:
        raise UsageError(" ".join(_sentence(problem) for problem in error.errors())) from None


def _sentence(problem: Any) -> str:
    cause = problem.get("ctx", {}).get("error")
    if isinstance(cause, UsageError):
        return str(cause)
    if problem["type"] == "extra_forbidden" and len(problem["loc"]) == 1:
        name = str(problem["loc"][0])
        close = difflib.get_close_matches(name, TrainConfig.model_fields, n=1)
        return f"there is no setting {name!r}" + (f"; did you mean {close[0]!r}?" if close else ".")
    return f"{'.'.join(map(str, problem['loc']))}: {problem['msg']} (got {reprlib.repr(problem['input'])})."
