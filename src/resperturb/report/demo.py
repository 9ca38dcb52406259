"""The demonstration: the same small network without noise and with each kind of it, attacked, on real images.

Half of the built-in sample leaves 500 images to each quarter: few enough that a network memorises them within
a minute, which is what a membership attack feeds on, and enough for it to classify others well.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from resperturb.audits.shadow import run_shadow_attack
from resperturb.perturbation import Additive, Multiplicative, Strategy
from resperturb.training.config import DataConfig, TrainConfig
from resperturb.training.loop import Update, train
from resperturb.training.run import Run

IMAGES = 2000
EPOCHS = 40
BATCH_SIZE = 32
RUNS: tuple[tuple[str, Strategy | None], ...] = (
    ("not private", None),
    ("additive noise", Additive(gamma=1.0)),
    ("multiplicative noise", Multiplicative(gamma=2.0)),
)


@dataclass(frozen=True)
class Stage:
    """What the demonstration is busy with."""

    title: str
    number: int
    count: int


def run_demo(
    runs: Path,
    seed: int = 0,
    on_stage: Callable[[Stage], None] = lambda stage: None,
    on_update: Callable[[Update], None] = lambda update: None,
) -> list[tuple[str, Run]]:
    """Train and attack every variant; what is there already is not done again."""
    done = []
    for number, (name, strategy) in enumerate(RUNS, start=1):
        on_stage(Stage(name, number, len(RUNS)))
        run = train(config(strategy, seed), runs=runs, on_update=on_update)
        run_shadow_attack(run, on_update=on_update)
        done.append((name, run))
    return done


def config(strategy: Strategy | None, seed: int) -> TrainConfig:
    """Say how a variant is trained: all of them alike but for the noise."""
    return TrainConfig(
        data=DataConfig(spec="fashion-sample", limit=IMAGES, part="target_train"),
        epochs=EPOCHS,
        batch_size=BATCH_SIZE,
        perturbation=strategy,
        seed=seed,
        seeded_noise=True,
    )
