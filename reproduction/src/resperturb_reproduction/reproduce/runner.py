"""Do the work of experiments: train what is missing, attack, measure, and say what came out.

Everything is a run or an outcome on disk, so whatever stops this loses at most the step it was in; called again it
resumes there.
"""

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from resperturb.data import DATA_VARIABLE, SAMPLE, SHORT_FORMS
from resperturb.errors import ResperturbError, UsageError
from resperturb.training import DataConfig, InterruptedTrainingError, Run, TrainConfig, load_inputs
from resperturb_reproduction.attackers import shadow_config
from resperturb_reproduction.reproduce.declarations import BY_ID, Cell, Experiment
from resperturb_reproduction.reproduce.functions import FUNCTIONS, theorem3
from resperturb_reproduction.reproduce.library import Library, audited_models
from resperturb_reproduction.reproduce.measures import (
    ATTACK_UNITS,
    AttackFound,
    NoiseAccuracies,
    describe_data,
    kept_audit_of,
    measure_answers,
    measure_attack,
    measure_audit,
)
from resperturb_reproduction.reproduce.plan import (
    Unit,
    described,
    needs,
    needs_of,
    paper_shadow,
    rounds,
    target_config,
)
from resperturb_reproduction.reproduce.presets import PRESETS, Preset
from resperturb_reproduction.reproduce.results import (
    AuditSummary,
    Measured,
    ProvenEpsilon,
    Roc,
    Row,
    RowMetrics,
    Spread,
    Trained,
    made_now,
    merged,
)
from resperturb_reproduction.reproduce.verdicts import accuracy_error, spread

OnResult = Callable[[Experiment, Measured], None]


def run_experiments(
    experiments: Sequence[Experiment], preset: Preset, library: Library, on_result: OnResult = lambda e, m: None
) -> None:
    """Run experiments; ``on_result`` is told whenever one has more to show than before.

    What needs no training comes first, then the tables, then everything else; what is computed from the runs of
    others comes last. A library that may not train measures what is there.
    """
    require_data(experiments, preset)
    functions = [e for e in experiments if e.id in FUNCTIONS]
    last = [e for e in functions if e.kind == "budgets" or e.cells]
    for experiment in functions:
        if experiment not in last:
            library.say(f"{experiment.id}: computing")
            on_result(experiment, FUNCTIONS[experiment.id](experiment, preset, library))
    for units in rounds((e for e in experiments if e not in functions), preset):
        _run_round(units, preset, library, on_result)
    for experiment in last:
        library.say(f"{experiment.id}: computing")
        on_result(experiment, FUNCTIONS[experiment.id](experiment, preset, library))


def require_data(experiments: Iterable[Experiment], preset: Preset) -> None:
    """Find out that data are missing before the work, not after hours of it."""
    missing: dict[str, tuple[list[str], str]] = {}
    for experiment in experiments:
        for data in experiment.data:
            spec = preset.scale(data, experiment.size).spec
            try:
                if spec not in missing and not _is_local(spec):
                    load_inputs(DataConfig(spec=spec))
            except ResperturbError as error:
                missing[spec] = ([], str(error))
            if spec in missing:
                missing[spec][0].append(experiment.id)
    if missing:
        raise UsageError(
            "".join(
                f"the data set {spec!r} is needed for {', '.join(ids)}. {why} "
                for spec, (ids, why) in missing.items()
            )
            + "Experiments on data that are there can be run by their IDs."
        )


def _is_local(spec: str) -> bool:
    root = os.environ.get(DATA_VARIABLE)
    if spec == SAMPLE:
        return True
    return (root is not None and (Path(root).expanduser() / spec).exists()) or (
        spec not in SHORT_FORMS and Path(spec).exists()
    )


