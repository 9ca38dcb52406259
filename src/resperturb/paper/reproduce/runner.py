"""Do the work of experiments: train what is missing, attack, measure, and say what came out.

Everything is a run or an outcome on disk, so whatever stops this loses at most the step it was in; called again it
goes on from there.
"""

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from resperturb.audits import shadow_config
from resperturb.data import DATA_VARIABLE, SAMPLE, SHORT_FORMS
from resperturb.errors import ResperturbError, UsageError
from resperturb.paper.reproduce.declarations import Cell, Experiment
from resperturb.paper.reproduce.functions import FUNCTIONS, theorem3
from resperturb.paper.reproduce.library import Library
from resperturb.paper.reproduce.measures import (
    accuracy_error,
    auc_error,
    describe_data,
    measure_attack,
    measure_audit,
    spread,
)
from resperturb.paper.reproduce.plan import (
    Unit,
    described,
    needs,
    needs_of,
    paper_shadow,
    rounds,
    target_config,
)
from resperturb.paper.reproduce.presets import PRESETS, Preset
from resperturb.paper.reproduce.results import NOT_COMPARED, Measured, claim_verdict, heading, verdict
from resperturb.training import DataConfig, Run, TrainConfig, load_inputs

OnResult = Callable[[Experiment, Measured], None]


def run_experiments(
    experiments: Sequence[Experiment], preset: Preset, library: Library, on_result: OnResult = lambda e, m: None
) -> None:
    """Run experiments; ``on_result`` is told whenever one has more to show than before.

    What needs no training comes first, then the tables, then everything else; what is computed from the runs of
    others comes last.
    """
    require_data(experiments, preset)
    first = [e for e in experiments if e.kind == "function" and e.id not in ("budgets", "cost")]
    last = [e for e in experiments if e.kind == "function" and e not in first]
    for experiment in first:
        library.say(f"{experiment.id}: computing")
        on_result(experiment, FUNCTIONS[experiment.id](preset, library))
    for units in rounds(experiments, preset):
        _run_round(units, preset, library, on_result)
    for experiment in last:
        library.say(f"{experiment.id}: computing")
        on_result(experiment, FUNCTIONS[experiment.id](preset, library))


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
                on_result(unit.experiment, measure(unit.experiment, preset, library))

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
    return [config for need in needs_of(unit, preset) for config in (need.target, *need.shadows)]


def measure(experiment: Experiment, preset: Preset, library: Library) -> Measured:
    """Measure an experiment by the runs that are there: those seeds, and the audit where its shadows are trained."""
    data = {name: describe_data(name, experiment.size, preset) for name in experiment.data}
    rows = [_row(experiment, cell, preset, library, bool(data[cell.data]["reduced"])) for cell in experiment.cells]
    by_cell = {(cell.data, cell.variant): row for cell, row in zip(experiment.cells, rows, strict=True)}
    claims = []
    for claim in experiment.claims:
        lower, higher = (by_cell[cell.data, cell.variant] for cell in (claim.lower, claim.higher))
        found = claim_verdict(
            lower["measured"].get(claim.metric),
            higher["measured"].get(claim.metric),
            reduced=any(data[cell.data]["reduced"] for cell in (claim.lower, claim.higher)),
        )
        claims.append(
            {
                "text": claim.text,
                "metric": claim.metric,
                "lower": lower["name"],
                "higher": higher["name"],
                "verdict": NOT_COMPARED if preset.name == "quick" else found,
            }
        )
    used = {run["hash"]: run["seconds"] for row in rows for run in row.pop("runs_used")}
    result = {
        **heading(experiment, preset),
        "data": list(data.values()),
        "attacks": list(experiment.attacks),
        "rows": rows,
        "claims": claims,
        "trainings": len(used),
        "seconds": sum(used.values()),
    }
    if experiment.kind == "generalisation":
        result["theorem"] = theorem3(experiment, preset, rows)
    return Measured(result)


