"""How far the reproduction is: what is trained, what is left, and how long that will take."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from resperturb.training import Run, TrainConfig
from resperturb_reproduction.reproduce.declarations import Experiment
from resperturb_reproduction.reproduce.library import audited_models, runs_in, state_of
from resperturb_reproduction.reproduce.plan import audit_trainings, described, estimate, trainings
from resperturb_reproduction.reproduce.presets import Preset, reduction
from resperturb_reproduction.reproduce.results import AnyResult, Trained, load


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
        lines.append(
            Line(
                id=experiment.id,
                trainings=len(wanted),
                missing=tuple(map(described, left(wanted))),
                core_seconds_left=seconds(wanted),
                presets=() if result is None else tuple(made.preset for made in result.made),
                complete=result is not None
                and (isinstance(result, Trained) or not left(wanted))
                and is_complete(experiment, result, preset),
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


def is_complete(experiment: Experiment, result: AnyResult, preset: Preset) -> bool:
    """Say whether a result has rows of this preset as it is today, with every seed and audit it asks for."""
    made = next((made for made in result.made if made.preset == preset.name), None)
    if made is None or not isinstance(result, Trained):
        return made is not None
    planned = all(data.reduced.startswith(reduction(data.name, experiment.size, preset)) for data in made.data)
    rows = {(row.data, row.key): row for row in result.rows if row.preset == preset.name}
    return planned and all(
        (row := rows.get((cell.data, cell.key))) is not None
        and len(row.seeds) >= preset.seeds_of(experiment)
        and ("audit" not in experiment.attacks or cell.networks > 1 or row.audit is not None or bool(row.why))
        for cell in experiment.cells
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
