"""The experiments that are computed rather than trained: flows of an image, patches, budgets, Theorem 3."""

import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from pydantic import JsonValue

from resperturb.data import ImageSet
from resperturb.files import plain
from resperturb.privacy import additive_guarantee, dpsgd_guarantee, training_length
from resperturb.training import DataConfig, Dpsgd, load_inputs
from resperturb_reproduction.reproduce.declarations import (
    BUDGET_DELTA,
    BUDGET_RADIUS,
    BUDGETS,
    PAPER_IDC_TRAINING_IMAGES,
    Experiment,
    PrintedBudget,
)
from resperturb_reproduction.reproduce.library import Library
from resperturb_reproduction.reproduce.measures import describe_data
from resperturb_reproduction.reproduce.plan import target_config
from resperturb_reproduction.reproduce.presets import PRESETS, Preset
from resperturb_reproduction.reproduce.readings import readings
from resperturb_reproduction.reproduce.results import NOT_COMPARED, Computed, Row, Theorem, made_now
from resperturb_reproduction.theorems import THEOREM1_ASSUMES, THEOREM3_ASSUMES, rdp_rho, theorem1, theorem3

if TYPE_CHECKING:
    from resperturb_reproduction.sde.reversal import ReversalResult

Function = Callable[[Experiment, Preset, Library], Computed]
PATCHES_OF_A_CLASS = 4
# Two budgets that differ by no more than this factor are taken to be the same, differently rounded.
SAME_BUDGET = 1.05
MICRO_BATCHES_OF_FOUR = 512  # 128 of them, one reading of the remark


def reversal(name: str, preset: Preset) -> "ReversalResult":
    """Push the sample image through the ODE and an SDE and back, as the paper does and as others could."""
    from resperturb_reproduction.sde.images import SAMPLE, load_image
    from resperturb_reproduction.sde.reversal import run_reversal

    image, queries = load_image(SAMPLE), 16
    if preset.name == "quick":
        image, queries = image[::4, ::4], 2
    return run_reversal(image, name.removeprefix("sde-"), gamma=1.0, dt=0.01, queries=queries)


def sde(experiment: Experiment, preset: Preset, library: Library) -> Computed:
    """Measure how well the sample image comes back."""
    started = time.monotonic()
    found = reversal(experiment.id, preset)
    numbers: dict[str, JsonValue] = {
        "source": "the sample image that is drawn by this package",
        "pixels": plain(found.original.shape),
        "reversal": plain(found.summary()),
    }
    errors = {name: recovery.relative_l2 for name, recovery in found.recoveries.items()}
    agrees = errors["ode"] < 0.1 < 0.5 < errors["paper"]
    verdict = (
        f"{'supported' if agrees else 'contradicted'}: relative error {errors['ode']:.3g} from the ODE, "
        f"{errors['paper']:.3g} from the SDE by the paper's reversal, {errors['averaged']:.3g} by averaging "
        f"{found.queries} queries, {found.blind.relative_l2:.3g} by guessing the mean colour"
    )
    made = made_now(preset, seconds=time.monotonic() - started)
    verdict = NOT_COMPARED if preset.name == "quick" else verdict
    return Computed(experiment.id, "computed", (made,), verdict, numbers)


def idc_examples(experiment: Experiment, preset: Preset, library: Library) -> Computed:
    """Pick labelled patches, the same ones every time."""
    images = _patches(preset)
    order, labels = np.random.default_rng(0).permutation(len(images)), images.labels.numpy()
    classes = [int(label) for label in np.unique(labels)[:2]]
    names = ["negative", "positive"] if images.classes == ("0", "1") else [images.classes[c] for c in classes]
    chosen = [[int(i) for i in order if labels[i] == label][:PATCHES_OF_A_CLASS] for label in classes]
    numbers: dict[str, JsonValue] = {
        "test_images_shown": plain(dict(zip(names, chosen, strict=True))),
        "share_positive": float((labels == classes[-1]).mean()),
    }
    made = made_now(preset, (describe_data("idc", "table", preset),))
    verdict = "a panel of patches; there is nothing to compare"
    return Computed("idc-examples", "computed", (made,), verdict, numbers)


def panels(result: Computed, preset: Preset) -> dict[str, list[Any]]:
    """Find the patches of each class that a result names."""
    images = _patches(preset).images
    shown = cast(dict[str, list[int]], result.numbers["test_images_shown"])
    return {name: [images[index].permute(1, 2, 0).numpy() for index in chosen] for name, chosen in shown.items()}


