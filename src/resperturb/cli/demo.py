"""``resperturb demo``: see in minutes what residual perturbation does to leakage and to accuracy."""

from pathlib import Path
from typing import Annotated, Any

import typer

from resperturb.cli.output import LARGEST_SEED, JsonOption, emit

HELP = """
Train a small network without noise and with both kinds of it, audit all three, and write a report with a decision.

It takes two or three minutes on two cores and downloads nothing: a sample of Fashion-MNIST is built in.

Example: `resperturb demo --out demo`
"""
TITLE = "Residual perturbation on a sample of Fashion-MNIST"


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("demo", help=HELP)(demo)


def demo(
    out: Annotated[Path, typer.Option(help="Folder of the report and the runs.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Of everything in it.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Train and audit every variant, print the table, name the report."""
    from rich.console import Console

    from resperturb.audits import audit_run
    from resperturb.cli.progress import training_progress
    from resperturb.report.collect import model_of
    from resperturb.report.page import write_report
    from resperturb.report.policy import Limits, Policy
    from resperturb.training.demo import RUNS, demo_config
    from resperturb.training.loop import train
    from resperturb.training.subject import OpenedRun

    progress = Console(stderr=True, quiet=as_json, highlight=False)
    models = []
    for number, (name, strategy) in enumerate(RUNS.items(), start=1):
        progress.print(f"{number}/{len(RUNS)} {name}: training and auditing")
        with training_progress("") as on_update:
            run = train(demo_config(strategy, seed), out=out / name, on_update=on_update)
        audit_run(run, shadows=0)
        models.append(model_of(OpenedRun.of(run)))
    report = out / "report.html"
    # It asks for no shadow models, so that a first look ends with a decision.
    write_report(report, models, TITLE, policy=Policy(limits=Limits(auc=0.6), name="demo"))
    payload = {"report": str(report), "models": [model.to_dict() for model in models]}
    emit(payload, as_json, lambda console: _show(console, report, models))


def _show(console: Any, report: Path, models: Any) -> None:
    from resperturb.cli.report import comparison

    console.print(comparison(models))
    console.print(f"Open {report} in a browser for the decision and the charts.")
    console.print(
        "Few attacks were made, without shadow models: a low AUC proves no privacy, a high one proves a leak. "
        "Next: resperturb train --data YOUR_FOLDER --gamma 1.0"
    )
