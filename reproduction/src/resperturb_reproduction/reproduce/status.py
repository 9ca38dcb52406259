"""How far the reproduction is: what is trained, what is left, and how long that will take."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from resperturb.errors import ResperturbError
from resperturb.training import Run, TrainConfig
from resperturb_reproduction.reproduce.declarations import Experiment
from resperturb_reproduction.reproduce.library import runs_in, state_of
from resperturb_reproduction.reproduce.plan import estimate, kind_of, trainings
from resperturb_reproduction.reproduce.presets import Preset, reduction
from resperturb_reproduction.reproduce.results import AnyResult, Budgets, Trained, load


@dataclass(frozen=True)
class OnDisk:
    """A training on disk: whether it is finished, the share of its epochs that is done, and how long it took."""

    finished: bool
    share: float
    seconds: float | None


@dataclass(frozen=True)
class Line:
    """How far one experiment is."""

    id: str
    trainings: int
    done: int
    core_seconds_left: float
    presets: tuple[str, ...]
    complete: bool


@dataclass(frozen=True)
class Status:
    """How far all of them are; ``measured_over_planned`` corrects the planned times, by the sort of training."""

    preset: str
    runs: str
    results: str
    experiments: tuple[Line, ...]
    trainings: int
    done: int
    core_seconds_left: float
    core_seconds_in_all: float
    jobs: int
    seconds_left: float
    measured_over_planned: dict[str, float]


def status(experiments: Sequence[Experiment], preset: Preset, runs: Path, results: Path, jobs: int) -> Status:
    """Compare what is wanted with what is there; no data are read, so it answers at once.

    The time left is estimated from the measured times of finished trainings of the same sort where there are some.
    """
    there = _on_disk(runs)
    ratios = _ratios(preset, experiments, there)
    lines = []
    for experiment in experiments:
        wanted = trainings([experiment], preset)
        result = load(results, experiment.id)
        lines.append(
            Line(
                id=experiment.id,
                trainings=len(wanted),
                done=sum(_of(config, there).finished for config in wanted),
                core_seconds_left=sum(_left(config, there, ratios) for config in wanted),
                presets=() if result is None else tuple(made.preset for made in result.made),
                complete=result is not None and is_complete(experiment, result, preset),
            )
        )
    everything = trainings(experiments, preset)
    left = sum(_left(config, there, ratios) for config in everything)
    return Status(
        preset=preset.name,
        runs=str(runs),
        results=str(results),
        experiments=tuple(lines),
        trainings=len(everything),
        done=sum(_of(config, there).finished for config in everything),
        core_seconds_left=left,
        core_seconds_in_all=sum(estimate(config) * _ratio(config, ratios) for config in everything),
        jobs=jobs,
        seconds_left=left / jobs,
        measured_over_planned=ratios,
    )


def is_complete(experiment: Experiment, result: AnyResult, preset: Preset) -> bool:
    """Whether a result has rows of this preset as it is today, with every seed, audit and lower bound it asks for."""
    made = next((made for made in result.made if made.preset == preset.name), None)
    if made is None:
        return False
    if isinstance(result, Budgets):
        return not any(row.why for row in result.rows)
    if not isinstance(result, Trained):
        return True
    planned = all(data.reduced.startswith(reduction(data.name, experiment.size, preset)) for data in made.data)
    rows = {(row.data, row.key): row for row in result.rows if row.preset == preset.name}
    return planned and all(
        (row := rows.get((cell.data, cell.key))) is not None
        and len(row.seeds) >= preset.seeds_of(experiment, cell)
        and ("audit" not in experiment.attacks or row.audit is not None or row.audit_why is not None)
        for cell in experiment.cells
    )


def _on_disk(runs: Path) -> dict[str, OnDisk]:
    found = {}
    for folder in (runs, runs / ".shadows"):
        for path, config in runs_in(folder):
            state, _ = state_of(path)
            run = Run(path, config)
            if state == "finished":
                found[_unbound(config).digest] = OnDisk(True, 1.0, run.result.seconds)
            elif state == "begun":
                share = _share(run)
                found[_unbound(config).digest] = OnDisk(False, share, None)
    return found


def _share(run: Run) -> float:
    try:
        return len(run.metrics()) / run.config.epochs
    except ResperturbError:  # damaged: the training will find out how far it is
        return 0.0


def _unbound(config: TrainConfig) -> TrainConfig:
    """The configuration as it is planned: whatever images and code of its network it was bound to."""
    data = config.data.model_copy(update={"fingerprint": ""})
    return config.model_copy(update={"data": data, "network_fingerprint": ""})


def _of(config: TrainConfig, there: dict[str, OnDisk]) -> OnDisk:
    return there.get(config.digest, OnDisk(False, 0.0, None))


def _left(config: TrainConfig, there: dict[str, OnDisk], ratios: dict[str, float]) -> float:
    return (1 - _of(config, there).share) * estimate(config) * _ratio(config, ratios)


def _ratios(preset: Preset, experiments: Sequence[Experiment], there: dict[str, OnDisk]) -> dict[str, float]:
    """Measured over planned seconds, for each sort of training and for all of them."""
    seen: dict[str, list[float]] = {}
    for config in trainings(experiments, preset):
        seconds = _of(config, there).seconds
        if seconds is not None:
            for kind in (kind_of(config), "all"):
                seen.setdefault(kind, []).append(seconds / estimate(config))
    return {kind: statistics.median(values) for kind, values in seen.items()}


def _ratio(config: TrainConfig, ratios: dict[str, float]) -> float:
    return ratios.get(kind_of(config), ratios.get("all", 1.0))
