"""The experiments that are computed rather than trained: flows of an image, patches, budgets, Theorem 3, costs."""

import math
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from resperturb.auditing import clopper_pearson
from resperturb.audits import load_scores
from resperturb.errors import ResperturbError
from resperturb.paper.reproduce.declarations import (
    BUDGET_DELTA,
    BUDGET_RADIUS,
    BUDGETS,
    BY_ID,
    PAPER_IDC_TRAINING_IMAGES,
    Cell,
    Experiment,
    PrintedBudget,
)
from resperturb.paper.reproduce.library import Library
from resperturb.paper.reproduce.measures import describe_data, kept_audit
from resperturb.paper.reproduce.plan import target_config
from resperturb.paper.reproduce.presets import PRESETS, Preset
from resperturb.paper.reproduce.results import NOT_COMPARED, Measured, heading
from resperturb.privacy import additive_guarantee, dpsgd_guarantee, noise_ratio, rademacher, rdp_rho, schedule
from resperturb.training import DataConfig, Dpsgd, load_inputs

Function = Callable[[Preset, Library], Measured]
PATCHES_OF_A_CLASS = 4
# Two budgets that differ by no more than this factor are taken to be the same, differently rounded.
SAME_BUDGET = 1.05


def sde(strategy: str) -> Function:
    """Push the sample image through the ODE and an SDE and back, as the paper does and as others could."""

    def run(preset: Preset, library: Library) -> Measured:
        from resperturb.paper.sde import run_reversal, sample_image, study_convergence, sweep_gamma

        started = time.monotonic()
        image, seeds, paths = sample_image(), range(16), 20_000
        if preset.name == "quick":
            image, seeds, paths = image[::4, ::4], range(2), 1000
        reversal = run_reversal(image, strategy, gamma=1.0, dt=0.01, queries=len(seeds))
        sweep = sweep_gamma(image, strategy, seeds=seeds)
        study = study_convergence(image, paths=paths)
        numbers = reversal.summary()
        result = {
            **heading(BY_ID[f"sde-{strategy}"], preset),
            "source": "the sample image that is drawn by this package",
            "pixels": list(image.shape),
            "reversal": numbers,
            "sweep": sweep.summary(),
            "convergence": study.summary(),
            "seeds": list(seeds),
            "seconds": time.monotonic() - started,
            "verdict": NOT_COMPARED if preset.name == "quick" else _sde_verdict(reversal),
        }
        return Measured(_plain(result), (reversal, sweep, study))

    return run


def _sde_verdict(reversal: Any) -> str:
    errors = {name: found.relative_l2 for name, found in reversal.recoveries.items()}
    agrees = errors["ode"] < 0.1 < 0.5 < errors["paper"]
    seen = (
        f"relative error {errors['ode']:.3g} from the ODE, {errors['paper']:.3g} from the SDE by the paper's reversal"
    )
    beaten = (
        f", {errors['averaged']:.3g} by averaging {reversal.queries} queries, {reversal.blind.relative_l2:.3g} by "
        "guessing the mean colour"
    )
    return f"{'agrees' if agrees else 'differs'}: {seen}{beaten}"


def idc_examples(preset: Preset, library: Library) -> Measured:
    """Pick labelled patches, the same ones every time."""
    experiment = BY_ID["idc-examples"]
    scale = preset.scale("idc", "table")
    images = load_inputs(DataConfig(spec=scale.spec, limit=scale.limit)).test
    order = np.random.default_rng(0).permutation(len(images))
    labels = images.labels.numpy()
    classes = [int(label) for label in np.unique(labels)[:2]]
    chosen = [[int(i) for i in order if labels[i] == label][:PATCHES_OF_A_CLASS] for label in classes]
    names = ["negative", "positive"] if images.classes == ("0", "1") else [images.classes[c] for c in classes]
    panels = [
        (name, [images.images[index].permute(1, 2, 0).numpy() for index in indices])
        for name, indices in zip(names, chosen, strict=True)
    ]
    result = {
        **heading(experiment, preset),
        "data": [describe_data("idc", "table", preset)],
        "test_images_shown": dict(zip(names, chosen, strict=True)),
        "share_positive": float((labels == classes[-1]).mean()),
        "verdict": "a panel of patches; there is nothing to compare",
    }
    return Measured(result, panels)


def budgets(preset: Preset, library: Library) -> Measured:
    """Compute what the theorems give for the paper's settings, beside what it printed and what attacks show."""
    started = time.monotonic()
    rows = [_budget_row(printed, preset, library) for printed in BUDGETS]
    return Measured(
        {
            **heading(BY_ID["budgets"], preset),
            "delta": BUDGET_DELTA,
            "radius_and_bound": BUDGET_RADIUS,
            "rows": rows,
            "seconds": time.monotonic() - started,
        }
    )


