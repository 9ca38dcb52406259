"""A run: a directory that holds what was asked, how it went, and what came out.

``config.json`` what was asked, ``metrics.jsonl`` a line an epoch, ``checkpoint.safetensors`` while it is unfinished,
``model.safetensors`` and ``result.json`` once it is done.
"""

import json
import platform
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field, TypeAdapter, ValidationError
from torch import nn

from resperturb.errors import ResperturbError, UsageError
from resperturb.files import write_json
from resperturb.models.build import build
from resperturb.perturbation import weights
from resperturb.training.config import TrainConfig
from resperturb.training.migrate import from_file, to_file

SCHEMA = 2

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Amount = Annotated[int, Field(gt=0)]


@dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """What came out of a finished training.

    ``draws`` is the number of noise draws that the accuracies are averaged over, ``processes`` the numbers of
    processes that trained it, one after the other, and ``inputs_clipped`` the share of training images that a
    clipping radius shortens. Files of schema 1 do not name their schema, and old ones no ``processes``.
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
    guarantee: dict[str, Any] | None = None
    schema: Annotated[int, Field(ge=1, le=SCHEMA)] = 1

    def accuracies(self) -> dict[str, float]:
        """Give the accuracies and the gap between them, by name."""
        return {"train_accuracy": self.train_accuracy, "test_accuracy": self.test_accuracy, "gap": self.gap}

    def to_dict(self) -> dict[str, Any]:
        """Give plain values, ready for JSON; what does not apply is left out."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_dict(cls, values: dict[str, Any], path: Path) -> "TrainingResult":
        """Read what :meth:`to_dict` gave; ``path`` is where it was found."""
        try:
            return TypeAdapter(cls).validate_python(values)
        except ValidationError as error:
            problem = error.errors()[0]
            where = ".".join(map(str, problem["loc"]))
            raise ResperturbError(
                f"{path} is not the result of a training that this version can read ({where}: {problem['msg']})."
            ) from None


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
        return TrainingResult.from_dict(_read_json(self.result_path), self.result_path)

    def metrics(self) -> list[dict[str, Any]]:
        """Read the metrics, one entry an epoch."""
        if not self.metrics_path.exists():
            return []
        return [json.loads(line) for line in self.metrics_path.read_text().splitlines()]

    def load_model(self) -> nn.Module:
        """Load the trained network, with its noise."""
        result = self.result

        def bare() -> nn.Module:
            return build(
                self.config.model,
                num_classes=len(result.classes),
                in_channels=result.channels,
                norm=self.config.norm,
                skip=self.config.skip,
            )

        with torch.random.fork_rng(devices=[]):
            model = weights.load(bare, self.model_path).eval()
        if self.config.method.channels_last:
            # As it was trained and measured: noise is drawn in the order of memory, so it depends on the layout.
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return model


def open_run(path: Path | str) -> Run:
    """Open the run in a directory.

    >>> open_run("no/such/run")
    Traceback (most recent call last):
    ...
    resperturb.errors.UsageError: no/such/run is not a run: there is no config.json in it.
    """
    path = Path(path)
    if not (path / "config.json").is_file():
        raise UsageError(f"{path} is not a run: there is no config.json in it.")
    content = _read_json(path / "config.json")
    made_by = ""
    if (path / "result.json").is_file():
        made_by = str(_read_json(path / "result.json").get("environment", {}).get("resperturb", ""))
    return Run(path, from_file(content, str(path / "config.json"), made_by))


def create_run(config: TrainConfig, out: Path | None, runs: Path) -> Run:
    """Make the directory of a run, or find it: ``out``, or one under ``runs`` named by the hash of ``config``."""
    path = runs / config.digest if out is None else out
    if (path / "config.json").exists():
        present = open_run(path)
        if present.config != config:
            raise UsageError(
                f"{path} holds another run ({_differences(present.config, config)}); choose another --out, or "
                "delete that folder."
            )
        return present
    if path.exists() and (not path.is_dir() or any(not item.name.startswith(".") for item in path.iterdir())):
        raise UsageError(f"{path} exists and is not a run; choose another --out.")
    write_json(path / "config.json", to_file(config, version("resperturb")))
    return Run(path, config)


def environment() -> dict[str, str]:
    """Say with what a result was made."""
    return {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "resperturb": version("resperturb"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "threads": str(torch.get_num_threads()),
    }


def _differences(present: TrainConfig, wanted: TrainConfig) -> str:
    old, new = (_flat(config.model_dump(mode="json")) for config in (present, wanted))
    names = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    return ", ".join(f"{name}: {old.get(name)!r} there, {new.get(name)!r} asked for" for name in names)


def _flat(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, item in value.items():
        flat.update(_flat(item, f"{prefix}{name}.") if isinstance(item, dict) else {prefix + name: item})
    return flat


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ResperturbError(f"{path} cannot be read ({error}); delete its folder and train again.") from error
    if not isinstance(content, dict):
        raise ResperturbError(f"{path} is not a JSON object; delete its folder and train again.")
    return content
