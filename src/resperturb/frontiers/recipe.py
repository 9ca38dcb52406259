"""A study of the trainer's own recipe: every registered defence is a change of its configuration."""

import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from resperturb.attacks.signals import Query, queries_for
from resperturb.auditing.candidates import Candidates, candidates_of
from resperturb.auditing.design import leave_one_out
from resperturb.auditing.store import text_digest
from resperturb.auditing.trainee import Fitted, Job
from resperturb.bounds.arrays import Floats, Ints, Texts
from resperturb.bounds.audit_result import RECORD
from resperturb.data.canaries import Canaries
from resperturb.data.images import ImageSet
from resperturb.data.loading import load_column
from resperturb.data.records import Columns
from resperturb.errors import ResperturbError, UsageError
from resperturb.frontiers.api import subgroups_of
from resperturb.frontiers.defence import DEFENCES, Serve, Setting, settings_of
from resperturb.frontiers.study import StudiedSetting, Study
from resperturb.training.audited import RunTrainee, log_probabilities
from resperturb.training.checkpoint import Progress
from resperturb.training.config import DataConfig, TrainConfig, make_config
from resperturb.training.distributed import Execution, World
from resperturb.training.inputs import Inputs, load_inputs, receive
from resperturb.training.loop import resolve_config
from resperturb.training.network import check_network
from resperturb.training.steps import Steps

CHECKPOINTS = 8
# Canaries among the candidates; half of them are in each training set, as is half of the records.
CANARY_SHARE = 0.015
# Random images for defences that answer with the values of one; steps and rows that are timed.
RANDOM_IMAGES, TIMED_STEPS, TIMED_ROWS = 256, 4, 128


def checkpoints_of(epochs: int, count: int = CHECKPOINTS) -> tuple[int, ...]:
    """Choose the epochs after which models are queried: about ``count``, evenly in their logarithm.

    >>> checkpoints_of(40), checkpoints_of(3)
    ((5, 7, 9, 12, 16, 22, 30, 40), (1, 2, 3))
    """
    places = np.geomspace(max(1.0, epochs / 8), epochs, count)
    return tuple(sorted({int(place) for place in places.round()}))


@dataclass(frozen=True, eq=False)
class RecipeTrainee(RunTrainee):
    """A configuration that is trained in memory on given rows, and queried after the epochs of ``checkpoints``."""

    checkpoints: tuple[int, ...] = ()
    serve: Serve | None = None

    def digest(self) -> str:
        """Name the configuration, the checkpoints and the defence at prediction time."""
        serve = None if self.serve is None else f"{self.serve.__module__}.{self.serve.__qualname__}"
        return text_digest(repr((self.config.digest, self.checkpoints, serve)))

    def fit(self, job: Job) -> Iterator[Fitted]:
        """Train, and yield the network after each of the checkpoints.

        Raises:
            ResperturbError: The training diverged.
        """
        inputs, steps = self._begun(job)
        images, progress = inputs.table(), Progress()
        for epoch in range(1, self.config.epochs + 1):
            while progress.step < steps.per_epoch:
                outcome = steps.take(progress)
                if not math.isfinite(outcome.loss_sum):
                    raise ResperturbError(f"the training diverged in epoch {epoch}; lower its learning rate.")
            progress.start_epoch(epoch)
            if epoch in self.checkpoints:
                # The two models of a pair share a seed, and an attacker does not know the draws of the target.
                seed = int(np.random.SeedSequence([job.seed, job.number, epoch]).generate_state(1)[0])
                with steps.released() as model:
                    yield QueriedNetwork(model, self.config, images, f"epoch-{epoch:04d}", seed, self.serve)

    def seconds(self, rows: int, asked: int, draws: int) -> float:
        """Estimate the seconds of a model from a few steps and a few answers."""
        inputs = load_inputs(self.config.data)
        some = np.arange(min(rows, len(inputs.train)))
        _, steps = self._begun(Job(0, some, 0, Path()))
        progress = Progress()
        started = 0.0
        for number in range(1 + TIMED_STEPS):
            if progress.step == steps.per_epoch:
                progress.start_epoch(progress.epoch + 1)
            if number == 1:  # the first step is slow
                started = time.monotonic()
            steps.take(progress)
        each = (time.monotonic() - started) / TIMED_STEPS
        images = inputs.train.select(np.arange(min(TIMED_ROWS, len(inputs.train))))
        found = QueriedNetwork(steps.model, self.config, images, "", 0, self.serve)
        started = time.monotonic()
        queries = found.queries(np.arange(1), (1,))
        for query in queries:
            list(found.outputs(np.arange(len(images)), query))
        answer = (time.monotonic() - started) / len(images) / len(queries)
        answers = sum(query.draws for query in found.queries(np.arange(1), (draws,)))
        return self.config.epochs * steps.per_epoch * each + len(self.checkpoints) * asked * answers * answer

    def _begun(self, job: Job) -> tuple[Inputs, Steps]:
        """Build the network that a job trains."""
        config = self.config.on_rows(job.rows, job.seed)
        receive(config.data, job.shared)
        inputs = load_inputs(config.data)
        secret = None if config.seeded_noise else os.urandom(16)
        steps = config.method.steps(config, inputs.members(), Execution(job.accelerator, World(), secret))
        steps.model.train()
        return inputs, steps