def _patches(preset: Preset) -> ImageSet:
    scale = preset.scale("idc", "table")
    return load_inputs(DataConfig(spec=scale.spec, limit=scale.limit)).test


def budgets(experiment: Experiment, preset: Preset, library: Library) -> Computed:
    """Compute what the theorems give for the paper's settings, next to the published budgets."""
    rows = [_budget(printed) for printed in BUDGETS]
    numbers: dict[str, JsonValue] = {"delta": BUDGET_DELTA, "radius_and_bound": BUDGET_RADIUS, "rows": plain(rows)}
    verdict = f"{sum(bool(row['follows']) for row in rows)} of {len(rows)} budgets follow"
    return Computed("budgets", "computed", (made_now(preset),), verdict, numbers)


def _budget(printed: PrintedBudget) -> dict[str, Any]:
    """Compute one budget; ``radius_needed`` and ``bound_needed`` would give the published one."""
    cell, full = printed.cell, PRESETS["paper"].scale(printed.cell.data, "table")
    row: dict[str, Any] = {
        "data": cell.data,
        "name": cell.name,
        "published": printed.epsilon,
        "published_lower_bound": printed.lower,
    }
    if cell.dpsgd:
        records = {"idc": PAPER_IDC_TRAINING_IMAGES // 4, "cifar10": 12_500}[cell.data]
        noise = Dpsgd().noise_multiplier
        assert noise is not None
        counted, larger = (
            dpsgd_guarantee(
                noise_multiplier=noise,
                length=training_length(epochs=full.dpsgd_epochs, batch_size=size, records=records),
                delta=BUDGET_DELTA,
            )
            for size in (full.dpsgd_batch_size, MICRO_BATCHES_OF_FOUR)
        )
        row["epsilon_in_batches_of_512"] = larger.epsilon
        assumptions = [assumption.statement for assumption in counted.assumptions]
        row |= {"epsilon": counted.epsilon, "setting": counted.setting, "protects": counted.protects}
    else:
        gamma, epochs = cell.gamma, full.epochs
        noised: dict[str, Any] = {"input_std": gamma / 2, "radius": BUDGET_RADIUS, "delta": BUDGET_DELTA}
        proven = additive_guarantee(**noised, length=training_length(epochs=epochs))
        theory = theorem1(**noised, gamma=gamma, bound=BUDGET_RADIUS, epochs=epochs)
        needed = gamma * math.sqrt(rdp_rho(printed.epsilon, BUDGET_DELTA) / (2 * epochs))
        assumptions = [
            *(assumption.statement for assumption in proven.assumptions),
            *(statement.format(bound=BUDGET_RADIUS) for statement in THEOREM1_ASSUMES),
        ]
        row |= {"epsilon": theory.epsilon, "exact": proven.epsilon, "from_blocks": theory.from_blocks}
        row |= {"radius_needed": needed / 2, "bound_needed": needed}
        row |= {"setting": proven.setting, "protects": proven.protects}
    factor = row["epsilon"] / printed.epsilon
    row["follows"] = max(factor, 1 / factor) <= SAME_BUDGET
    return row | {"assumptions": assumptions}


def generalisation(experiment: Experiment, preset: Preset, rows: Sequence[Row]) -> Theorem:
    """Compute Theorem 3's factor on the training images, and the gap it would predict from the one without noise."""
    cell = experiment.cells[0]
    inputs = load_inputs(target_config(cell, preset.scale(cell.data, experiment.size), 0).data)
    members = inputs.members().images[:].flatten(1).numpy().astype(np.float32) / 255
    power, length = 0.5, 1.0
    classes, meaning = theorem3(members, [row.gamma for row in rows if row.gamma], power, length, draws=100)
    ratios = {f"{each.gamma:g}": each.ratio for each in classes}
    without = rows[0].of("gap")
    predicted = None if without is None else {gamma: without.mean * ratio for gamma, ratio in ratios.items()}
    return Theorem(power, length, ratios, predicted, meaning, THEOREM3_ASSUMES, plain(classes))


FUNCTIONS: dict[str, Function] = {
    "sde-additive": sde,
    "sde-multiplicative": sde,
    "idc-examples": idc_examples,
    "budgets": budgets,
    "readings": readings,
}
