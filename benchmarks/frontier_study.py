"""The frontier study: every registered defence on the built-in sample, or on CIFAR10.

``python -m benchmarks.frontier_study fashion OUT --models 64`` trains what is missing, resumes where it was stopped,
and writes the result. Coins of K models are those of the first K of more models, so a study can grow.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from resperturb.frontiers import FrontierResult, Study, recipe_study

RESULTS = Path(__file__).parents[1] / "docs" / "results"


@dataclass(frozen=True)
class StudiedData:
    """A recipe without a defence, and how it is studied."""

    recipe: Mapping[str, Any]
    models: int
    defences: tuple[str, ...] = ()
    canaries: int | None = None
    population: int | None = None
    words: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)


ALL = ("additive", "additive-no-input", "additive-decay", "multiplicative")
ORDINARY = ("weight-decay", "dropout", "label-smoothing", "augmentation")
OTHERS = ("relaxloss", "hamp", "dpsgd")
STUDIES = {
    # Small enough for an hour of one core: 14 by 14 pixels, training sets of about 210 images.
    "fashion": StudiedData(
        {
            "data": {"spec": "fashion-sample", "image_size": 14, "limit": 460},
            "model": "resnet8",
            "epochs": 20,
            "batch_size": 20,
            "lr": 0.05,
        },
        models=64,
        defences=(*ORDINARY, *ALL, *OTHERS),
        canaries=8,
        population=44,
    ),
    # The study that the design was made for: about 16 core-hours.
    "cifar10": StudiedData(
        {
            "data": {"spec": "cifar10", "limit": 10_000},
            "model": "resnet8",
            "epochs": 40,
            "batch_size": 128,
            "lr": 0.1,
            "precision": "bf16-mixed",
        },
        models=16,
        population=200,
    ),
}


def study(name: str, strengths: int, models: int | None = None, seed: int = 0) -> Study:
    """Set up a study by its name."""
    chosen = STUDIES[name]
    return recipe_study(
        chosen.recipe,
        defences=chosen.defences,
        strengths=strengths,
        models=models or chosen.models,
        canaries=chosen.canaries,
        population=chosen.population,
        seed=seed,
    )


def main(arguments: Sequence[str] | None = None) -> FrontierResult:
    """Run a study from the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.frontier_study", description=__doc__)
    parser.add_argument("name", choices=sorted(STUDIES))
    parser.add_argument("out", type=Path, help="folder that keeps everything")
    parser.add_argument("--models", type=int, default=None)
    parser.add_argument("--strengths", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--hours", type=float, default=None)
    parser.add_argument("--save", action="store_true", help="keep the result in docs/results")
    chosen = parser.parse_args(arguments)
    found = study(chosen.name, chosen.strengths, chosen.models).run(chosen.out, jobs=chosen.jobs, hours=chosen.hours)
    if chosen.save:
        found.save(RESULTS / f"frontier-{chosen.name}.json")
    print("\n".join([found.title, *found.sentences]), file=sys.stderr)
    return found


if __name__ == "__main__":
    main()
