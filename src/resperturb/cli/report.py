"""``resperturb report`` and ``resperturb compare``: runs side by side, as a page and as a table."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from resperturb.cli.output import JsonOption, emit

if TYPE_CHECKING:
    from resperturb.report.collect import ReportedRun

REPORT_HELP = """
Write one self-contained HTML page about runs: what they leak, how accurate they are, how they were made.

Example: `resperturb report runs/plain runs/private -o report.html`
"""

COMPARE_HELP = """
Print runs side by side: noise, what the strongest attack found, accuracies. Folders that hold no run are skipped.

Example: `resperturb compare runs/*`
"""

Runs = Annotated[list[Path], typer.Argument(help="Folders of finished runs.")]


def register(app: typer.Typer) -> None:
    """Add both commands to the command line."""
    app.command("report", help=REPORT_HELP)(report)
    app.command("compare", help=COMPARE_HELP)(compare)


def report(
    runs: Runs,
    out: Annotated[Path, typer.Option("--out", "-o", help="The page.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="Title of the page.")] = "What these models leak",
    as_json: JsonOption = False,
) -> None:
    """Write the page and say where it is."""
    from resperturb.report.page import write_report

    found = _open(runs)
    write_report(out, found, title)
    payload = {"report": str(out), "runs": [run.to_dict() for run in found]}
    emit(payload, as_json, lambda console: console.print(f"Open {out} in a browser."))


def compare(runs: Runs, as_json: JsonOption = False) -> None:
    """Print the table."""
    from resperturb.cli.tables import comparison
    from resperturb.errors import UsageError

    found = _open([path for path in runs if (path / "result.json").exists()])
    if not found:
        raise UsageError(f"there is no finished run among {', '.join(map(str, runs))}.")
    payload = {"runs": [run.to_dict() for run in found]}
    emit(payload, as_json, lambda console: console.print(comparison(found)))


def _open(paths: list[Path]) -> "list[ReportedRun]":
    from resperturb.report.collect import ReportedRun, run_name
    from resperturb.training.run import open_run

    found = [ReportedRun(run_name(open_run(path)), open_run(path)) for path in paths]
    for run in found:
        run.run.result  # noqa: B018 - an unfinished run is an error here, not in the middle of a page
    return found
