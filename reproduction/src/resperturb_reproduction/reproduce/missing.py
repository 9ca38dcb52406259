"""What the time did not allow, with its cost."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from resperturb.training import TrainConfig
from resperturb_reproduction.reproduce.declarations import (
    BY_ID,
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
Cells = Iterable[tuple[Experiment, Cell]]


def missing(found: Mapping[str, AnyResult], tables: Iterable[str]) -> Iterator[tuple[str, int, float]]:
    """List what is not measured at full length, in the order of priority.

    Yields:
        What it would show, the number of trainings with their shadow models, and the seconds on one core.
    """
    of_tables = [(BY_ID[name], cell) for name in tables for cell in BY_ID[name].cells]
    decayed = [(WEIGHT_DECAY, cell) for cell in WEIGHT_DECAY.cells]
    ensembles = [
        (experiment, cell)
        for experiment in EXPERIMENTS
        if experiment.kind == "sweep" or experiment.id == "cifar10-no-skip"
        for cell in experiment.cells
        if cell.paper is not None and cell.networks > 1
    ]
    idc = [(BY_ID["idc-table"], cell) for cell in BY_ID["idc-table"].cells]
    groups = {
        "Decay 5e-4, without input noise: three seeds": _seeds(found, decayed),
        "The same rows: the audit with 16 shadow models": _audits(found, decayed),
        "Further readings of the published row, as trajectories": _readings(found),
        "Tables I to V: three seeds": _seeds(found, of_tables),
        "Published points of ensembles, one seed": _seeds(found, ensembles),
        "DP-SGD with batches of 512, a reading of the published budgets, one seed": _large_batches(),
        "IDC cut at random, ignoring patients, one seed": _seeds({}, idc, seeds=1),
    }
    for what, configs in groups.items():
        distinct = {config.digest: config for config in configs}
        if distinct:
            yield what, len(distinct), sum(map(estimate, distinct.values()))


def _row(found: Mapping[str, AnyResult], experiment: Experiment, cell: Cell) -> Row | None:
    result = found.get(experiment.id)
    rows = result.rows if isinstance(result, Trained) else ()
    return next((r for r in rows if (r.data, r.key, r.preset) == (cell.data, cell.key, FULL.name)), None)


def _seeds(found: Mapping[str, AnyResult], cells: Cells, seeds: int | None = None) -> Iterator[TrainConfig]:
    for experiment, cell in cells:
        row = _row(found, experiment, cell)
        for seed in range(seeds or FULL.seeds_of(experiment)):
            if row is None or seed not in row.seeds:
                need = needs(experiment, cell, FULL, seed)
                yield from (need.target, *need.shadows)


def _audits(found: Mapping[str, AnyResult], cells: Cells) -> Iterator[TrainConfig]:
    for experiment, cell in cells:
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
        yield target_config(Cell(data, dpsgd=True), scale, 0)
