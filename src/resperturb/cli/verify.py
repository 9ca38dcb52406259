"""``resperturb verify``: check that the files of a run or an audit belong together, unchanged, without a secret."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from resperturb.cli.output import JsonOption, VerboseOption, emit, escaped

if TYPE_CHECKING:
    from resperturb.report.verify import IntegrityCheck

HELP = """
Check that the files of a run or of an audit belong together and are as they were written, that no secret of the
training is left, and that epsilon is what the configuration gives; say what could not be checked. The exit code is 1
if anything is wrong. To sign a run, see docs/how-to/release.md.

Example: `resperturb verify runs/noisy --with-data`
"""

COLOURS = {"ok": "blue", "failed": "bold red", "not checked": "yellow"}


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("verify", help=HELP)(verify)


def verify(
    folder: Annotated[Path, typer.Argument(help="Folder of a finished run or of an audit.")],
    with_data: Annotated[bool, typer.Option("--with-data", help="Compare the images of a run too.")] = False,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Check and print."""
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


def _in_short(checks: "list[IntegrityCheck]") -> Iterator["IntegrityCheck"]:
    """Make one line of the files of a folder about which there is nothing to say but that they are as they were."""

    def key(check: "IntegrityCheck") -> tuple[str, str] | str:
        folder = check.what.rpartition("/")[0]
        return (folder, check.detail) if folder and check.outcome == "ok" else check.what

    for _, group in groupby(checks, key):
        first, *others = group
        folder = first.what.rpartition("/")[0]
        yield replace(first, what=f"{folder}/ ({1 + len(others)} files)") if others else first


def _show(console: Any, folder: Path, checks: "list[IntegrityCheck]", verbose: bool) -> None:
    from rich.table import Table

    failed = sum(check.outcome == "failed" for check in checks)
    passed = sum(check.outcome == "ok" for check in checks)
    word = f"[bold red]✗ {failed} of {len(checks)} checks failed[/]" if failed else "[bold blue]✓ unchanged[/]"
    console.print(f"{escaped(folder)}: {word}; {passed} passed, {len(checks) - passed - failed} not made.")
    table = Table.grid(padding=(0, 2, 0, 0))
    for check in _in_short(checks):
        if verbose or check.outcome != "ok":
            table.add_row(f"[{COLOURS[check.outcome]}]{check.outcome}[/]", escaped(check.what), escaped(check.detail))
    console.print(table)
