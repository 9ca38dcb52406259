"""One file that holds all of an unfinished training: weights, optimizer, random state, progress. No pickle."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field, TypeAdapter
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from resperturb.errors import ResperturbError
from resperturb.files import SEAL, plain, read_bytes, seal_holds, sealed, write_bytes

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Amount = Annotated[int, Field(gt=0)]
Count = Annotated[int, Field(ge=0)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


@dataclass(frozen=True)
class EpochMetrics:
    """What was measured after an epoch; None where it was not, or where there was nothing to measure."""

    epoch: Amount
    lr: Finite
    loss: Finite | None = None
    train_accuracy: Share | None = None
    test_accuracy: Share | None = None
    test_auroc: Share | None = None
    test_sensitivity: Share | None = None
    test_specificity: Share | None = None
    validation_accuracy: Share | None = None
    epsilon: Annotated[float, Field(ge=0)] | None = None


@dataclass
class Progress:
    """How far a training has come. ``step`` counts the batches of the current epoch that are done.

    ``processes`` are the numbers of processes that it was trained in, in the order in which they came up, ``epsilon``
    what the training method proves for the steps so far.
    """

    epoch: Count = 0
    step: Count = 0
    loss_sum: float = 0.0
    correct: Count = 0
    seen: Count = 0
    seconds: float = 0.0
    history: list[EpochMetrics] = field(default_factory=list)
    processes: list[int] = field(default_factory=list)
    epsilon: float | None = None

    @property
    def best_epoch(self) -> int:
        """The first epoch with the largest validation accuracy, from 1; 0 if none was measured."""
        known = [entry for entry in self.history if entry.validation_accuracy is not None]
        return max(known, key=lambda entry: entry.validation_accuracy or 0.0).epoch if known else 0

    def start_epoch(self, epoch: int) -> None:
        """Count from the start of an epoch."""
        self.epoch, self.step = epoch, 0
        self.loss_sum, self.correct, self.seen = 0.0, 0, 0


def save_checkpoint(
    path: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    progress: Progress,
    digest: str,
    generator: str = "",
    best: Mapping[str, Tensor] | None = None,
) -> None:
    """Write everything that the next step depends on, whole or not at all, readable by the owner only.

    ``generator`` names what draws the noise of a perturbation; it is empty for a training without noise. ``best`` are
    the weights that early stopping returns to.
    """
    tensors = {f"model.{name}": value.contiguous() for name, value in model.state_dict().items()}
    tensors |= {f"best.{name}": value.contiguous() for name, value in (best or {}).items()}
    for index, state in optimizer.state_dict()["state"].items():
        for name, value in state.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer.{index}.{name}"] = value.contiguous()
    tensors["random.cpu"] = torch.get_rng_state()
    if torch.cuda.is_available():
        tensors["random.cuda"] = torch.cuda.get_rng_state()
    about = {"progress": json.dumps(plain(progress)), "digest": digest, "generator": generator}
    metadata = {**about, "checksum": SEAL}
    write_bytes(path, sealed(save(tensors, metadata)), private=True)


@dataclass(frozen=True)
class Checkpoint:
    """What :func:`save_checkpoint` wrote, read back."""

    progress: Progress
    tensors: dict[str, Tensor]
    generator: str = ""

    @property
    def best(self) -> dict[str, Tensor]:
        """The weights that early stopping returns to; none without it."""
        return _under("best.", self.tensors)

    def restore(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Put a training back to where it was."""
        model.load_state_dict(_under("model.", self.tensors))
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in _under("optimizer.", self.tensors).items():
            index, key = name.split(".", 1)
            state.setdefault(int(index), {})[key] = value
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
        torch.set_rng_state(self.tensors["random.cpu"])
        if "random.cuda" in self.tensors and torch.cuda.is_available():
            torch.cuda.set_rng_state(self.tensors["random.cuda"])


def read_checkpoint(path: Path, digest: str) -> Checkpoint | None:
    """Read the checkpoint of the configuration that ``digest`` names; None if there is none.

    A checkpoint is written whole or not at all, so one that cannot be read was damaged afterwards: that is an error,
    not a silent new start.
    """
    if not path.exists():
        return None
    content = read_bytes(path)
    try:
        metadata = _metadata(content)
        if not seal_holds(content, metadata["checksum"]):
            raise ValueError("its checksum does not fit")
        tensors = load(content)
        progress = TypeAdapter(Progress).validate_json(metadata["progress"])  # ignores what older ones held besides
        if len(progress.history) != progress.epoch:
            raise ValueError("its epochs are not all there")
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ResperturbError(f"{path} is damaged ({error}); delete it to train this run from the start.") from error
    if metadata["digest"] != digest:
        raise ResperturbError(
            f"{path} belongs to another configuration ({metadata['digest']}, not {digest}); delete it."
        )
    return Checkpoint(progress, tensors, metadata.get("generator", ""))


def _metadata(content: bytes) -> dict[str, str]:
    # safetensors reads the metadata of files only, and a file could change between two readings.
    length = int.from_bytes(content[:8], "little")
    header = TypeAdapter(dict[str, dict[str, Any]]).validate_json(content[8 : 8 + length])
    return TypeAdapter(dict[str, str]).validate_python(header["__metadata__"])


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
