"""A run: a directory that holds the configuration of a training, its course and its results.

``config.json`` is the configuration and ``metrics.jsonl`` has one line per epoch; ``checkpoint.safetensors`` is there
while the training is unfinished, ``model.safetensors`` and ``result.json`` once it is finished. ``result.json`` holds
the digests of the others, which are checked when the run is opened. A run of the part ``rows`` has its row numbers in
``rows.npy``, and their digest in the configuration.
"""

import io
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import nn

from resperturb.data.splits import RowNumbers
from resperturb.errors import ResperturbError, UsageError
from resperturb.files import (
    digest_of,
    held,
    leftovers,
    parse_json,
    read_bytes,
    read_json,
    sync,
    write_bytes,
    write_json,
)
from resperturb.models.build import build_with_notes
from resperturb.noise import derive_key
from resperturb.perturbation import strategy_of, weights
from resperturb.perturbation.strategy import TrainingFacts
from resperturb.privacy.additive import SECRET_NOISE
from resperturb.privacy.guarantee import Assumption, Guarantee, nothing_proven
from resperturb.report.folders import unopened
from resperturb.sealed import DAMAGED_ARCHIVE, Digests, differing, read_bound_json, write_array, write_bound_json
from resperturb.training.checkpoint import Amount, EpochMetrics, Share
from resperturb.training.config import CONFIG_SCHEMA, PRETRAINED, DataConfig, TrainConfig, make_config
from resperturb.training.network import know_features, request_of

CONFIG, ROWS = "config.json", "rows.npy"
# The result until the checkpoint is removed; then the file is renamed to `result.json`.
PENDING = "result.pending.json"
# The secret that the noise of an unfinished training comes from, and its bytes.
SECRET, SECRET_BYTES = ".secret", 16
# The folder of a run that its audit is kept in.
AUDIT = "audit"
# Another version of the accountant may round otherwise.
SAME_EPSILON = 1e-3

CHOSEN = Assumption(
    "not met",
    "No accuracy on private images may choose the epoch, and --patience chose it by the validation images; set "
    "--epochs instead.",
)

# Whether the data had a test part of their own is not known from a configuration, so it is said of all.
PUBLIC_SPLIT = Assumption(
    "assumed",
    "The split into training and test images is public. A split made here, of a single set of images, depends on "
    "their labels; epsilon does not count that.",
)

DAMAGED = "restore it, or train again with another --out"


@dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """What came out of a finished training.

    ``draws`` is the number of noise draws that the accuracies are averaged over, ``processes`` the numbers of
    processes that trained it, one after the other, and ``inputs_clipped`` the share of training images that a
    clipping radius shortens. ``digests`` are those of the files of the run, once it is written.
    """

    train_accuracy: Share
    test_accuracy: Share
    gap: Annotated[float, Field(ge=-1, le=1, allow_inf_nan=False)]
    draws: Amount
    records: Amount
    test_records: Amount
    classes: tuple[str, ...]
    channels: Amount
    image_size: tuple[Amount, Amount]
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    processes: tuple[Amount, ...] = (1,)
    environment: dict[str, str] = field(default_factory=dict)
    inputs_clipped: Share | None = None
    auroc: Share | None = None
    sensitivity: Share | None = None
    specificity: Share | None = None
    notes: tuple[str, ...] = ()
    schema: Literal[2] = 2
    digests: Digests = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Give plain values, ready for JSON; what does not apply is left out."""
        return {name: value for name, value in asdict(self).items() if value is not None and value != ()}


@dataclass(frozen=True)
class Run:
    """A training on disk, finished or not."""

    path: Path
    config: TrainConfig

    @property
    def checkpoint_path(self) -> Path:
        """Where an unfinished training is kept."""
        return self.path / "checkpoint.safetensors"

    @property
    def model_path(self) -> Path:
        """Where the trained weights are."""
        return self.path / "model.safetensors"

    @property
    def metrics_path(self) -> Path:
        """Where the metrics of each epoch are."""
        return self.path / "metrics.jsonl"

    @property
    def result_path(self) -> Path:
        """What came out; it is written last, so a run that has it is finished."""
        return self.path / "result.json"

    @property
    def finished(self) -> bool:
        """Whether the training has come to its end."""
        return self.result_path.exists() and self.model_path.exists()

    @cached_property
    def result(self) -> TrainingResult:
        """Accuracies, classes, time and versions of the finished training."""
        if not self.finished:
            raise UsageError(f"the run {self.path} is not finished; run the same `resperturb train` command again.")
        return self._read_result(self.result_path)

    def _read_result(self, path: Path) -> TrainingResult:
        result = read_bound_json(TrainingResult, path, None, DAMAGED)
        names = differing(result.digests, self.computed_digests())
        if len(names) == 1 or sorted(names) == ["config", "data"]:  # one file alone is not of this run
            file = {"weights": self.model_path, "metrics": self.metrics_path}.get(names[0], self.path / CONFIG)
            raise ResperturbError(
                f"{file} is not the file that {path.name} was written with: it was changed, or belongs to another "
                f"run; {DAMAGED}."
            )
        if names:
            raise ResperturbError(f"{path} belongs to another run (other {', '.join(names)}); {DAMAGED}.")
        return result

    @cached_property
    def digests(self) -> Digests:
        """What names this run, for the files that belong to it."""
        return self.result.digests

    def computed_digests(self) -> Digests:
        """Take the digests of the files as they are now."""
        return {
            "config": self.config.digest,
            "data": self.config.data.fingerprint,
            "weights": digest_of(self.model_path),
            "metrics": digest_of(self.metrics_path) if self.metrics_path.exists() else "",
        }

    def guarantee(self, delta: float | None = None) -> Guarantee:
        """Say what is proven about the weights, computed from the configuration and never read from a file.

        ``delta`` is that of the training method if None, or else 1e-5. Epsilon is infinite where nothing is proven.
        """
        result, entries = self.result, self.metrics()
        proven = partial(guarantee_of, self.config, result.records, result.channels, result.image_size)
        if self.config.method.private and entries and (said := entries[-1].epsilon) is not None:
            own = proven()
            if not own.not_met and abs(said - own.epsilon) > SAME_EPSILON * own.epsilon:
                raise ResperturbError(
                    f"{self.metrics_path} says epsilon {said:.4g}, and {CONFIG} gives {own.epsilon:.4g} for "
                    f"{result.records} records; {DAMAGED}."
                )
        return proven(delta)

    def metrics(self) -> list[EpochMetrics]:
        """Read the metrics, one entry per epoch."""
        if not self.metrics_path.exists():
            return []
        lines = read_bytes(self.metrics_path).splitlines()
        return [parse_json(EpochMetrics, line, self.metrics_path, DAMAGED) for line in lines]

    def load_model(self) -> nn.Module:
        """Load the trained network, with its noise."""
        result = self.result
        request = request_of(self.config, len(result.classes), result.channels, result.image_size)
        with torch.random.fork_rng(devices=[]):
            bare, _ = build_with_notes(self.config.model, replace(request, pretrained=False))
        model = weights.load(bare, self.model_path).eval()
        know_features(model, self.config)
        if (noise := strategy_of(model)) != self.config.perturbation:
            raise ResperturbError(
                f"{self.model_path} belongs to another run: its noise is {noise}, that of config.json "
                f"{self.config.perturbation}."
            )
        if self.config.method.channels_last:
            # As it was trained and measured: noise is drawn in the order of memory, so it depends on the layout.
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return model

    def noise_secret(self) -> bytes:
        """Return the 16 bytes that training noise follows from: a secret of the system and the run's digest.

        A proof about noise holds against anyone who cannot draw it again. The secret is kept for its owner alone, so
        that a step that is taken again after a crash is the same step, and deleted when the training ends. The digest
        keeps runs from sharing noise even if a folder is copied.
        """
        path = self.path / SECRET
        if not path.exists():
            write_bytes(path, os.urandom(SECRET_BYTES), private=True)
        secret = read_bytes(path)
        if len(secret) != SECRET_BYTES:
            raise ResperturbError(f"{path} is damaged; delete the folder of the run and train again.")
        return derive_key(b"training", secret, self.config.digest.encode())

    def secrets(self) -> list[Path]:
        """Find the files that may hold the secret of a training; a finished run has none."""
        kept = (self.path / SECRET, self.checkpoint_path)
        return [*(path for path in kept if path.exists()), *leftovers(self.path)]

    def finish(self, result: TrainingResult) -> None:
        """Write what came out, once nothing secret is left in the folder."""
        write_bound_json(self.path / PENDING, result, self.computed_digests())
        self._complete()

    def _complete(self) -> None:
        for path in self.secrets():
            path.unlink()
        sync(self.path)  # or a power cut could bring them back
        os.replace(self.path / PENDING, self.result_path)


def guarantee_of(
    config: TrainConfig, records: int, channels: int, size: tuple[int, int], delta: float | None = None
) -> Guarantee:
    """Compute what is proven of a model trained on this number of records; see :meth:`Run.guarantee`."""
    if config.method.private:
        steps = config.epochs * math.ceil(records / config.batch_size)
        proven = config.method.guarantee(config, records, steps, delta)
        split = () if math.isinf(proven.epsilon) else (PUBLIC_SPLIT,)
        return replace(proven, assumptions=(*proven.assumptions, *split, *_of_canaries(config, proven)))
    delta = 1e-5 if delta is None else delta
    if config.perturbation is None:
        return nothing_proven("It was trained without noise.", delta)
    facts = TrainingFacts(
        epochs=config.epochs,
        batch_size=config.batch_size,
        records=records,
        input_radius=config.input_radius(channels, *size),
        networks=config.network.networks,
    )
    proven = config.perturbation.guarantee(facts, delta)
    if proven.epsilon == math.inf:
        return proven
    known = tuple(config.secrecy if a == SECRET_NOISE else a for a in proven.assumptions)
    chosen = () if config.patience is None else (CHOSEN,)
    extra = (*config.public_start, *chosen, *_of_canaries(config, proven))
    return replace(proven, assumptions=(*known, *extra))


def _of_canaries(config: TrainConfig, proven: Guarantee) -> tuple[Assumption, ...]:
    """Say for whom the guarantee is weaker: canaries are units of their own, made from the images of others."""
    counts = {} if config.data.canaries is None else config.data.canaries.counts
    unit = str(proven.details.get("unit", "record"))
    made_from = ("near_duplicate",) if unit == "record" else ("clean", "mislabelled", "near_duplicate")
    if math.isinf(proven.epsilon) or not any(counts.get(kind) for kind in made_from):
        return ()
    return (
        Assumption(
            "assumed",
            f"Each canary counts as a {unit} of its own. A {unit} that k canaries were made from has the epsilon of "
            "a group of up to k + 1. Release a model without canaries.",
        ),
    )


def check_public_start(config: TrainConfig) -> None:
    """Refuse to begin a private training with weights of a run that was trained on the same images.

    Raises:
        UsageError: It would.
    """
    for given in (config.weights, config.model_args.get("weights")):
        if given and given != PRETRAINED and _trained_on(Path(str(given)), config.data):
            raise UsageError(
                f"{given} was trained on the images of {config.data.spec}: what begins with it carries these images, "
                "and no epsilon would hold. Use public weights."
            )


def _trained_on(weights: Path, data: DataConfig) -> bool:
    """Whether a file of weights lies in a run that was trained on the same images."""
    try:
        trained = open_run(weights.resolve().parent).config.data
    except ResperturbError:
        return False
    same_place = Path(trained.spec).resolve() == Path(data.spec).resolve()
    return same_place or (trained.fingerprint != "" and trained.fingerprint == data.fingerprint)


def open_run(path: Path | str) -> Run:
    """Open the run in a directory, finished or not.

    Raises:
        UsageError: There is no run.
        ResperturbError: Its configuration is damaged, or of a version that cannot be read.

    >>> open_run("no/such/run")
    Traceback (most recent call last):
    ...
    resperturb.errors.UsageError: there is no folder no/such/run.
    """
    path = Path(path)
    if not (path / CONFIG).is_file():
        raise unopened(path, f"is not a run: there is no {CONFIG} in it.")
    return Run(path, _with_rows(_read_config(path / CONFIG), path / ROWS))


def _read_config(path: Path) -> TrainConfig:
    values = read_json(dict[str, Any], path, DAMAGED)
    schema, made_by = values.pop("schema", 1), values.pop("resperturb", "0.1")
    if schema != CONFIG_SCHEMA:
        raise ResperturbError(
            f"{path} was written by resperturb {made_by} and cannot be read: its schema is {schema!r}, and this "
            f"version reads schema {CONFIG_SCHEMA}. Train again with another --out."
        )
    try:
        return make_config(**values)
    except UsageError as error:
        raise ResperturbError(f"{path} was written by resperturb {made_by} and cannot be read: {error}") from error


def _with_rows(config: TrainConfig, path: Path) -> TrainConfig:
    """Read the row numbers that the configuration names."""
    if config.data.rows is None:
        return config
    try:
        rows = RowNumbers.of(np.load(io.BytesIO(read_bytes(path)), allow_pickle=False))
    except (*DAMAGED_ARCHIVE, UsageError) as error:
        raise ResperturbError(f"{path} is damaged ({str(error)[:200]}); {DAMAGED}.") from error
    if rows != config.data.rows:
        raise ResperturbError(f"{path} does not hold the rows of {CONFIG}; {DAMAGED}.")
    return config.model_copy(update={"data": config.data.model_copy(update={"rows": rows})})


@contextmanager
def held_run(config: TrainConfig, out: Path | None, runs: Path) -> Iterator[Run]:
    """Make or find the directory of a run, ``out`` or one under ``runs``, and hold it: no other process can train it.

    The lock is taken before anything is written, so that of several processes with different settings one alone gets
    the directory. What a killed process left is removed, or completed where only the last step was missing.
    """
    path = runs / config.digest if out is None else out
    _check_free(path, config)
    with held(path):
        _check_free(path, config)
        run = Run(path, config)
        if not (path / CONFIG).exists():
            if config.data.rows is not None and config.data.rows.numbers is not None:
                write_array(path / ROWS, config.data.rows.numbers)
            made = {"schema": CONFIG_SCHEMA, "resperturb": version("resperturb")}
            write_json(path / CONFIG, {**made, **config.model_dump(mode="json")})
        _tidy(run)
        yield run


def _check_free(path: Path, config: TrainConfig) -> None:
    """Refuse a folder that holds anything but this run."""
    # Looked at first, or it could be what another process writes after it was seen that there is no configuration.
    foreign = path.exists() and (
        not path.is_dir() or any(not item.name.startswith(".") and item.name != ROWS for item in path.iterdir())
    )
    if (path / CONFIG).exists():
        present = open_run(path)
        if present.config != config:
            raise UsageError(
                f"{path} holds another run ({_differences(present.config, config)}); choose another --out, or "
                "delete that folder."
            )
    elif foreign:
        raise UsageError(f"{path} exists and is not a run; choose another --out.")


def _tidy(run: Run) -> None:
    if run.finished:
        for path in run.secrets():
            path.unlink()
        (run.path / PENDING).unlink(missing_ok=True)
    elif (run.path / PENDING).exists() and run.model_path.exists():
        run._read_result(run.path / PENDING)
        run._complete()
    else:
        # Of weights that were taken away: with new ones beside it, it would say that a training is finished.
        run.result_path.unlink(missing_ok=True)


def _differences(present: TrainConfig, wanted: TrainConfig) -> str:
    old, new = (_flat(config.model_dump(mode="json")) for config in (present, wanted))
    names = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    return ", ".join(f"{name}: {old.get(name)!r} there, {new.get(name)!r} asked for" for name in names)


def _flat(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, item in value.items():
        flat.update(_flat(item, f"{prefix}{name}.") if isinstance(item, dict) else {prefix + name: item})
    return flat