@dataclass(frozen=True, eq=False)
class QueriedNetwork:
    """A network in training, as it is at a checkpoint; it is queried before the training goes on."""

    model: nn.Module
    config: TrainConfig
    images: ImageSet
    stage: str
    seed: int
    serve: Serve | None = None
    digest: str = ""

    def queries(self, some: Ints, draws: tuple[int, ...]) -> tuple[Query, ...]:
        """As it is served, and with the weights where these answer otherwise."""
        found = queries_for(self.config.is_noisy, draws)
        return (*found, Query("weights")) if self.serve is not None and len(found) == 1 else found

    def outputs(self, rows: Ints, query: Query) -> Iterator[Floats]:
        """Yield log-probabilities of every draw."""
        with torch.random.fork_rng(devices=[]):
            images = self.images.select(rows).images
            for found in log_probabilities(self.model, self.config, images, query, self.seed):
                changed = query.access == "served" and self.serve is not None
                yield self._served(found, rows) if changed else found

    def _served(self, found: Floats, rows: Ints) -> Floats:
        """Answer as the defence does at prediction time, with a random image for every row of the table."""
        assert self.serve is not None
        rng = np.random.default_rng(self.seed)
        shape = (RANDOM_IMAGES, *self.images.images.shape[1:])
        images = torch.from_numpy(rng.integers(0, 256, shape, dtype=np.uint8))
        random = next(log_probabilities(self.model, self.config, images, Query("served"), self.seed))
        return self.serve(found, random[rng.integers(RANDOM_IMAGES, size=len(self.images))[rows]])