def _run_round(units: Sequence[Unit], preset: Preset, library: Library, on_result: OnResult) -> None:
    waiting = {id(unit): {c.digest for c in map(library.bound, _configs(unit, preset))} for unit in units}
    done: set[str] = set()

    def measure_what_is_complete() -> None:
        for unit in units:
            if id(unit) in waiting and waiting[id(unit)] <= done:
                del waiting[id(unit)]
                library.say(f"{unit.experiment.id}: {'auditing' if unit.audit else 'attacking'}")
                on_result(unit.experiment, measure(unit.experiment, preset, library, unit.audit))

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
    return [
        config for need in needs_of(unit, preset) for config in (need.target, *(() if unit.audit else need.shadows))
    ]


@dataclass(frozen=True)
class _Seed:
    """What one training of a row gave."""

    number: int
    run: Run
    attacks: dict[str, AttackFound]
    roc: Roc | None
    answers: NoiseAccuracies | None
    used: tuple[Run, ...]
    why: tuple[str, ...]


def measure(experiment: Experiment, preset: Preset, library: Library, audit: bool = False) -> Measured:
    """Measure an experiment by the runs that are there; with ``audit`` make the audits that are missing."""
    data = {name: describe_data(name, experiment.size, preset) for name in experiment.data}
    rows = tuple(_row(experiment, cell, preset, library, audit) for cell in experiment.cells)
    used = {run: seconds for row in rows for run, seconds in row.trained.items()}
    made = made_now(preset, tuple(data.values()), len(used), sum(used.values()))
    theorem = theorem3(experiment, preset, rows) if experiment.kind == "generalisation" else None
    result = Trained(experiment.id, experiment.kind, (made,), rows, theorem=theorem)
    return Measured(merged(None, result, BY_ID.get(experiment.id, experiment)))


def _row(experiment: Experiment, cell: Cell, preset: Preset, library: Library, make_audit: bool) -> Row:
    every = (_one_seed(experiment, cell, preset, library, seed) for seed in range(preset.seeds_of(experiment, cell)))
    found = [one for one in every if one is not None]
    scale = preset.scale(cell.data, experiment.size)
    config = target_config(cell, scale, 0)
    whys = {why for one in found for why in one.why}
    if failure := library.failure(config):
        whys.add(failure)
    audit, audit_why = None, None
    shadows: list[Run] = []
    if "audit" in experiment.attacks and found:
        audit, audit_why, shadows = _audit(experiment, cell, preset, library, make_audit)
    measured = _numbers(found)
    attack = found[0].attacks.get("paper") if found else None
    proven = found[0].run.guarantee() if found and found[0].run.config.method.private else None
    return Row(
        key=cell.key,
        name=cell.name,
        data=cell.data,
        preset=preset.name,
        networks=cell.variant.networks,
        strategy="dpsgd" if cell.variant.dpsgd else cell.variant.strategy,
        gamma=cell.variant.gamma,
        paper=cell.paper,
        measured=measured,
        seeds=tuple(one.number for one in found),
        seeds_wanted=PRESETS[preset.name].seeds_of(experiment, cell),
        runs=tuple(one.run.config.digest for one in found),
        input_noise=bool(getattr(config.perturbation, "input_std", None)),
        epochs=config.epochs,
        memorised_after=_memorised_after(found[0].run) if found else None,
        why=tuple(sorted(_elsewhere(why, library) for why in whys)),
        audit=audit,
        audit_why=None if audit_why is None else _elsewhere(audit_why, library),
        thresholds=() if attack is None else attack.thresholds,
        roc=found[0].roc if found else None,
        attack_units=ATTACK_UNITS if attack is None else attack.attack_units,
        attack_learning_rates=tuple(
            sorted({attack.attack_learning_rate for one in found for attack in one.attacks.values()})
        ),
        proven=None
        if proven is None or proven.not_met
        else ProvenEpsilon(proven.epsilon, proven.delta, proven.details["steps"]),
        trained={run.config.digest: run.result.seconds for one in found for run in (*one.used, *shadows)},
    )


