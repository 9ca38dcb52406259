"""Asking the model of a run about every candidate; the answers are kept with the run."""

import hashlib
import io
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from torch import Tensor

from resperturb.attacks.signals import Query, Signals, signals_of
from resperturb.audits.candidates import Candidates
from resperturb.errors import UsageError
from resperturb.files import write_bytes
from resperturb.models.ensemble import Ensemble
from resperturb.noise import derive_key
from resperturb.perturbation import noise_off
from resperturb.training.predict import predict_draws
from resperturb.training.run import Run

SCHEMA = 2


def collect(run: Run, asked: Candidates, query: Query) -> Signals:
    """Ask the model of a run about all rows; what was asked before is read from the folder of the run."""
    path = run.path / "signals" / f"{_digest(run, asked, query)}.npz"
    if (kept := _load(path)) is not None:
        return kept
    found = signals_of(_draws(run, asked, query), asked.images.labels, query.averages)
    buffer = io.BytesIO()
    np.savez(buffer, **{name: getattr(found, name) for name in Signals.__annotations__})
    write_bytes(path, buffer.getvalue())
    return found


def query_seed(run: Run, *parts: int) -> int:
    """Give every run, and every part of what it is asked, noise of its own.

    An attacker does not know the draws that the target will make, so shadows must not share them.
    """
    return int.from_bytes(derive_key(b"audit", run.config.digest.encode(), *parts)[:6], "little")


def _draws(run: Run, asked: Candidates, query: Query) -> Iterator[Tensor]:
    model = run.load_model()
    seed = query_seed(run)
    mean, std, images = run.config.mean, run.config.std, asked.images.images
    if query.access == "networks apart":
        if not isinstance(model, Ensemble):
            raise UsageError(f"{run.path} is not an ensemble, so it has no networks to ask apart.")
        for network in model.networks:
            with noise_off(model):
                yield from predict_draws(network, images, mean=mean, std=std, draws=1)
        return
    with noise_off(model) if query.access == "noise off" else nullcontext():
        yield from predict_draws(model, images, mean=mean, std=std, draws=query.draws, seed=seed)


def _digest(run: Run, asked: Candidates, query: Query) -> str:
    digest = hashlib.sha256(repr((SCHEMA, run.config.digest, asked.digest, query)).encode())
    digest.update(run.model_path.read_bytes())
    return digest.hexdigest()[:16]


def _load(path: Path) -> Signals | None:
    """Read signals back; None if there are none, or if the file is damaged: then they are asked for again."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in Signals.__annotations__}
    except (OSError, KeyError, ValueError, EOFError, BadZipFile):
        return None
    averages = tuple(int(number) for number in arrays.pop("averages"))
    return Signals(averages=averages, **arrays)
