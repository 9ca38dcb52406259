"""Audit a run: its recipe as a trainee of the audit core, and the rows whose membership is in question.

A row number means the same for every model of an audit: the training images come first, then the canaries, then the
test images, which no model is trained on.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial, reduce

import numpy as np
import torch
from torch import Tensor, nn

from resperturb.attacks.signals import Query, queries_for
from resperturb.auditing.api import RECIPE, audit_trainee
from resperturb.auditing.assess import Settings
from resperturb.auditing.candidates import Candidates, check_columns
from resperturb.auditing.design import Chance, Design, leave_one_out, one_target
from resperturb.auditing.store import text_digest
from resperturb.auditing.trainee import Fitted, Job
from resperturb.bounds.arrays import Bools, Floats, Ints
from resperturb.bounds.audit_result import RECORD, AuditResult, Subject
from resperturb.data.images import ImageSet
from resperturb.data.rows import Images, Rows, as_rows
from resperturb.engine import Engine, Shared, local_engine
from resperturb.errors import UsageError
from resperturb.noise import derive_key
from resperturb.perturbation import noise_off
from resperturb.perturbation.presence import networks_of
from resperturb.privacy import Guarantee
from resperturb.progress import Lines, duration
from resperturb.training.augment import VARIANTS, augmented
from resperturb.training.config import DataConfig, TrainConfig
from resperturb.training.folders import describe
from resperturb.training.inputs import Inputs, load_inputs, packed, receive
from resperturb.training.loop import train
from resperturb.training.predict import predict_draws, require_noise
from resperturb.training.run import AUDIT, Run, guarantee_of

# Rows in no model only break ties among those that beat all others, so a few will do.
MOST_POPULATION = 200
SEEDS = 2**31
NO_ROWS = np.zeros(0, dtype=np.int64)

ALL_IMAGES = "The run was trained on all of its images, so none is known to be left out. " + RECIPE


@lru_cache(maxsize=1)
def table_of(data: DataConfig) -> ImageSet:
    """Return the rows that audits of these data are about, without copying an image."""
    inputs = load_inputs(data)
    made = [] if inputs.canaries is None else [inputs.canaries.images]
    parts = [inputs.train, *made, inputs.test]
    images = reduce(Rows.concatenated, (as_rows(part.images) for part in parts))
    return ImageSet(images, torch.cat([part.labels for part in parts]), inputs.train.classes, None, inputs.train.name)


@dataclass(frozen=True, eq=False)
class AskedRun:
    """A finished run, model ``number`` of its audit, that can be queried about the rows of the table of ``data``."""

    run: Run
    data: DataConfig
    number: int
    stage: str = ""

    @property
    def digest(self) -> str:
        """Digest of the weights."""
        return self.run.digests["weights"]

    @cached_property
    def _model(self) -> nn.Module:
        return self.run.load_model().to("cuda" if torch.cuda.is_available() else "cpu")

    def queries(self, some: Ints, draws: tuple[int, ...]) -> tuple[Query, ...]:
        """With and without noise; the networks of an ensemble apart; augmented as the training augmented."""
        config = self.run.config
        count = len(VARIANTS) if config.augment != "none" else 0
        return queries_for(config.is_noisy, draws, config.network.networks, count)

    def outputs(self, rows: Ints, query: Query) -> Iterator[Floats]:
        """Yield log-probabilities of every draw."""
        images = as_rows(table_of(self.data).images).select(rows)
        return log_probabilities(self._model, self.run.config, images, query, self._seed(query))

    def _seed(self, query: Query) -> int:
        """Give every query of every model noise of its own: an attacker does not know the target's draws."""
        key = derive_key(b"audit", self.run.digests["config"].encode(), self.number, query.access.encode())
        return int.from_bytes(key[:6], "little")


def log_probabilities(
    model: nn.Module, config: TrainConfig, images: Images, query: Query, seed: int | None
) -> Iterator[Floats]:
    """Yield the log-probabilities of every draw of a query of a network that ``config`` trained."""
    for logits in _draws(model, config, images, query, seed):
        yield logits.double().log_softmax(dim=1).numpy()


