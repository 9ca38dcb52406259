"""Asking the model of a run about every candidate; the answers are kept with the run and bound to its weights."""

import hashlib
import io
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor

from resperturb.attacks.augmented import augmented
from resperturb.attacks.signals import Access, Query, Signals, signals_of
from resperturb.audits.candidates import Asked, asked_about
from resperturb.files import write_bytes
from resperturb.models.ensemble import Ensemble
from resperturb.models.names import parse_name
from resperturb.noise import derive_key
from resperturb.perturbation import noise_off
from resperturb.training.config import DataConfig, TrainConfig
from resperturb.training.predict import predict_draws, require_noise
from resperturb.training.run import Run

SCHEMA = 2
ANSWER_FILES = "signals/*.npz"
# The image, its mirror image, and both shifted once in each direction along an axis.
AUGMENTED = 10


@dataclass(frozen=True)
class AskAfterTraining:
    """Ask a model about the candidates of an audit where it was trained; for :func:`resperturb.engine.train_many`."""

    data: DataConfig
    queries: tuple[Query, ...]

    def __call__(self, run: Run) -> None:
        """Ask, unless the answers are there already; the shadows of the paper's attack are asked by that attack."""
        if run.config.data.part == "shadow_train":
            return
        answers_of(run, asked_about(self.data), self.queries)


def queries_of(config: TrainConfig, draws: Sequence[int]) -> tuple[Query, ...]:
    """Say how the models of a configuration are asked: with and without noise, and the networks of an ensemble apart.

    >>> from resperturb.training.config import make_config
    >>> [query.access for query in queries_of(make_config(data={"spec": "x"}, model="en5-resnet8"), (1,))]
    ['noise off', 'networks apart']
    """
    noisy = config.strategy is not None and config.strategy.is_noisy
    queries = [Query("noise on", tuple(sorted(set(draws))))] if noisy else []
    queries.append(Query("noise off"))
    networks = parse_name(config.model).networks
    if networks > 1:
        queries.append(Query("networks apart", (networks,)))
    if config.augment != "none":  # what was memorised are the augmented images
        queries.append(Query("augmented", (AUGMENTED,)))
    return tuple(queries)


def answers_of(run: Run, asked: Asked, queries: Sequence[Query]) -> dict[Access, Signals]:
    """Ask the model of a run about all rows; what was asked before is read from the folder of the run."""
    return {query.access: _signals(run, asked, query) for query in queries}


def _signals(run: Run, asked: Asked, query: Query) -> Signals:
    path = run.path / "signals" / f"{_digest(run, asked, query)}.npz"
    kept = _load(path, len(asked.images))
    if kept is not None:
        return kept
    found = signals_of(_draws(run, asked, query), asked.images.labels, query.averages)
    buffer = io.BytesIO()
    arrays = {name: np.asarray(getattr(found, name)) for name in Signals.__annotations__}
    np.savez(buffer, checksum=np.array(_checksum(arrays)), **arrays)  # type: ignore[arg-type]
    write_bytes(path, buffer.getvalue())
    return found


def query_seed(run: Run, *parts: int) -> int:
    """Give every run, and every part of what it is asked, noise of its own.

    An attacker does not know the draws that the target will make, so shadow models must not share them.
    """
    return int.from_bytes(derive_key(b"audit", run.config.digest.encode(), *parts)[:6], "little")


def _draws(run: Run, asked: Asked, query: Query) -> Iterator[Tensor]:
    # Where the task is that asks: on its GPU if it has one.
    model = run.load_model().to("cuda" if torch.cuda.is_available() else "cpu")
    mean, std, images = run.config.mean, run.config.std, asked.images.images
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


def _digest(run: Run, asked: Asked, query: Query) -> str:
    digest = hashlib.sha256(repr((SCHEMA, run.config.digest, asked.digest, query)).encode())
    digest.update(run.model_path.read_bytes())
    return digest.hexdigest()[:16]


def _checksum(arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(name.encode() + np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


def _load(path: Path, rows: int) -> Signals | None:
    """Read signals back; None if there are none, or if the file is damaged: then they are asked for again."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in Signals.__annotations__}
            sound = str(file["checksum"]) == _checksum(arrays)
    except (OSError, KeyError, ValueError, EOFError, BadZipFile):
        return None
    if not sound or len(arrays["confidence"]) != rows:
        return None
    averages = tuple(int(number) for number in arrays.pop("averages"))
    return Signals(averages=averages, **arrays)