def _budget_row(printed: PrintedBudget, preset: Preset, library: Library) -> dict[str, Any]:
    full = PRESETS["paper"].scale(printed.data, "table")
    row: dict[str, Any] = {
        "data": printed.data,
        "name": printed.variant.name,
        "paper": {"epsilon": printed.epsilon, "lower": printed.lower},
    }
    if printed.variant.dpsgd:
        records = {"idc": PAPER_IDC_TRAINING_IMAGES // 4, "cifar10": 12_500}[printed.data]
        noise = Dpsgd().noise_multiplier
        assert noise is not None
        plan = schedule(epochs=full.dpsgd_epochs, batch_size=full.dpsgd_batch_size, records=records)
        budget = dpsgd_guarantee(noise_multiplier=noise, schedule=plan, delta=BUDGET_DELTA)
        row |= {
            "epsilon": budget.epsilon,
            "setting": budget.setting,
            "protects": budget.protects,
            "assumptions": [a.statement for a in budget.assumptions],
        }
    else:
        gamma, epochs = printed.variant.gamma, full.epochs
        theory = additive_guarantee(
            gamma=gamma, radius=BUDGET_RADIUS, schedule=schedule(epochs=epochs), delta=BUDGET_DELTA
        )
        rho = rdp_rho(printed.epsilon, BUDGET_DELTA)
        row |= {
            "epsilon": theory.epsilon_theorem,
            "epsilon_from_blocks_alone": theory.theorem.epsilon_from_blocks,
            "epsilon_exact": theory.epsilon_exact,
            "bound_for_the_printed_epsilon": {
                "radius": gamma / 2 * math.sqrt(rho / (2 * epochs)),
                "blocks": gamma * math.sqrt(rho / (2 * epochs)),
            },
            "setting": theory.setting,
            "protects": theory.protects,
            "assumptions": [a.statement for a in theory.assumptions],
        }
    follows = max(row["epsilon"] / printed.epsilon, printed.epsilon / row["epsilon"]) <= SAME_BUDGET
    row["lower"] = _lower_bounds(printed, preset, library)
    row["verdict"] = (
        "agrees"
        if follows
        else f"differs: the formula gives {row['epsilon']:.3g}, the paper printed {printed.epsilon:.4g}"
    )
    return row


def _lower_bounds(printed: PrintedBudget, preset: Preset, library: Library) -> dict[str, Any]:
    """What attacks on our own model of the same row show; nothing if it is not trained yet."""
    cell = Cell(printed.data, printed.variant)
    try:
        target = library.get(target_config(cell, preset.scale(printed.data, "table"), 0))
    except ResperturbError as error:
        return {"why": str(error)}
    if target is None:
        return {"why": f"the model of this row is not trained yet at preset {preset.name}"}
    found: dict[str, Any] = {"preset": preset.name, "hash": target.config.digest}
    if not (target.path / "attacks" / "reproduce-paper.json").exists():
        found["why"] = f"the paper's attack on this row is not made yet at preset {preset.name}, or failed"
        return found
    try:
        scores = load_scores(target.path, "reproduce-paper")
        bound = clopper_pearson(scores.members, scores.nonmembers, delta=BUDGET_DELTA)
        found["paper_attack"] = {
            "epsilon": bound.epsilon,
            "confidence": bound.confidence,
            "method": bound.method,
            "assumptions": list(bound.assumptions),
        }
    except ResperturbError as error:
        found["why"] = str(error)
    audit = kept_audit(target)
    if audit is not None:
        found["audit"] = audit["epsilon_lower"]
    return found


def theorem3(experiment: Experiment, preset: Preset, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Compute Theorem 3's factor on the training images, and the gap it would predict from the one without noise."""
    cell = experiment.cells[0]
    inputs = load_inputs(target_config(cell, preset.scale(cell.data, experiment.size), 0).data)
    members = inputs.members("target_train").images[:].flatten(1).numpy().astype(np.float32) / 255
    gammas = [float(row["gamma"]) for row in rows if row["gamma"]]
    found = rademacher(members, gammas, draws=100).to_dict()
    plain = rows[0]["measured"].get("gap")
    return {
        "power": found["power"],
        "time": found["time"],
        "ratios": {f"{gamma:g}": noise_ratio(gamma, found["power"], found["time"]) for gamma in [0.0, *gammas]},
        "predicted_gap": None
        if plain is None
        else {
            f"{gamma:g}": plain["mean"] * noise_ratio(gamma, found["power"], found["time"])
            for gamma in [0.0, *gammas]
        },
        "bounds": found["classes"],
        "verdict": found["verdict"],
        "assumptions": found["assumptions"],
    }


def cost(preset: Preset, library: Library) -> Measured:
    """Measure time and memory of a step of every way to train."""
    from resperturb.noise import has_compiler
    from resperturb.paper.bench import Setting, can_measure_memory, run_bench

    quick = preset.name == "quick"
    setting = (
        Setting(batch_size=16, image_size=16, threads=1, compiled=False)
        if quick
        else Setting(threads=os.cpu_count() or 1, compiled=has_compiler())
    )
    started = time.monotonic()
    found = run_bench(
        [setting], rounds=1 if quick else 5, memory=not quick and can_measure_memory(), on_update=library.say
    )
    slower = found["ratios"]["dpsgd_over_additive"]
    result = {
        **heading(BY_ID["cost"], preset),
        "bench": found,
        "seconds": time.monotonic() - started,
        "verdict": NOT_COMPARED
        if quick
        else f"a step of DP-SGD takes {slower:.2f} times as long as one with additive noise; the paper says in words "
        "that it is significantly more expensive",
    }
    return Measured(_plain(result), found)


FUNCTIONS: dict[str, Function] = {
    "sde-additive": sde("additive"),
    "sde-multiplicative": sde("multiplicative"),
    "idc-examples": idc_examples,
    "budgets": budgets,
    "cost": cost,
}


def _plain(value: Any) -> Any:
    """Make arrays and tuples JSON, and name what JSON has no number for."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | range):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
