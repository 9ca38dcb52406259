"""Weights on disk: safetensors that say what perturbs them, so that the noise travels with the weights.

The metadata of the file holds one JSON record: the schema's version, the strategy, the names of the junctions it goes
to, and a checksum of the file. :func:`load` puts the noise back, and refuses a file that it does not understand, or
that was changed, before it touches the model.
"""

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from resperturb.errors import ResperturbError, UsageError
from resperturb.files import SEAL, sealed, write_bytes
from resperturb.perturbation.junctions import junctions
from resperturb.perturbation.perturb import SCHEMA, perturb, perturbation_record, strategy_of, unwrapped
from resperturb.perturbation.strategy import Strategy, strategy_from_dict

_WRAPPERS = (nn.DataParallel, nn.parallel.DistributedDataParallel, AveragedModel)
METADATA_KEY = "resperturb"
SHOWN = 5

M = TypeVar("M", bound=nn.Module)


def save(model: nn.Module, path: str | os.PathLike[str]) -> None:
    """Write the weights of ``model`` and what perturbs it to a safetensors file, whole or not at all.

    One that is compiled, data-parallel or averaged (``AveragedModel``) is saved under the names of the model inside.

    Raises:
        UsageError: Its weights are spread over processes, or another wrapper keeps them under other names.
        ResperturbError: The file could not be written.

    >>> import tempfile, resperturb as rp
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> save(rp.perturb(rp.models.build("resnet8", num_classes=10), rp.Additive(gamma=0.5)), path)
    >>> strategy_of(load(rp.models.build("resnet8", num_classes=10), path))
    Additive(gamma=0.5, input_std=0.25, clip_radius=None, scale='constant')
    """
    path = Path(path)
    if path.is_dir():
        raise UsageError(f"cannot save to {path}: it is a folder; name a file in it.")
    model = unwrapped(model)
    _check_whole(model)
    # One key only: safetensors writes several in an order that changes, and equal models should give equal files.
    metadata = {METADATA_KEY: json.dumps({**perturbation_record(model), "checksum": SEAL}, sort_keys=True)}
    write_bytes(path, sealed(to_bytes(_tensors(model), metadata)))


def _check_whole(model: nn.Module) -> None:
    """Refuse a model whose state is not its own weights under its own names."""
    sharded = [name for name, value in model.named_parameters() if type(value.data) is not Tensor]
    if sharded:
        raise UsageError(
            f"{sharded[0]} is a {type(model.get_parameter(sharded[0]).data).__name__}, spread over processes or "
            "replaced; gather the whole model first, and save that."
        )
    if "_fsdp_wrapped_module" in dict(model.named_children()):
        raise UsageError("the model is sharded by FSDP; gather its whole state into a plain model, and save that.")
    for name, module in model.named_modules():
        if isinstance(module, _WRAPPERS):
            raise UsageError(
                f"{name!r} in {type(model).__name__} is a {type(module).__name__}, under whose names no plain model "
                "would find its weights; save the network inside."
            )


def load(model_or_factory: M | Callable[[], M], path: str | os.PathLike[str], override: Strategy | None = None) -> M:
    """Read what :func:`save` wrote into a model of the same shape, and return the model with its noise in place.

    Args:
        model_or_factory: A model, or a function that builds one. A bare model gets the file's perturbation; one that
            is perturbed already must be perturbed as the file says.
        path: The file; or a folder that ``save_pretrained`` of transformers wrote, if the model's weights come from
            there by ``from_pretrained``: then only the perturbation is put back.
        override: Takes the place of the file's strategy.

    Raises:
        UsageError: The file is a pickle (which is refused unread), damaged, or of another model; the model is left as
            it was.
    """
    if override is not None and not isinstance(override, Strategy):
        raise UsageError(f"override must be a strategy such as Additive(gamma=0.5), not {override!r}.")
    path = Path(path)
    record, tensors = _read(path)
    model: M = model_or_factory if isinstance(model_or_factory, nn.Module) else model_or_factory()  # type: ignore[assignment]
    if not isinstance(model, nn.Module):
        raise UsageError(f"load needs a model or a function that returns one, not {model!r}.")
    inner = unwrapped(model)
    if tensors is not None:
        _check_tensors(path, inner, tensors)
    else:
        own = getattr(getattr(inner, "config", None), METADATA_KEY, None)
        if not isinstance(own, dict) or (own.get("strategy"), own.get("junctions")) != (
            record.strategy,
            record.junctions,
        ):
            raise UsageError(
                f"the model does not come from {path}; first read its weights with "
                f"{type(inner).__name__}.from_pretrained."
            )
    strategy = strategy_from_dict(record.strategy) if override is None else override
    present = strategy_of(inner)
    if present is None and strategy is not None:
        names = [junction.name for junction in junctions(inner)]
        where = None if names == record.junctions or not record.junctions else record.junctions
        try:
            perturb(inner, strategy, targets=where)
        except UsageError as error:
            raise UsageError(f"cannot put the noise of {path} into {type(inner).__name__}: {error}") from error
    elif present != strategy:
        raise UsageError(
            f"{path} was saved with {record.strategy}, and the model is perturbed by {present}; load into an "
            f"unperturbed model, or say override={present} if that is what you want."
        )
    if tensors is not None:
        inner.load_state_dict(tensors)
    return model


