"""The experiments that are computed rather than trained: flows of an image, patches, budgets, Theorem 3, costs."""

import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import JsonValue

from resperturb.errors import ResperturbError
from resperturb.files import plain
from resperturb.privacy import additive_guarantee, dpsgd_guarantee, training_length
from resperturb.training import DataConfig, Dpsgd, Run, load_inputs
from resperturb_reproduction.rademacher import rademacher
from resperturb_reproduction.reproduce.declarations import (
    BUDGET_DELTA,
    BUDGET_RADIUS,
    BUDGETS,
    PAPER_IDC_TRAINING_IMAGES,
    Cell,
    Experiment,
    PrintedBudget,
)
from resperturb_reproduction.reproduce.library import Library
from resperturb_reproduction.reproduce.measures import describe_data, kept_attack, kept_audit
from resperturb_reproduction.reproduce.plan import target_config
from resperturb_reproduction.reproduce.presets import PRESETS, Preset
from resperturb_reproduction.reproduce.readings import readings
from resperturb_reproduction.reproduce.results import (
    NOT_COMPARED,
    BudgetRow,
    Budgets,
    Computed,
    Measured,
    Row,
    ShownEpsilon,
    Theorem,
    made_now,
)
from resperturb_reproduction.theorems import THEOREM1_ASSUMES, rdp_rho, theorem1

if TYPE_CHECKING:
    from resperturb_reproduction.sde import ReversalResult

Function = Callable[[Experiment, Preset, Library], Measured]
PATCHES_OF_A_CLASS = 4
# Two budgets that differ by no more than this factor are taken to be the same, differently rounded.
SAME_BUDGET = 1.05


def sde(experiment: Experiment, preset: Preset, library: Library) -> Measured:
    """Push the sample image through the ODE and an SDE and back, as the paper does and as others could."""
    from resperturb_reproduction.sde import run_reversal, sample_image, sweep_gamma

    started = time.monotonic()
    strategy = experiment.id.removeprefix("sde-")
    image, seeds = sample_image(), range(16)
    if preset.name == "quick":
        image, seeds = image[::4, ::4], range(2)
    reversal = run_reversal(image, strategy, gamma=1.0, dt=0.01, queries=len(seeds))
    sweep = sweep_gamma(image, strategy, seeds=seeds)
    numbers: dict[str, JsonValue] = {
        "source": "the sample image that is drawn by this package",
        "pixels": plain(image.shape),
        "reversal": plain(reversal.summary()),
        "sweep": plain(sweep.summary()),
        "seeds": list(seeds),
    }
    verdict = NOT_COMPARED if preset.name == "quick" else _sde_verdict(reversal)
    made = made_now(preset, seconds=time.monotonic() - started)
    return Measured(Computed(experiment.id, "computed", (made,), verdict, numbers), (reversal, sweep))


def _sde_verdict(reversal: "ReversalResult") -> str:
    errors = {name: found.relative_l2 for name, found in reversal.recoveries.items()}
    agrees = errors["ode"] < 0.1 < 0.5 < errors["paper"]
    seen = (
        f"relative error {errors['ode']:.3g} from the ODE, {errors['paper']:.3g} from the SDE by the paper's reversal"
    )
    beaten = (
        f", {errors['averaged']:.3g} by averaging {reversal.queries} queries, {reversal.blind.relative_l2:.3g} by "
        "guessing the mean colour"
    )
    return f"{'supported' if agrees else 'contradicted'}: {seen}{beaten}"


def idc_examples(experiment: Experiment, preset: Preset, library: Library) -> Measured:
    """Pick labelled patches, the same ones every time."""
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
    numbers: dict[str, JsonValue] = {
        "test_images_shown": {name: list(indices) for name, indices in zip(names, chosen, strict=True)},
        "share_positive": float((labels == classes[-1]).mean()),
    }
    made = made_now(preset, (describe_data("idc", "table", preset),))
    verdict = "a panel of patches; there is nothing to compare"
    return Measured(Computed("idc-examples", "computed", (made,), verdict, numbers), panels)


def budgets(experiment: Experiment, preset: Preset, library: Library) -> Measured:
    """Compute what the theorems give for the paper's settings, beside what it printed and what attacks show."""
    started = time.monotonic()
    rows = tuple(_budget_row(printed, preset, library) for printed in BUDGETS)
    made = made_now(preset, seconds=time.monotonic() - started)
    return Measured(Budgets("budgets", "budgets", (made,), rows, BUDGET_DELTA, BUDGET_RADIUS))


