"""Asking the model of a run about every candidate; the answers are kept with the run and bound to its weights."""

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from resperturb.attacks.signals import Access, Query, Signals, queries_for, signals_from, signals_of
from resperturb.audits.candidates import CandidateImages
from resperturb.errors import ResperturbError
from resperturb.models.ensemble import Ensemble
from resperturb.noise import derive_key
from resperturb.perturbation import noise_off
from resperturb.sealed import Array, read_bound_arrays, write_bound_arrays
from resperturb.training.augmented import augmented
from resperturb.training.config import TrainConfig
from resperturb.training.predict import predict_draws, require_noise
from resperturb.training.run import Run

_logger = logging.getLogger(__name__)
T = TypeVar("T")

SCHEMA = 3
ANSWER_FILES = ("signals/*.npz",)
# The image, its mirror image, and both shifted once in each direction along an axis.
AUGMENTED = 10


def queries_of(config: TrainConfig, draws: Sequence[int]) -> tuple[Query, ...]:
    """Say how models of a configuration are queried: with and without noise, and the networks of an ensemble apart.

    >>> from resperturb.training.config import make_config
    >>> [query.access for query in queries_of(make_config(data={"spec": "x"}, model="en5-resnet8"), (1,))]
    ['served', 'networks']
    """
    # What was memorised in a training that augments are the augmented images.
    return queries_for(config.is_noisy, draws, config.network.networks, AUGMENTED if config.augment != "none" else 0)


def answers_of(run: Run, queried: CandidateImages, queries: Sequence[Query]) -> dict[Access, Signals]:
    """Ask the model of a run about all rows; what it answered before is read from the folder of the run."""
    return {query.access: _signals(run, queried, query) for query in queries}


def is_asked(run: Run, queried: CandidateImages, queries: Sequence[Query]) -> bool:
    """Whether the answers of :func:`answers_of` are kept already."""
    return all(_path(run, queried, query).exists() for query in queries)


def _signals(run: Run, queried: CandidateImages, query: Query) -> Signals:
    path = _path(run, queried, query)
    kept = kept_arrays(run, path, lambda arrays: signals_from(arrays, len(queried.images)))
    if kept is not None and kept.averages == query.averages:
        return kept
    logits = (draw.numpy() for draw in _draws(run, queried, query))
    found = signals_of(logits, queried.images.labels.numpy(), query.averages)
    keep_arrays(run, path, {name: np.asarray(getattr(found, name)) for name in Signals.__annotations__})
    return found


def keep_arrays(run: Run, path: Path, arrays: Mapping[str, Array]) -> None:
    """Write answers of a run, bound to it and to what was asked."""
    write_bound_arrays(path, arrays, _bound_to(run, path))


def kept_arrays(run: Run, path: Path, check: Callable[[dict[str, Array]], T]) -> T | None:
    """Read answers back; None if there are none, or if they cannot be believed: then the model is asked again.

    Args:
        run: The run that was asked.
        path: That of :func:`answer_path`.
        check: Makes of the arrays what they are, and raises a ``ResperturbError`` if they are not that.
    """
    if not path.exists():
        return None
    again = "the model is asked again"
    try:
        arrays = read_bound_arrays(path, (), _bound_to(run, path), again)
        try:
            return check(arrays)
        except ResperturbError as error:
            raise ResperturbError(f"{path} is not what was asked for ({error}); {again}.") from error
    except ResperturbError as error:
        _logger.warning("%s", error)
        return None


def _bound_to(run: Run, path: Path) -> dict[str, str]:
    return {**run.digests, "question": path.stem}


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
    if query.access == "networks":
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
    if query.access == "served" and run.config.is_noisy:
        require_noise(model, images, mean, std)
    with noise_off(model) if query.access == "weights" else nullcontext():
        yield from predict_draws(model, images, mean=mean, std=std, draws=query.draws, seed=query_seed(run))


def _path(run: Run, queried: CandidateImages, query: Query) -> Path:
    return answer_path(run, repr((SCHEMA, queried.digest, query)))


def answer_path(run: Run, what: str) -> Path:
    """Where the answers of a run to ``what`` are kept: by its digests, those of its weights among them."""
    digest = hashlib.sha256(repr((what, sorted(run.digests.items()))).encode())
    return run.path / "signals" / f"{digest.hexdigest()[:16]}.npz"
