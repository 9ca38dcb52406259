"""Do the work of experiments: train what is missing, attack, measure, and say what came out.

Everything is a run or an outcome on disk, so whatever stops this loses at most the step it was in; called again it
resumes there.
"""

import math
import os
from collections import ChainMap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from resperturb.errors import ResperturbError, UsageError
from resperturb.training import DataConfig, InterruptedTrainingError, Run, TrainConfig, load_inputs
from resperturb_reproduction.attack_network import UNITS
from resperturb_reproduction.reproduce.declarations import Cell, Experiment
from resperturb_reproduction.reproduce.functions import FUNCTIONS, generalisation
from resperturb_reproduction.reproduce.library import Library, audited_models
from resperturb_reproduction.reproduce.measures import (
    AttackFound,
    describe_data,
    kept_audit,
    measure_answers,
    measure_attack,
    measure_audit,
)
from resperturb_reproduction.reproduce.plan import Unit, described, needs, needs_of, rounds, target_config
from resperturb_reproduction.reproduce.presets import Preset
from resperturb_reproduction.reproduce.results import AnyResult, AuditSummary, Row, Spread, Trained, made_now
from resperturb_reproduction.reproduce.verdicts import accuracy_error, spread

OnResult = Callable[[AnyResult], None]
AUCS = {"paper": "auc", "adaptive": "adaptive_auc"}


def run_experiments(
    experiments: Sequence[Experiment], preset: Preset, library: Library, on_result: OnResult = lambda result: None
) -> None:
    """Run experiments; ``on_result`` is called whenever one has more to show than before.

    What is computed comes first, with the readings, whose trainings must be watched from their start. Then come the
    tables, then everything else. A library that may not train measures what is there.
    """
    require_data(experiments, preset)
    for experiment in experiments:
        if experiment.id in FUNCTIONS:
            library.say(f"{experiment.id}: computing")
            on_result(FUNCTIONS[experiment.id](experiment, preset, library))
    for units in rounds((e for e in experiments if e.id not in FUNCTIONS), preset):
        _run_round(units, preset, library, on_result)


def require_data(experiments: Iterable[Experiment], preset: Preset) -> None:
    """Find out that data are missing before the work, not after hours of it."""
    users: dict[tuple[str, int | None], list[str]] = {}
    for experiment in experiments:
        for scale in {preset.scale(data, experiment.size) for data in experiment.data}:
            users.setdefault((scale.spec, scale.limit), []).append(experiment.id)
    missing = []
    for (spec, limit), ids in users.items():
        try:
            load_inputs(DataConfig(spec=spec, limit=limit))
        except ResperturbError as error:
            missing.append(f"the data set {spec!r} is needed for {', '.join(ids)}. {error} ")
    if missing:
        raise UsageError("".join(missing) + "Experiments on data that are there can be run by their IDs.")


def _run_round(units: Sequence[Unit], preset: Preset, library: Library, on_result: OnResult) -> None:
    waiting = {id(unit): {c.digest for c in map(library.bound, _configs(unit, preset))} for unit in units}
    done: set[str] = set()

    def measure_what_is_complete() -> None:
        for unit in units:
            if id(unit) in waiting and waiting[id(unit)] <= done:
                del waiting[id(unit)]
                library.say(f"{unit.experiment.id}: {'auditing' if unit.audit else 'attacking'}")
                on_result(measure(unit.experiment, preset, library, unit.audit))

    def note(run: Run) -> None:
        done.add(run.config.digest)
        seconds = run.result.seconds
        library.say(f"{len(done)} of {len(configs)}: {described(run.config)}: {seconds:.0f} s, {run.config.digest}")
        measure_what_is_complete()

    configs = {c.digest: c for unit in units for c in map(library.bound, _configs(unit, preset))}
    done |= {digest for digest, config in configs.items() if library.get(config) is not None}
    library.train(configs.values(), note)
    done |= configs.keys()  # with those that failed
    measure_what_is_complete()


def _configs(unit: Unit, preset: Preset) -> list[TrainConfig]:
    """List what is trained before a unit is measured; an audit trains its shadow models itself."""
    needed = needs_of(unit, preset)
    return [c for need in needed for c in (need.target, *(() if unit.audit else need.shadows.values()))]


@dataclass(frozen=True)
class _Seed:
    """One training of a row, and what was measured of it: each metric with its sampling error."""

    number: int
    run: Run
    attacks: dict[str, AttackFound]
    values: dict[str, tuple[float, float]]
    trained: dict[str, float]
    why: tuple[str, ...]


