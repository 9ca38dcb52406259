"""What is trained, what is left, and how long that will take."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from resperturb.training import Run, TrainConfig
from resperturb_reproduction.reproduce.declarations import (
    BY_ID,
    EXPERIMENTS,
    READINGS,
    WEIGHT_DECAY,
    Cell,
    Experiment,
)
from resperturb_reproduction.reproduce.library import audited_models, runs_in, state_of
from resperturb_reproduction.reproduce.plan import (
    audit_trainings,
    described,
    estimate,
    needs,
    target_config,
    trainings,
)
from resperturb_reproduction.reproduce.presets import PRESETS, Preset
from resperturb_reproduction.reproduce.readings import watched
from resperturb_reproduction.reproduce.results import AnyResult, Computed, Row, Trained, load

FULL = PRESETS["paper"]
Cells = Iterable[tuple[Experiment, Cell]]


@dataclass(frozen=True)
class Line:
    """How far one experiment is; ``missing`` names the trainings that are left, in their order."""

    id: str
    trainings: int
    missing: tuple[str, ...]
    core_seconds_left: float
    presets: tuple[str, ...]
    complete: bool


@dataclass(frozen=True)
class Status:
    """How far all of them are; ``measured_over_planned`` corrects the planned times, None before any is measured."""

    preset: str
    runs: str
    results: str
    experiments: tuple[Line, ...]
    trainings: int
    done: int
    core_seconds_left: float
    jobs: int
    measured_over_planned: float | None


def status(experiments: Sequence[Experiment], preset: Preset, runs: Path, results: Path, jobs: int) -> Status:
    """Compare what is wanted with what is there; no data are read, so it answers at once."""
    there = _finished(runs)
    everything = trainings(experiments, preset)
    finished = [config for config in everything if config.digest in there]
    measured = sum(there[config.digest] for config in finished)
    ratio = measured / sum(map(estimate, finished)) if finished else None

    def left(wanted: Sequence[TrainConfig]) -> list[TrainConfig]:
        return [config for config in wanted if config.digest not in there]

    def seconds(wanted: Sequence[TrainConfig]) -> float:
        return (ratio or 1.0) * sum(map(estimate, left(wanted)))

    lines = []
    for experiment in experiments:
        wanted, result = trainings([experiment], preset), load(results, experiment.id)
        presets = () if result is None else tuple(made.preset for made in result.made)
        lines.append(
            Line(
                id=experiment.id,
                trainings=len(wanted),
                missing=tuple(map(described, left(wanted))),
                core_seconds_left=seconds(wanted),
                presets=presets,
                complete=preset.name in presets and not left(wanted),
            )
        )
    return Status(
        preset=preset.name,
        runs=str(runs),
        results=str(results),
        experiments=tuple(lines),
        trainings=len(everything),
        done=len(finished),
        core_seconds_left=seconds(everything),
        jobs=jobs,
        measured_over_planned=ratio,
    )


def _finished(runs: Path) -> dict[str, float]:
    """Give the seconds of every finished training by its digest as it was planned, bound to no images and no code."""
    found = {}
    for folder in (runs, runs / ".shadows"):
        for path, config in runs_in(folder):
            data = config.data.model_copy(update={"fingerprint": ""})
            planned = config.model_copy(update={"data": data, "network_fingerprint": ""})
            if state_of(path)[0] == "finished":
                found[planned.digest] = Run(path, config).result.seconds
            models = audited_models(path)
            for model, stand_in in zip(models, audit_trainings(planned, len(models)), strict=True):
                found[stand_in.digest] = model.result.seconds
    return found


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
                yield from (need.target, *need.shadows.values())


def _audits(found: Mapping[str, AnyResult], cells: Cells) -> Iterator[TrainConfig]:
    for experiment, cell in cells:
        row = _row(found, experiment, cell)
        if row is None or row.audit is None:
            yield from needs(experiment, cell, FULL, 0, audit=True).shadows.values()


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