def _row(experiment: Experiment, cell: Cell, preset: Preset, library: Library, reduced: bool) -> dict[str, Any]:
    every = (_one_seed(experiment, cell, preset, library, seed) for seed in range(preset.seeds_of(experiment, cell)))
    found = [one for one in every if one is not None]
    scale = preset.scale(cell.data, experiment.size)
    row: dict[str, Any] = {
        "name": cell.name,
        "data": cell.data,
        "networks": cell.variant.networks,
        "strategy": "dpsgd" if cell.variant.dpsgd else cell.variant.strategy,
        "gamma": cell.variant.gamma,
        "paper": None if cell.paper is None else asdict(cell.paper),
        "seeds": [one["seed"] for one in found],
        "seeds_wanted": PRESETS[preset.name].seeds_of(experiment, cell),
        "measured": _spreads(found),
        "thresholds": found[0]["paper_attack"].get("thresholds") if found else None,
        "roc": found[0]["paper_attack"].get("roc") if found else None,
        "attack_learning_rates": sorted({rate for one in found for rate in _learning_rates(one)}),
        "runs": [one["hash"] for one in found],
        "why": sorted({why for one in found for why in one["why"]}),
        "runs_used": [used for one in found for used in one["used"]],
        "audit": None,
    }
    if found and found[0].get("guarantee"):
        row["epsilon_proven"] = found[0]["guarantee"]
    failure = library.failure(target_config(cell, scale, 0))
    if failure:
        row["why"].append(failure)
    if "audit" in experiment.attacks and found:
        row["audit"], shadows = _audit(experiment, cell, preset, library)
        row["runs_used"] += map(_used, shadows)
    row["why"] = [_elsewhere(why, library) for why in row["why"]]
    if "why" in (row["audit"] or {}):
        row["audit"] = {"why": _elsewhere(row["audit"]["why"], library)}
    row["verdict"] = verdict(row["paper"], row["measured"], preset.name, reduced)
    return row


def _elsewhere(why: str, library: Library) -> str:
    """A reason as it can be read on another machine: without the folder of the runs."""
    return why.replace(f"{library.folder}{os.sep}", "")


def _one_seed(
    experiment: Experiment, cell: Cell, preset: Preset, library: Library, seed: int
) -> dict[str, Any] | None:
    scale = preset.scale(cell.data, experiment.size)
    config = target_config(cell, scale, seed)
    target = library.get(config)
    if target is None:
        return None
    one: dict[str, Any] = {
        "seed": seed,
        "hash": target.config.digest,
        "result": target.result.to_dict(),
        "used": [_used(target)],
        "why": [],
        "paper_attack": {},
        "adaptive_attack": {},
    }
    if (proven := target.result.guarantee) is not None:
        one["guarantee"] = {key: proven[key] for key in ("epsilon", "delta", "steps")}
    attackers = {"paper": paper_shadow(cell, scale, seed)}
    if "adaptive" in experiment.attacks:
        attackers["adaptive"] = shadow_config(config, adaptive=True)
    for name, shadow_of in attackers.items():
        shadow = library.get(shadow_of)
        if shadow is None:
            one["why"].append(library.failure(shadow_of) or f"the shadow of the {name} attack is not trained yet")
            continue
        one["used"].append(_used(shadow))
        attack = measure_attack(name, target, shadow)
        one[f"{name}_attack"] = attack
        if "why" in attack:
            one["why"].append(f"{name} attack: {attack['why']}")
    return one


def _learning_rates(one: dict[str, Any]) -> list[float]:
    attacks = (one["paper_attack"], one["adaptive_attack"])
    return [attack["attack_learning_rate"] for attack in attacks if "attack_learning_rate" in attack]


def _used(run: Run) -> dict[str, Any]:
    return {"hash": run.config.digest, "seconds": run.result.seconds}


def _spreads(found: list[dict[str, Any]]) -> dict[str, Any]:
    if not found:
        return {}
    first = found[0]["result"]
    out: dict[str, Any] = {}
    for key in ("train_accuracy", "test_accuracy", "gap"):
        values = [float(one["result"][key]) for one in found]
        errors = [
            accuracy_error(float(first["train_accuracy"]), int(first["records"])),
            accuracy_error(float(first["test_accuracy"]), int(first["test_records"])),
        ]
        error = {"train_accuracy": errors[0], "test_accuracy": errors[1], "gap": math.hypot(*errors)}[key]
        out[key] = spread(values, error).to_dict()
    for key, attack in (("auc", "paper_attack"), ("adaptive_auc", "adaptive_attack")):
        made = [one[attack] for one in found if "auc" in one[attack]]
        if made:
            out[key] = spread([float(one["auc"]) for one in made], auc_error(made[0])).to_dict()
    return out


def _audit(
    experiment: Experiment, cell: Cell, preset: Preset, library: Library
) -> tuple[dict[str, Any] | None, list[Run]]:
    """The audit of a row, once its shadows are trained, and these."""
    if cell.variant.networks > preset.audit_networks:
        return {"why": f"an ensemble of {cell.variant.networks} is not audited at preset {preset.name}"}, []
    need = needs(experiment, cell, preset, 0, audit=True)
    target, shadows = library.get(need.target), list(map(library.get, need.shadows))
    trained = [shadow for shadow in shadows if shadow is not None]
    if target is None or len(trained) < len(shadows):
        return None, []
    return measure_audit(target, preset), trained