def _budget_row(printed: PrintedBudget, preset: Preset, library: Library) -> BudgetRow:
    full = PRESETS["paper"].scale(printed.data, "table")
    exact = blocks = radius = bound = None
    if printed.variant.dpsgd:
        records = {"idc": PAPER_IDC_TRAINING_IMAGES // 4, "cifar10": 12_500}[printed.data]
        noise = Dpsgd().noise_multiplier
        assert noise is not None
        plan = training_length(epochs=full.dpsgd_epochs, batch_size=full.dpsgd_batch_size, records=records)
        counted = dpsgd_guarantee(noise_multiplier=noise, length=plan, delta=BUDGET_DELTA)
        epsilon, setting, protects = counted.epsilon, counted.setting, counted.protects
        assumptions = [assumption.statement for assumption in counted.assumptions]
    else:
        gamma, epochs = printed.variant.gamma, full.epochs
        noised: dict[str, Any] = {"input_std": gamma / 2, "radius": BUDGET_RADIUS, "delta": BUDGET_DELTA}
        proven = additive_guarantee(**noised, length=training_length(epochs=epochs))
        theory = theorem1(**noised, gamma=gamma, bound=BUDGET_RADIUS, epochs=epochs)
        rho = rdp_rho(printed.epsilon, BUDGET_DELTA)
        epsilon, setting, protects = theory.epsilon, proven.setting, proven.protects
        assumptions = [
            *(assumption.statement for assumption in proven.assumptions),
            *(statement.format(bound=BUDGET_RADIUS) for statement in THEOREM1_ASSUMES),
        ]
        exact, blocks = proven.epsilon, theory.from_blocks
        radius, bound = (scale * gamma * math.sqrt(rho / (2 * epochs)) for scale in (0.5, 1.0))
    follows = max(epsilon / printed.epsilon, printed.epsilon / epsilon) <= SAME_BUDGET
    at, attack, audit, why = _lower_bounds(printed, preset, library)
    return BudgetRow(
        data=printed.data,
        name=printed.variant.name,
        printed=printed.epsilon,
        printed_lower=printed.lower,
        epsilon=epsilon,
        setting=setting,
        protects=protects,
        assumptions=tuple(assumptions),
        verdict="supported"
        if follows
        else f"contradicted: the formula gives {epsilon:.3g}, the paper printed {printed.epsilon:.4g}",
        epsilon_exact=exact,
        epsilon_from_blocks=blocks,
        radius_needed=radius,
        bound_needed=bound,
        preset=at,
        paper_attack=attack,
        audit=audit,
        why=why,
    )


def _lower_bounds(
    printed: PrintedBudget, preset: Preset, library: Library
) -> tuple[str | None, ShownEpsilon | None, ShownEpsilon | None, str | None]:
    """What attacks on our own model of the same row show: its preset, the paper's attack, the audit, what is missing.

    The model is the one of the best preset that is trained, up to the one asked for.
    """
    cell = Cell(printed.data, printed.variant)
    lesser = sorted((p for p in PRESETS.values() if p.rank <= preset.rank), key=lambda p: -p.rank)
    for one in lesser if preset.name != "quick" else (preset,):
        if one.name == "quick" != preset.name:
            continue
        try:
            target = library.get(target_config(cell, one.scale(printed.data, "table"), 0))
        except ResperturbError as error:
            return None, None, None, str(error)
        if target is None:
            continue
        audit = kept_audit(target)
        shown = None
        if audit is not None:
            shown = ShownEpsilon(audit.epsilon_lower, audit.confidence, "the audit", (), audit.refusal)
        try:
            return one.name, _by_the_papers_attack(target), shown, None
        except ResperturbError as error:
            return one.name, None, shown, str(error)
    return None, None, None, f"the model of this row is not trained yet at preset {preset.name}"


def _by_the_papers_attack(target: Run) -> ShownEpsilon:
    """Bound epsilon by the paper's attack as the audit does: by pairs, since all scores come from one model."""
    found = kept_attack("paper", target)
    if found is None:
        raise ResperturbError("the paper's attack on this row is not made yet, or failed")
    lower = found.lower_bound
    design = f"{lower.neighbours} of a {lower.unit}"
    return ShownEpsilon(
        lower.epsilon, lower.confidence, design, lower.assumptions, lower.unmet[0] if lower.unmet else None
    )


def theorem3(experiment: Experiment, preset: Preset, rows: Sequence[Row]) -> Theorem:
    """Compute Theorem 3's factor on the training images, and the gap it would predict from the one without noise."""
    cell = experiment.cells[0]
    inputs = load_inputs(target_config(cell, preset.scale(cell.data, experiment.size), 0).data)
    members = inputs.members().images[:].flatten(1).numpy().astype(np.float32) / 255
    gammas = [row.gamma for row in rows if row.gamma]
    power, length = 0.5, 1.0
    found = rademacher(members, gammas, power=power, time=length, draws=100)
    ratios = {f"{each.gamma:g}": each.ratio for each in found.classes}
    without = rows[0].measured.gap
    return Theorem(
        power=power,
        time=length,
        ratios=ratios,
        predicted_gap=None if without is None else {gamma: without.mean * ratio for gamma, ratio in ratios.items()},
        verdict=found.meaning,
        assumptions=found.assumptions,
        bounds=plain(found.classes),
    )


FUNCTIONS: dict[str, Function] = {
    "sde-additive": sde,
    "sde-multiplicative": sde,
    "idc-examples": idc_examples,
    "budgets": budgets,
    "readings": readings,
}
