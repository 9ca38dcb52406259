"""``resperturb verify``: check that the files of a run or an audit belong together, unchanged, without a secret."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from resperturb.cli.output import JsonOption, VerboseOption, emit, escaped

if TYPE_CHECKING:
    from resperturb.report.verify import IntegrityCheck


COLOURS = {"ok": "blue", "failed": "bold red", "not checked": "yellow"}


def verify(
    folder: Annotated[Path, typer.Argument(help="Folder of a finished run or of an audit.")],
    with_data: Annotated[bool, typer.Option("--with-data", help="Compare the images of a run too.")] = False,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Check that the files of a run or of an audit belong together and are as they were written.

    No secret of the training may be left, and epsilon must be what the configuration gives. What could not be checked
    is said. The exit code is 1 if anything is wrong. To sign a run, see docs/how-to/release.md.

    Example: `resperturb verify runs/noisy --with-data`
    """
    from resperturb.report.folders import is_audit
    from resperturb.report.verify import verify_audit

    if is_audit(folder):
        checks = verify_audit(folder)
    else:
        from resperturb.training.run import open_run
        from resperturb.training.verify import verify_run

        checks = verify_run(open_run(folder), with_data=with_data)
    whole = all(check.outcome != "failed" for check in checks)
    payload = {"folder": str(folder), "whole": whole, "checks": [asdict(check) for check in checks]}
    emit(payload, as_json, lambda console: _show(console, folder, checks, verbose))
    if not whole:
        raise typer.Exit(1)


def _show(console: Any, folder: Path, checks: "list[IntegrityCheck]", verbose: bool) -> None:
    from rich.table import Table

    failed = sum(check.outcome == "failed" for check in checks)
    passed = sum(check.outcome == "ok" for check in checks)
    word = f"[bold red]✗ {failed} of {len(checks)} checks failed[/]" if failed else "[bold blue]✓ unchanged[/]"
    console.print(f"{escaped(folder)}: {word}; {passed} passed, {len(checks) - passed - failed} not made.")
    table = Table.grid(padding=(0, 2, 0, 0))
    for check in checks:
        if verbose or check.outcome != "ok":
            table.add_row(f"[{COLOURS[check.outcome]}]{check.outcome}[/]", escaped(check.what), escaped(check.detail))
    if table.row_count:
        console.print(table)
