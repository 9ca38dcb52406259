"""``resperturb demo``: see in minutes what residual perturbation does to leakage and to accuracy."""

from pathlib import Path
from typing import Annotated, Any

import typer

from resperturb.cli.output import LARGEST_SEED, JsonOption, emit

HELP = """
Train a small network without noise and with both kinds of it, attack all three, and write a report.

It takes two or three minutes on two cores and downloads nothing: a sample of Fashion-MNIST is built in.

Example: `resperturb demo --out demo`
"""


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("demo", help=HELP)(demo)


def demo(
    out: Annotated[Path, typer.Option(help="Folder of the report and the runs.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Of everything in it.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Run the demonstration, print the table, name the report."""
    from rich.console import Console

    from resperturb.cli.progress import training_progress
    from resperturb.report.collect import ReportedModel
    from resperturb.report.demo import Stage, run_demo
    from resperturb.report.page import write_report

    progress = Console(stderr=True, quiet=as_json, highlight=False)

    def say(stage: Stage) -> None:
        progress.print(f"{stage.number}/{stage.count} {stage.title}: training and attacking")

    with training_progress("") as on_update:
        done = run_demo(out, seed, on_stage=say, on_update=on_update)
    runs = [ReportedModel(name, run.path, run) for name, run in done]
    report = out / "report.html"
    write_report(report, runs, "Residual perturbation on a sample of Fashion-MNIST")
    payload = {"report": str(report), "runs": [run.to_dict() for run in runs]}
    emit(payload, as_json, lambda console: _show(console, report, runs))


def _show(console: Any, report: Path, runs: Any) -> None:
    from resperturb.cli.tables import comparison

    console.print(comparison(runs))
    console.print(f"Open {report} in a browser for the pictures.")
    console.print(
        "A low AUC of this one attack is no proof of privacy; a high one is proof of a leak. "
        "Next: resperturb train --data YOUR_FOLDER --gamma 1.0"
    )