@dataclass(frozen=True)
class _Record:
    """What a file says about its weights, besides the weights."""

    strategy: dict[str, Any]
    junctions: list[str]
    checksum: str | None = None


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    memory: set[int] = set()
    for name, value in model.state_dict().items():
        if not isinstance(value, Tensor):
            raise UsageError(f"{name!r} in the state of the model is no tensor, and safetensors hold only tensors.")
        value = value.detach().cpu().contiguous()
        address = value.untyped_storage().data_ptr()
        # Tied weights are written once under each name: safetensors cannot share, and a tied model loads both.
        tensors[name] = value.clone() if address in memory else value
        memory.add(address)
    return tensors


def _read(path: Path) -> tuple[_Record, dict[str, Tensor] | None]:
    if path.is_dir():
        return _read_pretrained(path), None
    if not path.is_file():
        raise UsageError(f"there is no file {path} to load.")
    try:
        with open(path, "rb") as file:
            start = file.read(9)
        # A safetensors file begins with the length of its header, whose bytes may be those that begin a pickle; the
        # header itself begins with a brace.
        if start.startswith((b"PK", b"\x80")) and start[8:] != b"{":
            raise UsageError(
                f"{path} is a pickle (as torch.save writes), which can run code when it is read; it was not read. "
                "Save the model with resperturb.save."
            )
        with safe_open(path, framework="pt") as file:
            record = _record(path, (file.metadata() or {}).get(METADATA_KEY))
            if record.checksum is not None and record.checksum != _checksum(path, record.checksum):
                raise UsageError(f"{path} was changed after it was saved: its checksum does not fit.")
            return record, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise UsageError(f"{path} is not a whole safetensors file ({error}); was it cut short?") from error
    except OSError as error:
        raise ResperturbError(f"cannot read {path}: {error.strerror or error}.") from error


def _checksum(path: Path, written: str) -> str:
    """Compute the checksum of a file: its SHA-256 with a placeholder where the checksum is ``written``."""
    with open(path, "rb") as file:
        start = file.read(8)
        header = start + file.read(int.from_bytes(start, "little"))
        hashed = hashlib.sha256(header.replace(written.encode(errors="replace"), SEAL.encode(), 1))
        while chunk := file.read(2**20):
            hashed.update(chunk)
    return f"sha256:{hashed.hexdigest()}"


def _read_pretrained(folder: Path) -> _Record:
    try:
        config = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"{folder} is a folder, and no config.json of transformers can be read in it.") from error
    found = config.get(METADATA_KEY) if isinstance(config, dict) else None
    return _record(folder, None if found is None else json.dumps(found))


def _record(path: Path, text: str | None) -> _Record:
    if text is None:
        raise UsageError(
            f"{path} does not say what perturbs it: resperturb did not write it, or its model was not perturbed. "
            "Load the weights as usual, then perturb."
        )
    damaged = UsageError(f"{path} has a perturbation record that cannot be read; it is damaged.")
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise damaged from error
    if not isinstance(fields, dict) or "schema" not in fields:
        raise damaged
    if fields["schema"] != SCHEMA:
        raise UsageError(
            f"{path} has schema {fields['schema']!r}, and this resperturb reads schema {SCHEMA}; update resperturb."
        )
    strategy, names = fields.get("strategy"), fields.get("junctions")
    if not isinstance(strategy, dict) or not isinstance(names, list) or not all(isinstance(n, str) for n in names):
        raise damaged
    checksum = fields.get("checksum")  # files of older versions have none
    if not isinstance(checksum, str | None) or fields.keys() - {"schema", "strategy", "junctions", "checksum"}:
        raise damaged
    try:
        strategy_from_dict(strategy)
    except UsageError as error:
        raise UsageError(f"{path} names a perturbation that this resperturb cannot apply: {error}") from None
    return _Record(strategy, names, checksum)


def _check_tensors(path: Path, model: nn.Module, tensors: dict[str, Tensor]) -> None:
    own = model.state_dict()
    if missing := sorted(own.keys() - tensors.keys()):
        raise UsageError(f"{path} lacks weights of {type(model).__name__}: {_listed(missing)}.")
    if foreign := sorted(tensors.keys() - own.keys()):
        raise UsageError(f"{path} has weights that {type(model).__name__} lacks: {_listed(foreign)}.")
    for name, tensor in tensors.items():
        if tensor.shape != own[name].shape:
            raise UsageError(f"{path}: {name} is {tuple(tensor.shape)}, and the model's is {tuple(own[name].shape)}.")
        if tensor.is_floating_point() != own[name].is_floating_point():
            raise UsageError(f"{path}: {name} is {tensor.dtype}, and the model's is {own[name].dtype}.")


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return (", ".join(map(str, names[:SHOWN])) or "none") + more
