"""The frontier study: every registered defence on the built-in sample, or on CIFAR10.

``python -m benchmarks.frontier_study fashion OUT --models 64`` trains what is missing, resumes where it was stopped,
and writes the result. Coins of K models are those of the first K of more models, so a study can grow.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from resperturb.frontiers import Study, recipe_study

RESULTS = Path(__file__).parents[1] / "docs" / "results"


REGULARISATION = (
    *("weight-decay:0.005", "weight-decay:0.02"),
    *("dropout:0.2", "dropout:0.5"),
    *("label-smoothing:0.1", "label-smoothing:0.6"),
    "augmentation",
)
NOISE = (
    *("additive:0.25", "additive:0.5", "additive:1"),
    *("additive-no-input:0.5", "additive-no-input:1"),
    *("additive-decay:0.5", "additive-decay:1"),
    *("multiplicative:0.5", "multiplicative:1"),
    "ensemble:2",
)
LOSSES = ("relaxloss:0.3", "relaxloss:1", "hamp:0.7", "hamp:0.95")
PRIVATE = ("dpsgd:0.00625", "dpsgd:0.2", "dpsgd:1", "dp-head:1", "dp-head:3", "dp-head:8")
EVERY = (*REGULARISATION, *NOISE, *LOSSES, *PRIVATE)
# A recipe without a defence, and further arguments of :func:`resperturb.frontiers.recipe_study`.
STUDIES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    # Small enough for about an hour of one core: 12 by 12 pixels, training sets of about 300 images.
    "fashion": (
        {
            "data": {"spec": "fashion-sample", "image_size": 12, "limit": 660},
            "model": "resnet8",
            "epochs": 20,
            "batch_size": 32,
            "lr": 0.05,
        },
        {"models": 64, "canaries": 12, "population": 60, "noisy_checkpoints": 2},
    ),
    # The full study: about 16 core-hours. Every checkpoint of a noisy model takes 16 answers per image.
    "cifar10": (
        {
            "data": {"spec": "cifar10", "limit": 10_000},
            "model": "resnet8",
            "epochs": 40,
            "batch_size": 128,
            "lr": 0.1,
            "precision": "bf16-mixed",
        },
        {"models": 16, "population": 200, "noisy_checkpoints": 3},
    ),
}


def study(name: str, **changes: Any) -> Study:
    """Set up a study by its name.

    Args:
        name: Name of the study.
        changes: Other values for :func:`resperturb.frontiers.recipe_study`.

    Returns:
        The study.
    """
    recipe, settings = STUDIES[name]
    return recipe_study(recipe, **{"defences": EVERY, **settings, **changes})


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a study from the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.frontier_study", description=__doc__)
    parser.add_argument("name", choices=sorted(STUDIES))
    parser.add_argument("out", type=Path, help="folder that keeps everything")
    parser.add_argument("--models", type=int, default=None)
    parser.add_argument("--only", nargs="+", metavar="SETTING", help="only these, such as 'no defence'")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--hours", type=float, default=None)
    parser.add_argument("--dry-run", action="store_true", help="print what would be trained; train nothing")
    parser.add_argument("--save", action="store_true", help="keep the result in docs/results")
    chosen = parser.parse_args(arguments)
    asked = study(chosen.name, **({"models": chosen.models} if chosen.models else {}))
    known = [one.name for one in asked.settings]
    if unknown := [name for name in chosen.only or () if name not in known]:
        parser.error(f"there is no setting {unknown[0]!r}; the settings are {', '.join(known)}.")
    if chosen.only:  # coins and canaries stay those of the whole study, so that it can grow
        left = ", ".join(name for name in known if name not in chosen.only)
        asked = replace(
            asked,
            settings=tuple(one for one in asked.settings if one.name in chosen.only),
            left_out=(f"for lack of processor time: {left}",) if left else (),
        )
    if chosen.dry_run:
        plan = asked.plan(chosen.out, chosen.hours, chosen.jobs)
        assert plan is not None
        print("\n".join(plan.lines(asked.models, chosen.jobs)))
        return
    found = asked.run(chosen.out, jobs=chosen.jobs, hours=chosen.hours)
    if chosen.save:
        found.save(RESULTS / f"frontier-{chosen.name}.json")
    print("\n".join([found.title, *found.sentences]))


if __name__ == "__main__":
    main()