def measure(experiment: Experiment, preset: Preset, library: Library, audit: bool = False) -> Trained:
    """Measure an experiment by the runs that are there; with ``audit`` make the audits that are missing."""
    data = {name: describe_data(name, experiment.size, preset) for name in experiment.data}
    every = [_row(experiment, cell, preset, library, audit) for cell in experiment.cells]
    rows = tuple(row for row in every if row.seeds or row.why)
    used = {run: seconds for row in rows for run, seconds in row.trained.items()}
    made = made_now(preset, tuple(data.values()), len(used), sum(used.values()))
    theorem = generalisation(experiment, preset, rows) if experiment.kind == "generalisation" and rows else None
    return Trained(experiment.id, experiment.kind, (made,), rows, theorem)


def _row(experiment: Experiment, cell: Cell, preset: Preset, library: Library, make_audit: bool) -> Row:
    every = (_one_seed(experiment, cell, preset, library, seed) for seed in range(preset.seeds_of(experiment)))
    found = [one for one in every if one is not None]
    config = target_config(cell, preset.scale(cell.data, experiment.size), 0)
    whys = {why for one in found for why in one.why} | ({library.failure(config)} - {None})
    audit: AuditSummary | None = None
    audited: dict[str, float] = {}
    if "audit" in experiment.attacks and found and found[0].number == 0 and cell.networks == 1:
        audit, why = _audit(found[0].run, preset, library, make_audit)
        whys |= {why} - {None}
        if not why:
            audited = {run.config.digest: run.result.seconds for run in audited_models(found[0].run.path)}
    attack = found[0].attacks.get("paper") if found else None
    return Row(
        key=cell.key,
        name=cell.name,
        data=cell.data,
        preset=preset.name,
        strategy=cell.strategy,
        gamma=cell.gamma,
        paper=cell.paper,
        measured={metric: _over_seeds(found, metric) for metric in dict.fromkeys(m for s in found for m in s.values)},
        seeds=tuple(one.number for one in found),
        runs=tuple(one.run.config.digest for one in found),
        epochs=config.epochs,
        # As they can be read on another machine: without the folder of the runs.
        why=tuple(sorted(str(why).replace(f"{library.folder}{os.sep}", "") for why in whys)),
        audit=audit,
        thresholds=() if attack is None else attack.thresholds,
        roc=None if attack is None else attack.roc,
        attack_units=UNITS if attack is None else attack.attack_units,
        attack_learning_rates=tuple(sorted({a.attack_learning_rate for one in found for a in one.attacks.values()})),
        trained=dict(ChainMap(*(one.trained for one in found), audited)),
    )


def _one_seed(experiment: Experiment, cell: Cell, preset: Preset, library: Library, seed: int) -> _Seed | None:
    need = needs(experiment, cell, preset, seed)
    target = library.get(need.target)
    if target is None:
        return None
    attacks: dict[str, AttackFound] = {}
    used, whys = [target], []
    for name, shadow_of in need.shadows.items():
        shadow = library.get(shadow_of)
        if shadow is None:
            whys.append(library.failure(shadow_of) or f"the shadow of the {name} attack is not trained yet")
            continue
        used.append(shadow)
        try:
            attacks[name] = measure_attack(name, target, shadow)
        except ResperturbError as error:
            whys.append(f"{name} attack: {error}")
    result = target.result
    train = accuracy_error(result.train_accuracy, result.records)
    test = accuracy_error(result.test_accuracy, result.test_records)
    accuracies = {"train_accuracy": result.train_accuracy, "test_accuracy": result.test_accuracy}
    if experiment.answers:
        accuracies |= {name: value for name, value in vars(measure_answers(target)).items() if name != "draws"}
    values = {AUCS[name]: (attack.auc, attack.auc_error) for name, attack in attacks.items()}
    values |= {name: (value, train if "train" in name else test) for name, value in accuracies.items()}
    values["gap"] = result.gap, math.hypot(train, test)
    trained = {run.config.digest: run.result.seconds for run in used}
    return _Seed(seed, target, attacks, values, trained, tuple(whys))


def _over_seeds(found: Sequence[_Seed], metric: str) -> Spread:
    """Summarise a metric over the seeds that have it."""
    those = [one for one in found if metric in one.values]
    values, errors = zip(*(one.values[metric] for one in those), strict=True)
    return spread(values, errors[0], [one.number for one in those])


def _audit(target: Run, preset: Preset, library: Library, make: bool) -> tuple[AuditSummary | None, str | None]:
    """Return the audit of a row, or else why there is none; ``make`` it if it is missing."""
    if not (make and library.may_train):
        return kept_audit(target, preset), None
    try:
        return measure_audit(target, preset, library.jobs, library.engine), None
    except (InterruptedTrainingError, UsageError):
        raise
    except ResperturbError as error:
        return None, str(error)
