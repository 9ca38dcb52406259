"""``resperturb report`` and ``resperturb compare``: runs side by side, as a page and as a table."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from resperturb.cli.output import JsonOption, emit

if TYPE_CHECKING:
    from resperturb.report.collect import ReportedModel

TITLE = "What these models leak"

REPORT_HELP = """
Write one self-contained HTML page about runs: what they leak, how accurate they are, what is proven, what was tried,
how they were made. It loads nothing from the network and can be mailed and printed.

Example: `resperturb report runs/plain runs/private -o report.html`
"""

COMPARE_HELP = """
Print runs side by side: what the strongest attack found, accuracies, what is proven and what was shown of epsilon.

Folders that hold neither a finished run nor an audit are skipped. With `-o` the page of `resperturb report` is
written as well.

Example: `resperturb compare runs/* -o report.html`
"""

Runs = Annotated[list[Path], typer.Argument(help="Folders of finished runs or of audits.")]


def register(app: typer.Typer) -> None:
    """Add both commands to the command line."""
    app.command("report", help=REPORT_HELP)(report)
    app.command("compare", help=COMPARE_HELP)(compare)


def report(
    runs: Runs,
    out: Annotated[Path, typer.Option("--out", "-o", help="The page.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="Title of the page.")] = TITLE,
    show_records: Annotated[
        bool,
        typer.Option("--show-records", help="Show pictures of the most exposed records. They are private data."),
    ] = False,
    policy: Annotated[Path | None, typer.Option(help="Policy to decide by; see `resperturb gate --init`.")] = None,
    for_reviewers: Annotated[
        bool, typer.Option("--for-reviewers", help="Also name data, seeds and weights. Do not publish these.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Write the page and say where it is."""
    from resperturb.report.collect import open_models
    from resperturb.report.page import write_report
    from resperturb.report.policy import read_policy

    wanted = None if policy is None else read_policy(policy)
    found = open_models(runs)
    write_report(out, found, title, show_records, wanted, for_reviewers)
    payload = {"report": str(out), "runs": [run.to_dict() for run in found]}
    emit(payload, as_json, lambda console: console.print(f"Open {out} in a browser.", markup=False))


def compare(
    runs: Runs,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Also write the page here.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the table, and write the page if asked."""
    from resperturb.errors import UsageError
    from resperturb.report.collect import open_models

    found = open_models([path for path in runs if any((path / n).exists() for n in ("result.json", "audit.json"))])
    if not found:
        raise UsageError(f"there is no finished run and no audit among {', '.join(map(str, runs))}.")
    if out is not None:
        from resperturb.report.page import write_report

        write_report(out, found, TITLE)
    payload = {"runs": [run.to_dict() for run in found], "report": None if out is None else str(out)}
    emit(payload, as_json, lambda console: _show(console, found, out))


def _show(console: Any, runs: "list[ReportedModel]", out: Path | None) -> None:
    from resperturb.cli.tables import comparison
    from resperturb.report.wording import refutation, unequal

    console.print(comparison(runs))
    for said in (*map(refutation, runs), unequal(runs)):
        if said:
            console.print(said, markup=False)
    if out is not None:
        console.print(f"Open {out} in a browser.", markup=False)