def _memorised_after(run: Run) -> int | None:
    """The first epoch with a training accuracy of 1.000, if there was one."""
    return next((line.epoch for line in run.metrics() if round(line.train_accuracy or 0, 3) == 1.0), None)


def _elsewhere(why: str, library: Library) -> str:
    """A reason as it can be read on another machine: without the folder of the runs."""
    return why.replace(f"{library.folder}{os.sep}", "")


def _one_seed(experiment: Experiment, cell: Cell, preset: Preset, library: Library, seed: int) -> _Seed | None:
    scale = preset.scale(cell.data, experiment.size)
    config = target_config(cell, scale, seed)
    target = library.get(config)
    if target is None:
        return None
    attackers = {}
    if "paper" in experiment.attacks:
        attackers["paper"] = paper_shadow(cell, scale, seed, experiment.standard)
    if "adaptive" in experiment.attacks:
        attackers["adaptive"] = shadow_config(config, adaptive=True)
    attacks: dict[str, AttackFound] = {}
    used, whys, roc = [target], [], None
    for name, shadow_of in attackers.items():
        shadow = library.get(shadow_of)
        if shadow is None:
            whys.append(library.failure(shadow_of) or f"the shadow of the {name} attack is not trained yet")
            continue
        used.append(shadow)
        try:
            attacks[name], curve = measure_attack(name, target, shadow)
        except ResperturbError as error:
            whys.append(f"{name} attack: {error}")
            continue
        roc = curve if name == "paper" else roc
    answers = measure_answers(target) if experiment.answers else None
    return _Seed(seed, target, attacks, roc, answers, tuple(used), tuple(whys))


def _numbers(found: Sequence[_Seed]) -> RowMetrics:
    if not found:
        return RowMetrics()
    first, seeds = found[0].run.result, [one.number for one in found]
    train_error = accuracy_error(first.train_accuracy, first.records)
    test_error = accuracy_error(first.test_accuracy, first.test_records)

    def of_attack(name: str) -> Spread | None:
        made = [(one.attacks[name], one.number) for one in found if name in one.attacks]
        if not made:
            return None
        return spread([attack.auc for attack, _ in made], made[0][0].auc_error, [number for _, number in made])

    def of_answers(key: str) -> Spread | None:
        values = [float(getattr(one.answers, key)) for one in found if one.answers is not None]
        error = train_error if "train" in key else test_error
        return spread(values, error, seeds) if len(values) == len(found) else None

    return RowMetrics(
        auc=of_attack("paper"),
        adaptive_auc=of_attack("adaptive"),
        train_accuracy=spread([one.run.result.train_accuracy for one in found], train_error, seeds),
        test_accuracy=spread([one.run.result.test_accuracy for one in found], test_error, seeds),
        gap=spread([one.run.result.gap for one in found], math.hypot(train_error, test_error), seeds),
        averaged_train_accuracy=of_answers("averaged_train_accuracy"),
        averaged_test_accuracy=of_answers("averaged_test_accuracy"),
        noiseless_train_accuracy=of_answers("noiseless_train_accuracy"),
        noiseless_test_accuracy=of_answers("noiseless_test_accuracy"),
    )


def _audit(
    experiment: Experiment, cell: Cell, preset: Preset, library: Library, make: bool
) -> tuple[AuditSummary | None, str | None, list[Run]]:
    """Return the audit of a row, or else why there is none, and its shadow models; ``make`` it if it is missing."""
    if cell.variant.networks > preset.audit_networks:
        return None, f"an ensemble of {cell.variant.networks} is not audited at preset {preset.name}", []
    target = library.get(needs(experiment, cell, preset, 0, audit=True).target)
    if target is None:
        return None, None, []
    if not (make and library.may_train):
        return kept_audit_of(target, preset), None, audited_models(target.path)
    try:
        return measure_audit(target, preset, library.jobs, library.engine), None, audited_models(target.path)
    except (InterruptedTrainingError, UsageError):
        raise
    except ResperturbError as error:
        return None, str(error), []
