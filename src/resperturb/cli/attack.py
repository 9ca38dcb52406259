"""``resperturb attack``: the paper's membership attack on a run."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from resperturb.cli.data_in import DataInOption
from resperturb.cli.output import LARGEST_SEED, JsonOption, emit, shown_rate, visible, warn_of_few
from resperturb.files import plain

if TYPE_CHECKING:
    from resperturb.bounds.audit_result import AttackResult

HELP = """
Attack a run: can one tell who was in its training set?

This is the attack of the paper (Salem et al. 2018): a shadow model is trained, and a small network learns from its
answers what members look like. With `--adaptive` the shadow is trained like the target, with its perturbation
and its DP-SGD, of which the paper's attacker does not know.

It is a weak attack: that it fails says little. What it finds is a leak.

Example: `resperturb attack runs/private --adaptive`
"""


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("attack", help=HELP)(attack)


def attack(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    adaptive: Annotated[bool, typer.Option("--adaptive", help="Train the shadow like the target.")] = False,
    draws: Annotated[int, typer.Option(min=1, help="Noise draws averaged for every answer.")] = 1,
    attack_seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Of the attack network.")] = 0,
    data_in: DataInOption = None,
    as_json: JsonOption = False,
) -> None:
    """Parse, attack, print."""
    from resperturb.audits.shadow import run_shadow_attack
    from resperturb.cli.progress import training_progress
    from resperturb.training.run import open_run

    with training_progress("shadow") as on_update:
        found = run_shadow_attack(
            open_run(run), adaptive=adaptive, draws=draws, seed=attack_seed, on_update=on_update
        )
    emit(
        {"run": str(run), **plain(found), **plain(found.metrics[found.kind])},
        as_json,
        lambda console: _show(console, run, found),
    )


def _show(console: Any, run: Path, found: "AttackResult") -> None:
    from rich.table import Table
    from rich.text import Text

    metrics = found.metrics[found.kind]
    low, high = metrics.auc_interval
    table = Table(title=Text(visible(f"{run}: {found.full_name}")), title_justify="left")
    for heading in ("AUC (95%)", "accuracy", "TPR at 1% FPR", "TPR at 10% FPR"):
        table.add_column(heading)
    table.add_row(
        f"{metrics.auc:.3f} ({low:.3f} to {high:.3f})",
        f"{metrics.balanced_accuracy:.3f}",
        shown_rate(metrics, 0.01),
        shown_rate(metrics, 0.1),
    )
    console.print(table)
    thresholds = Table(title="at a threshold on the attack's probability", title_justify="left")
    for heading in ("threshold", "precision", "recall"):
        thresholds.add_column(heading)
    for row in found.details["thresholds"]:
        precision = "-" if row["precision"] is None else f"{row['precision']:.3f}"
        thresholds.add_row(f"{row['threshold']:g}", precision, f"{row['recall']:.3f}")
    console.print(thresholds)
    warn_of_few(console, metrics)
    console.print("AUC 0.5 is a coin toss. An attack that fails proves nothing: stronger ones exist.")
