"""Which trainings an experiment takes at a preset, in what order, and how long they will be."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import resperturb_reproduction.nesterov  # noqa: F401 - registers the method
from resperturb.models import parse_name
from resperturb.perturbation import Additive, Multiplicative, Strategy
from resperturb.training import TrainConfig, make_config
from resperturb_reproduction.attackers import shadow_config
from resperturb_reproduction.reproduce.declarations import Cell, Experiment
from resperturb_reproduction.reproduce.presets import STAND_IN, Preset, Scale

# Training images and pixels of the sets; of IDC, of the subset this was planned with.
SIZES = {
    "mnist": (60_000, 28 * 28),
    "cifar10": (50_000, 32 * 32),
    "cifar100": (50_000, 32 * 32),
    "idc": (9_038, 50 * 50),
    "idc-random": (9_178, 50 * 50),
    STAND_IN: (4_000, 28 * 28),
}
# Seconds on one core of the machine this was planned on; `status` corrects them by what it finds measured.
SECONDS_AN_EPOCH = 12.5  # ResNet8, 12,500 images of 32x32
BFLOAT16_SHARE = 0.5  # of the time in 32 bits, on a processor that computes in it
SECONDS_TO_START = 2.0


@dataclass(frozen=True)
class Needs:
    """The trainings that one row takes for one seed: the model, and each attack's shadow model."""

    target: TrainConfig
    shadows: dict[str, TrainConfig]


@dataclass(frozen=True)
class Unit:
    """A piece of an experiment that is finished together: the rows of one seed, or the audit of its rows."""

    experiment: Experiment
    seed: int
    audit: bool = False


def _strategy(cell: Cell) -> Strategy | None:
    extra: dict[str, Any] = dict(cell.noise) | ({} if cell.pi is None else {"input_std": cell.pi})
    if cell.additive:
        return Additive(cell.additive, **extra)
    return Multiplicative(cell.multiplicative, **extra) if cell.multiplicative else None


@cache
def target_config(cell: Cell, scale: Scale, seed: int) -> TrainConfig:
    """Say how the model of a row is trained; every seed has its own quarters too.

    >>> config = target_config(Cell("mnist", dpsgd=True), Scale("mnist", 200, 100), seed=1)
    >>> config.epochs, config.norm, config.schedule, config.data.split_seed
    (100, 'group', 'quarter', 1)
    """
    values: dict[str, Any] = {
        "data": {"spec": scale.spec, "limit": scale.limit, "split_seed": seed, "part": "target_train"},
        "model": cell.model,
        "skip": cell.skip,
        "perturbation": _strategy(cell),
        "epochs": scale.epochs,
        "batch_size": scale.batch_size,
        "schedule": scale.schedule,
        # Said for networks of our own too, which have other defaults.
        "optimizer": "sgd",
        "warmup_epochs": 0,
        "lr": 0.1,
        "momentum": 0.9,
        "weight_decay": 1e-4,
        "normalization": "half",
        "augment": "none",
        "seed": seed,
        "seeded_noise": True,
        **dict(cell.changes),
    }
    values["epochs"] = min(values["epochs"], scale.epochs)
    if cell.dpsgd:
        values.update(epochs=scale.dpsgd_epochs, batch_size=scale.dpsgd_batch_size)
        values.update(schedule="quarter", method={"name": "dpsgd"})
    return make_config(**values)


def paper_shadow(experiment: Experiment, cell: Cell, scale: Scale, seed: int) -> TrainConfig:
    """Say how the paper's attacker trains: a standard network, whatever the target is."""
    standard = Cell(cell.data, changes=experiment.standard)
    return shadow_config(target_config(standard, scale, seed))


def needs(experiment: Experiment, cell: Cell, preset: Preset, seed: int, audit: bool = False) -> Needs:
    """List the trainings that a row takes: of the audit, or else of the other attacks."""
    scale = preset.scale(cell.data, experiment.size)
    target = target_config(cell, scale, seed)
    if audit:
        return Needs(target, {f"audit {n}": c for n, c in enumerate(audit_trainings(target, preset.shadows))})
    shadows = {"paper": paper_shadow(experiment, cell, scale, seed), "adaptive": shadow_config(target)}
    return Needs(target, {name: config for name, config in shadows.items() if name in experiment.attacks})


def audit_trainings(target: TrainConfig, count: int) -> tuple[TrainConfig, ...]:
    """Stand in for the shadow models of an audit in plans; the audit trains them, on rows that coins choose."""
    changed = (
        {
            "data": target.data.model_copy(update={"part": "audit", "subset_seed": 2 + number}),
            "seed": target.seed + 1 + number,
        }
        for number in range(count)
    )
    return tuple(target.model_copy(update=changes) for changes in changed)


def needs_of(unit: Unit, preset: Preset) -> list[Needs]:
    """List the trainings of a unit by row; ensembles are not audited."""
    experiment = unit.experiment
    if unit.audit:
        cells = [cell for cell in experiment.cells if cell.networks == 1]
    else:
        cells = [cell for cell in experiment.cells if unit.seed < preset.seeds_of(experiment)]
    return [needs(experiment, cell, preset, unit.seed, unit.audit) for cell in cells]


def rounds(experiments: Iterable[Experiment], preset: Preset) -> list[list[Unit]]:
    """Put the work in order: the first seed of every table, the audits, the other seeds, everything else.

    Whoever stops early has every table, if only from one seed.
    """
    experiments = list(experiments)
    tables = [e for e in experiments if e.size == "table" and e.cells]
    others = [e for e in experiments if e.cells and e not in tables]
    ordered = [
        [Unit(e, 0) for e in tables],
        [Unit(e, 0, audit=True) for e in tables if "audit" in e.attacks],
        *([Unit(e, seed) for e in tables] for seed in range(1, preset.seeds)),
        [Unit(e, 0) for e in others],
    ]
    return [units for units in ordered if units]


def trainings(experiments: Iterable[Experiment], preset: Preset) -> list[TrainConfig]:
    """Every training of the experiments, each once, in the order of the rounds."""
    units = (unit for units in rounds(experiments, preset) for unit in units)
    needed = (need for unit in units for need in needs_of(unit, preset))
    configs = (config for need in needed for config in (need.target, *need.shadows.values()))
    return list({config.digest: config for config in configs}.values())


def described(config: TrainConfig) -> str:
    """Name a training for people.

    >>> data = {"spec": "mnist", "part": "target_train"}
    >>> described(make_config(data=data, perturbation={"name": "additive", "gamma": 2.5}))
    'resnet8 on mnist, additive 2.5, target_train, seed 0'
    """
    noise = config.perturbation
    kind = "" if noise is None else f", {noise.name} {getattr(noise, 'gamma', 0.0):g}"
    method = f" by {config.method.title}" if config.method.private else ""
    return f"{config.model}{method} on {config.data.spec}{kind}, {config.data.part}, seed {config.seed}"


def estimate(config: TrainConfig) -> float:
    """Guess the seconds that a training takes on one core.

    >>> round(estimate(make_config(data={"spec": "cifar10"}, epochs=100)))
    1252
    """
    images, pixels = SIZES.get(config.data.spec, SIZES["cifar10"])
    records = min(images, config.data.limit or images) / 4
    networks = parse_name(config.model).networks
    share = 1.0 if config.precision == "32-true" else BFLOAT16_SHARE
    work = share * SECONDS_AN_EPOCH * config.epochs * networks * records * pixels / (12_500 * 1024)
    return SECONDS_TO_START + config.method.relative_cost * work
