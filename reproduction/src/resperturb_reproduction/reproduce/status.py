"""What is trained, what is left, and how long that will take."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from resperturb.training import Run, TrainConfig
from resperturb_reproduction.reproduce.declarations import BY_ID, Experiment, on_page
from resperturb_reproduction.reproduce.library import audited_models, runs_in, state_of
from resperturb_reproduction.reproduce.plan import audit_trainings, described, estimate, needs, trainings
from resperturb_reproduction.reproduce.presets import PRESETS, Preset
from resperturb_reproduction.reproduce.readings import watched
from resperturb_reproduction.reproduce.results import AnyResult, Computed, Trained, load

FULL = PRESETS["paper"]
# What is to be measured at full length: which experiments, and whether their rows or the audits of these.
WANTED = (
    ("Decay 5e-4, without input noise: three seeds", ("weight-decay",), False),
    ("The same rows: the audit with 16 shadow models", ("weight-decay",), True),
    ("Further readings of the published row, as trajectories", ("readings",), False),
    ("Tables I to V: three seeds", on_page("table"), False),
    ("Sweeps and ensembles: one seed", on_page("sweeps"), False),
)


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


def missing(found: Mapping[str, AnyResult]) -> Iterator[tuple[str, int, float]]:
    """List what is not measured at full length, in the order of priority; a training counts where it comes first.

    Yields:
        What it would show, the number of trainings with their shadow models, and the seconds on one core.
    """
    seen: set[str] = set()
    for what, ids, audit in WANTED:
        wanted = (config for name in ids for config in _left(found, BY_ID[name], audit))
        left = {config.digest: config for config in wanted if config.digest not in seen}
        seen |= left.keys()
        if left:
            yield what, len(left), sum(map(estimate, left.values()))


def _left(found: Mapping[str, AnyResult], experiment: Experiment, audit: bool) -> Iterator[TrainConfig]:
    result = found.get(experiment.id)
    rows = {(r.data, r.key): r for r in result.rows if r.preset == FULL.name} if isinstance(result, Trained) else {}
    ended = {(one.data, one.name) for one in watched(result) if one.finished} if isinstance(result, Computed) else ()
    for cell in experiment.cells:
        row = rows.get((cell.data, cell.key))
        done: Sequence[int] = () if row is None else (0,) * (row.audit is not None) if audit else row.seeds
        for seed in range(1 if audit else FULL.seeds_of(experiment)):
            if seed not in done and (cell.data, cell.name) not in ended:
                need = needs(experiment, cell, FULL, seed, audit)
                yield from need.shadows.values() if audit else (need.target, *need.shadows.values())
