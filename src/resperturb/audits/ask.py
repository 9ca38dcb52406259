"""Asking the model of a run about every candidate; the answers are kept with the run and bound to its weights."""

import hashlib
import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor, nn

from resperturb.attacks.augmented import augmented
from resperturb.attacks.signals import Access, Query, Signals, signals_of
from resperturb.audits.candidates import CandidateImages
from resperturb.files import write_bytes
from resperturb.models.ensemble import Ensemble
from resperturb.models.names import parse_name
from resperturb.noise import derive_key
from resperturb.perturbation import noise_off
from resperturb.training.config import TrainConfig
from resperturb.training.predict import predict_draws, require_noise
from resperturb.training.run import Run

SCHEMA = 2
ANSWER_FILES = ("signals/*.npz",)
# The image, its mirror image, and both shifted once in each direction along an axis.
AUGMENTED = 10


def queries_of(config: TrainConfig, draws: Sequence[int]) -> tuple[Query, ...]:
    """Say how models of a configuration are queried: with and without noise, and the networks of an ensemble apart.

    >>> from resperturb.training.config import make_config
    >>> [query.access for query in queries_of(make_config(data={"spec": "x"}, model="en5-resnet8"), (1,))]
    ['noise off', 'networks apart']
    """
    noisy = config.perturbation is not None and config.perturbation.is_noisy
    queries = [Query("noise on", tuple(sorted(set(draws))))] if noisy else []
    queries.append(Query("noise off"))
    networks = parse_name(config.model).networks
    if networks > 1:
        queries.append(Query("networks apart", (networks,)))
    if config.augment != "none":  # what was memorised are the augmented images
        queries.append(Query("augmented", (AUGMENTED,)))
    return tuple(queries)


def answers_of(run: Run, queried: CandidateImages, queries: Sequence[Query]) -> dict[Access, Signals]:
    """Ask the model of a run about all rows; what it answered before is read from the folder of the run."""
    return {query.access: _signals(run, queried, query) for query in queries}


def is_asked(run: Run, queried: CandidateImages, queries: Sequence[Query]) -> bool:
    """Whether the answers of :func:`answers_of` are kept already."""
    return all(_path(run, queried, query).exists() for query in queries)


def _signals(run: Run, queried: CandidateImages, query: Query) -> Signals:
    path = _path(run, queried, query)
    kept = _load(path, len(queried.images))
    if kept is not None:
        return kept
    found = signals_of(_draws(run, queried, query), queried.images.labels, query.averages)
    keep_arrays(path, {name: np.asarray(getattr(found, name)) for name in Signals.__annotations__})
    return found


def keep_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write arrays with a checksum."""
    buffer = io.BytesIO()
    np.savez(buffer, checksum=np.array(_checksum(arrays)), **arrays)  # type: ignore[arg-type]
    write_bytes(path, buffer.getvalue())


def kept_arrays(path: Path, names: Iterable[str]) -> dict[str, np.ndarray] | None:
    """Read arrays back; None if there are none, or if the file is damaged: then the model is asked again."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in names}
            return arrays if str(file["checksum"]) == _checksum(arrays) else None
    except (OSError, KeyError, ValueError, EOFError, BadZipFile):
        return None


def query_seed(run: Run, *parts: int) -> int:
    """Give every run, and every query of it, noise of its own.

    An attacker does not know the draws that the target will make, so shadow models must not share them.
    """
    return int.from_bytes(derive_key(b"audit", run.config.digest.encode(), *parts)[:6], "little")


def model_here(run: Run) -> nn.Module:
    """Load the model of a run onto the GPU of this process, if it has one."""
    return run.load_model().to("cuda" if torch.cuda.is_available() else "cpu")


def _draws(run: Run, queried: CandidateImages, query: Query) -> Iterator[Tensor]:
    model = model_here(run)
    mean, std, images = run.config.mean, run.config.std, queried.images.images
    if query.access == "networks apart":
        assert isinstance(model, Ensemble)
        for network in model.networks:
            with noise_off(model):
                yield from predict_draws(network, images, mean=mean, std=std, draws=1)
        return
    if query.access == "augmented":
        for variant in range(query.draws):
            shown = augmented(images[:], variant)
            with noise_off(model):
                yield from predict_draws(model, shown, mean=mean, std=std, draws=1)
        return
    if query.access == "noise on":
        require_noise(model, images, mean, std)
    with noise_off(model) if query.access == "noise off" else nullcontext():
        yield from predict_draws(model, images, mean=mean, std=std, draws=query.draws, seed=query_seed(run))


def _path(run: Run, queried: CandidateImages, query: Query) -> Path:
    return answer_path(run, repr((SCHEMA, run.config.digest, queried.digest, query)))


def answer_path(run: Run, what: str) -> Path:
    """Where the answers of a run to ``what`` are kept: bound to its weights."""
    digest = hashlib.sha256(what.encode())
    digest.update(run.model_path.read_bytes())
    return run.path / "signals" / f"{digest.hexdigest()[:16]}.npz"


def _checksum(arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(name.encode() + np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


def _load(path: Path, rows: int) -> Signals | None:
    arrays = kept_arrays(path, Signals.__annotations__)
    if arrays is None or len(arrays["confidence"]) != rows:
        return None
    averages = tuple(int(number) for number in arrays.pop("averages"))
    return Signals(averages=averages, **arrays)