def recipe_study(
    recipe: Mapping[str, Any],
    *,
    defences: Sequence[str] = (),
    strengths: int = 3,
    models: int = 16,
    draws: int = 16,
    seed: int = 0,
    canaries: int | None = None,
    population: int | None = None,
    subgroup_column: str | None = None,
    confidence: float = 0.95,
    margin: float = 0.02,
    noisy_checkpoints: int = CHECKPOINTS,
) -> Study:
    """Set up the study of a recipe under every defence. Other arguments are those of :func:`resperturb.frontier`.

    Args:
        recipe: The fields of :class:`~resperturb.training.TrainConfig` without a defence.
        defences: Names of registered defences; all that the network allows if empty.
        canaries: The number of canaries of all kinds together; 1.5% of the images if None.
        subgroup_column: Column of the data whose values are subgroups that are compared, such as the sex.
        noisy_checkpoints: The number of checkpoints, the last ones, at which noisy models are queried; each takes
            ``draws`` answers.

    Raises:
        UsageError: A defence is unknown, changes nothing, or does not go with the network.
    """
    plain = make_config(**recipe)
    if plain.patience is not None:
        raise UsageError("every checkpoint of a frontier is early stopping; leave patience out.")
    count = len(load_inputs(plain.data).train)
    chosen, left_out = _configurable(settings_of(tuple(defences), strengths), recipe, bool(defences))
    wanted = dict.fromkeys(one.canary for one, _ in chosen)
    each = max(2, round((CANARY_SHARE * count if canaries is None else canaries) / len(wanted) / 2) * 2)
    data = {**plain.data.model_dump(exclude={"canaries", "rows"}), "canaries": dict.fromkeys(wanted, each)}
    inputs = load_inputs(make_config(**{**recipe, "data": data}).data)
    made = inputs.canaries
    assert made is not None
    candidates = _candidates(inputs, made, plain.data.unit, population, seed)
    # What a method takes from the number of its records, it takes from those of a typical model.
    typical = candidates.rows[: len(candidates)][leave_one_out(candidates.units, models, seed).members[0]]
    settings = []
    for one, changed in chosen:
        asked = make_config(**{**changed, "data": data}).on_rows(typical, seed)
        config = resolve_config(asked, load_inputs(asked.data))
        stages = checkpoints_of(config.epochs)
        trainee = RecipeTrainee(
            config,
            name=one.name,
            checkpoints=stages[-noisy_checkpoints:] if config.is_noisy else stages,
            serve=DEFENCES[one.defence].serve,
        )
        settings.append(StudiedSetting(**one.values, trainee=trainee))
    return Study(
        subject=f"{plain.network.public} on {plain.data.spec}, {plain.epochs} epochs",
        settings=tuple(settings),
        candidates=candidates,
        models=models,
        draws=draws,
        seed=seed,
        confidence=confidence,
        margin=margin,
        subgroups=None if subgroup_column is None else _subgroups(plain.data, subgroup_column, candidates, len(made)),
        left_out=left_out,
    )


def _subgroups(data: DataConfig, column: str, candidates: Candidates, canaries: int) -> Texts:
    columns = Columns(data.image_column, data.label_column, data.group_column, data.group_pattern)
    values = load_column(data.spec, column, columns, data.limit)
    return subgroups_of(np.append(values, [None] * canaries), candidates, len(values) + canaries)


def _configurable(
    settings: Sequence[Setting], recipe: Mapping[str, Any], named: bool
) -> tuple[list[tuple[Setting, dict[str, Any]]], tuple[str, ...]]:
    """Keep the settings that can be trained; of those that were asked for by name, refuse the others."""
    found: list[tuple[Setting, dict[str, Any]]] = []
    left_out, seen = [], dict[str, str]()
    for one in settings:
        changed = one.applied(recipe)
        try:
            config = make_config(**changed)
            check_network(config)
            digest = config.digest
            if DEFENCES[one.defence].serve is None and digest in seen:
                raise UsageError(f"it changes nothing of {seen[digest]!r}.")
        except UsageError as error:
            if named or not found:
                raise UsageError(f"{one.name}: {error}") from error
            left_out.append(f"{one.name}: {error}")
            continue
        seen.setdefault(digest, one.name)
        found.append((one, changed))
    return found, tuple(left_out)


def _candidates(inputs: Inputs, canaries: Canaries, unit: str, population: int | None, seed: int) -> Candidates:
    """Make candidates of all training images and the canaries, without the images that canaries are made from."""
    table = inputs.table()
    kinds = np.append(np.full(len(inputs.train), RECORD, dtype=object), canaries.kinds.astype(object))
    found = candidates_of(
        table.labels.numpy(),
        table.groups,
        kinds,
        population=population,
        validation=canaries.left_out if len(canaries.left_out) else None,
        seed=seed,
    )
    return found if table.groups is None else replace(found, unit=unit)
