"""What the time did not allow, with its cost."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from resperturb.training import TrainConfig
from resperturb_reproduction.reproduce.declarations import (
    BY_ID,
    DPSGD,
    EXPERIMENTS,
    READINGS,
    WEIGHT_DECAY,
    Cell,
    Experiment,
)
from resperturb_reproduction.reproduce.plan import estimate, needs, target_config
from resperturb_reproduction.reproduce.presets import PRESETS
from resperturb_reproduction.reproduce.readings import watched
from resperturb_reproduction.reproduce.results import AnyResult, Computed, Row, Trained

FULL = PRESETS["paper"]


@dataclass(frozen=True)
class Missing:
    """Trainings that were not made.

    Attributes:
        what: What they would show.
        trainings: The number of trainings, shadow models included.
        core_seconds: The estimated time on one core.
    """

    what: str
    trainings: int
    core_seconds: float


def missing(found: Mapping[str, AnyResult], tables: Iterable[str]) -> tuple[Missing, ...]:
    """List what is not measured at full length, in the order of priority."""
    of_tables = [BY_ID[name] for name in tables]
    points = [
        (experiment, cell)
        for experiment in EXPERIMENTS
        if experiment.kind == "sweep" or experiment.id == "cifar10-no-skip"
        for cell in experiment.cells
        if cell.paper is not None and cell.variant.networks > 1 and _row(found, experiment, cell) is None
    ]
    groups = {
        "Decay 5e-4, without input noise: three seeds": _seeds(found, [WEIGHT_DECAY]),
        "The same rows: the audit with 16 shadow models": _audits(found, WEIGHT_DECAY),
        "Further readings of the published row, as trajectories": _readings(found),
        "Tables I to V: three seeds": _seeds(found, of_tables),
        "Published points of ensembles, one seed": (
            config for experiment, cell in points for config in _with_shadows(experiment, cell, 0)
        ),
        "DP-SGD with batches of 512, which the published budgets imply, one seed": _large_batches(),
        "IDC cut at random, ignoring patients, one seed": (
            config for cell in BY_ID["idc-table"].cells for config in _with_shadows(BY_ID["idc-table"], cell, 0)
        ),
    }
    lines = []
    for what, configs in groups.items():
        distinct = {config.digest: config for config in configs}
        if distinct:
            lines.append(Missing(what, len(distinct), sum(map(estimate, distinct.values()))))
    return tuple(lines)


def _row(found: Mapping[str, AnyResult], experiment: Experiment, cell: Cell) -> Row | None:
    result = found.get(experiment.id)
    rows = result.rows if isinstance(result, Trained) else ()
    return next((r for r in rows if (r.data, r.key, r.preset) == (cell.data, cell.key, FULL.name)), None)


def _with_shadows(experiment: Experiment, cell: Cell, seed: int) -> tuple[TrainConfig, ...]:
    need = needs(experiment, cell, FULL, seed)
    return (need.target, *need.shadows)


def _seeds(found: Mapping[str, AnyResult], experiments: Iterable[Experiment]) -> Iterator[TrainConfig]:
    for experiment in experiments:
        for cell in experiment.cells:
            row = _row(found, experiment, cell)
            for seed in range(FULL.seeds_of(experiment, cell)):
                if row is None or seed not in row.seeds:
                    yield from _with_shadows(experiment, cell, seed)


def _audits(found: Mapping[str, AnyResult], experiment: Experiment) -> Iterator[TrainConfig]:
    for cell in experiment.cells:
        row = _row(found, experiment, cell)
        if row is None or row.audit is None:
            yield from needs(experiment, cell, FULL, 0, audit=True).shadows


def _readings(found: Mapping[str, AnyResult]) -> Iterator[TrainConfig]:
    result = found.get("readings")
    seen = watched(result) if isinstance(result, Computed) else ()
    done = {(one.data, one.name) for one in seen if one.finished}
    for cell in READINGS:
        if cell not in WEIGHT_DECAY.cells and (cell.data, cell.name) not in done:
            yield target_config(cell, FULL.scale(cell.data, "choice"), 0)


def _large_batches() -> Iterator[TrainConfig]:
    for data, epochs in (("cifar10", 200), ("idc", 100)):
        scale = replace(FULL.scale(data, "table"), dpsgd_epochs=epochs, dpsgd_batch_size=512)
        yield target_config(Cell(data, DPSGD), scale, 0)