def _draws(model: nn.Module, config: TrainConfig, images: Images, query: Query, seed: int | None) -> Iterator[Tensor]:
    asked = partial(predict_draws, mean=config.mean, std=config.std)
    if query.access == "served":
        if config.is_noisy:
            require_noise(model, images, config.mean, config.std)
        yield from asked(model, images, draws=query.draws, seed=seed)
        return
    with noise_off(model):
        if query.access == "networks":
            for network in networks_of(model):
                yield from asked(network, images, draws=1)
        elif query.access == "augmented":
            for variant in range(query.draws):
                yield from asked(model, augmented(images[:], variant), draws=1)
        else:
            yield from asked(model, images, draws=query.draws, seed=seed)


@dataclass(frozen=True, eq=False)
class RunTrainee:
    """The recipe of a run, which trains models on given rows.

    Its data name the table. ``target`` is the run that is model 0; None if every model is trained.
    """

    config: TrainConfig
    target: Run | None = None
    name: str = "run"

    @property
    def description(self) -> str:
        """The network, and what keeps it from leaking."""
        return describe(self.config)

    def digest(self) -> str:
        """Name the recipe, its data, and the weights of the target."""
        weights = "" if self.target is None else self.target.digests["weights"]
        return text_digest(f"run {self.config.digest} {weights}")

    def fit(self, job: Job) -> Iterator[Fitted]:
        """Train on the rows of the job into its folder, or give the target."""
        receive(self.config.data, job.shared)
        if job.number == 0 and self.target is not None:
            yield AskedRun(self.target, self.config.data, 0)
            return
        config = self.config.on_rows(job.rows, seed=job.seed)
        yield AskedRun(train(config, out=job.folder, accelerator=job.accelerator), self.config.data, job.number)

    def guarantee(self, delta: float, records: int) -> Guarantee:
        """Compute what the recipe proves of a model on this number of records."""
        images = load_inputs(self.config.data).train
        return guarantee_of(self.config, records, images.channels, images.size, delta)

    def shared(self) -> Shared:
        """Return the images, if they are in memory."""
        return Shared(self.config.data.fingerprint, partial(packed, self.config.data))


def audit_run(
    run: Run,
    *,
    shadows: int | None = None,
    models: int | None = None,
    draws: int | Sequence[int] = (1, 16),
    delta: float = 1e-5,
    confidence: float = 0.95,
    jobs: int | None = None,
    engine: Engine = local_engine,
    attacks: Sequence[str] = (),
    quiet: bool = False,
) -> AuditResult:
    """Audit a run; everything is kept in its folder ``audit``, and the same call resumes.

    A run on a part of its images, or with canaries, is attacked itself. For a run on all of its images without
    canaries, and with ``models``, models of its recipe are audited, each trained on half of the images. Other
    arguments are those of :func:`resperturb.audit`.

    Args:
        shadows: The number of shadow models of one target: even, at least 4; 0 for none. 16 unless ``models`` is
            given.
        models: K, for the leave-one-out design: each of K models of the recipe is a target once.

    Raises:
        UsageError: The run cannot be audited, or its folder holds an audit of another design.
        ResperturbError: Fewer than half of the models learned.
    """
    settings = Settings.of(draws, delta, confidence)
    if models is not None and shadows is not None:
        raise UsageError("shadows belongs to one target, models to the leave-one-out design; give one of them.")
    digests = run.digests  # unfinished runs are refused here
    part = run.config.data.part
    if part in ("shadow_train", "rows"):
        raise UsageError(f"{run.path} is a model of another run's attack or audit (part {part}); audit that run.")
    count = 16 if shadows is None else shadows
    seed = run.config.seed % SEEDS + 1  # so the seed of the run is no other model's
    subject: Subject = "models of this recipe"
    recipe = models is not None or (part == "all" and run.config.data.canaries is None)
    if recipe:
        candidates = recipe_candidates(run.config.data)
        units = candidates.units
        design = one_target(units, count, seed) if models is None else leave_one_out(units, models, seed)
    else:
        candidates, members, chance = target_candidates(run.config.data)
        design, subject = one_target(candidates.units, count, seed, members, chance), "this model"
    trainee = RunTrainee(run.config, None if recipe else run, run.path.resolve().name)
    if not quiet:
        _announce(run, candidates, design)
    return audit_trainee(
        trainee,
        candidates,
        design,
        settings,
        out=run.path / AUDIT,
        engine=engine,
        jobs=jobs,
        attacks=attacks,
        digests=digests,
        caveats=() if not recipe else (ALL_IMAGES if part == "all" else RECIPE,),
        subject=subject,
        quiet=quiet,
    )


