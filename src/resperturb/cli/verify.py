"""``resperturb verify``: are the files of a run those of one training, unchanged, without a secret, and signed?"""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from resperturb.cli.output import JsonOption, emit

if TYPE_CHECKING:
    from resperturb.training.verify import IntegrityCheck

HELP = """
Check that the files of a run belong together and are as they were written, that no secret of the training is left,
and that epsilon is what the configuration gives; say what could not be checked. The exit code is 1 if anything is
wrong.

`--sign` then signs all files with a key of OpenSSH, for a run that is handed over; `--signer` names the public keys
of which one must have signed it.

Example: `resperturb verify runs/private --signer colleague.pub`
"""

COLOURS = {"ok": "green", "failed": "bold red", "not checked": "yellow"}


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("verify", help=HELP)(verify)


def verify(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    with_data: Annotated[bool, typer.Option("--with-data", help="Compare the images too.")] = False,
    sign: Annotated[Path | None, typer.Option(help="Sign the run with this private key of OpenSSH.")] = None,
    signer: Annotated[Path | None, typer.Option(help="File of the public keys that may have signed it.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Check, sign if asked, and print."""
    from resperturb.training.verify import sign_run, verify_run

    if sign is not None:
        sign_run(run, sign)
    checks = [*verify_run(run, with_data=with_data, signer=signer), _attacks(run)]
    whole = all(check.outcome != "failed" for check in checks)
    emit({"run": str(run), "whole": whole, "checks": [asdict(check) for check in checks]}, as_json, _shown(checks))
    if not whole:
        raise typer.Exit(1)


def _attacks(run: Path) -> "IntegrityCheck":
    """Check that every attack that the audit made is still there: without one the model looks better."""
    from resperturb.errors import ResperturbError
    from resperturb.report.collect import open_models
    from resperturb.training.verify import IntegrityCheck

    what = "attacks of audit.json"
    try:
        [model] = open_models([run])
        if model.audit is None:
            return IntegrityCheck(what, "not checked", "the run was not audited.")
        return IntegrityCheck(what, "ok", f"all {len(model.attacks)} that were kept are there.")
    except ResperturbError as error:
        return IntegrityCheck(what, "failed", str(error))


def _shown(checks: "list[IntegrityCheck]") -> Any:
    def show(console: Any) -> None:
        from rich.table import Table

        from resperturb.cli.output import escaped

        table = Table()
        for heading in ("checked", "outcome", "found"):
            table.add_column(heading)
        for check in checks:
            colour = COLOURS[check.outcome]
            table.add_row(escaped(check.what), f"[{colour}]{check.outcome}[/]", escaped(check.detail))
        console.print(table)

    return show