def target_candidates(data: DataConfig) -> tuple[Candidates, Bools, Chance]:
    """Find whose membership in a run is in question, which of them it was trained on, and what decided that.

    The run is one of a part of its images, or with canaries.

    >>> found, members, chance = target_candidates(DataConfig(spec="fashion-sample", limit=80, part="target_train"))
    >>> len(found), int(members.sum()), chance
    (40, 20, 'cut')
    """
    inputs = load_inputs(data)
    if data.part == "all":
        images, always = NO_ROWS, inputs.member_indices
        population = len(inputs.train) + len(inputs.canary_coins) + np.arange(min(MOST_POPULATION, len(inputs.test)))
    else:
        images, always, population = inputs.candidates, NO_ROWS, _population(inputs, inputs.spare)
    members = np.concatenate([np.isin(images, inputs.member_indices), inputs.canary_coins])
    chance: Chance = "cut" if data.part == "target_train" else "coins"
    return _candidates(inputs, images, population, always), members, chance


def recipe_candidates(data: DataConfig) -> Candidates:
    """Find the candidates of an audit of a recipe: all training images but a population, and the canaries.

    >>> found = recipe_candidates(DataConfig(spec="fashion-sample", limit=80))
    >>> len(found), found.population
    (72, 8)
    """
    inputs = load_inputs(data)
    aside = np.concatenate([inputs.held_back, inputs.validation, inputs.left_out])
    images = np.setdiff1d(np.arange(len(inputs.train)), aside)
    return _candidates(inputs, images, _population(inputs, inputs.held_back), NO_ROWS)


def _population(inputs: Inputs, spare: Ints) -> Ints:
    """Choose the population among images that no model is trained on, nor any canary was made of."""
    free = np.setdiff1d(spare, inputs.left_out)
    return np.random.default_rng(inputs.data.split_seed).permutation(free)[:MOST_POPULATION]


def _candidates(inputs: Inputs, images: Ints, population: Ints, always: Ints) -> Candidates:
    made = np.zeros(0, dtype=str) if inputs.canaries is None else inputs.canaries.kinds
    kinds = np.concatenate([np.full(len(images), RECORD, dtype="<U32"), made])
    by, unit = None, RECORD
    if inputs.train.groups is not None and len(images):
        by = np.concatenate([inputs.train.groups[images], made])  # canaries are units anyway
        unit = inputs.data.unit
    units, names = check_columns(by, kinds, len(kinds))
    rows = np.concatenate([images, len(inputs.train) + np.arange(len(made)), population]).astype(np.int64)
    return Candidates(rows, table_of(inputs.data).labels.numpy()[rows], names, units, unit, always)


def _announce(run: Run, candidates: Candidates, design: Design) -> None:
    """Say how long the trainings take, if their steps take as long as the run's."""
    there = {path.stem for path in (run.path / AUDIT / "models").glob("*.npz")}
    sizes = design.members.sum(axis=1) + len(candidates.always)
    left = [n for n in np.flatnonzero(design.seeds >= 0).tolist() if f"{n:03d}" not in there]
    seconds = run.result.seconds * sum(sizes[n] for n in left) / run.result.records
    if left:
        Lines("resperturb").say(
            f"{len(left)} models to train ({len(design) - len(left)} there already): about {duration(seconds)} of "
            f"computing, as the run itself took {duration(run.result.seconds)}."
        )
