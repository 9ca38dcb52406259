"""``resperturb gate``: may this model pass, by a policy of one's own? For build servers."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from resperturb.cli.output import JsonOption, emit

if TYPE_CHECKING:
    from resperturb.report.decision import ModelDecision

HELP = """
Hold the audit of a run, or of your own training, against a policy. The exit code is 0 if the policy is met as far as
it was tested, 1 if a limit is exceeded, and 2 if that is undecided: too little evidence is not a pass.

`--init` writes a policy with comments, to `policy.yaml` or to the file that is named instead of a folder. Without
`--policy` that one is used.

Example: `resperturb gate runs/noisy --policy policy.yaml`
"""


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("gate", help=HELP)(gate)


def gate(
    folder: Annotated[
        Path | None, typer.Argument(help="Folder of a run or of an audit; with --init, the file to write.")
    ] = None,
    policy: Annotated[Path | None, typer.Option(help="YAML file of limits and of the least evidence.")] = None,
    init: Annotated[bool, typer.Option("--init", help="Write a policy with comments, and stop.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Decide, print and exit with the decision."""
    from resperturb.errors import ResperturbError, UsageError
    from resperturb.report.collect import open_models
    from resperturb.report.decision import NOT_TESTED, decision_of
    from resperturb.report.policy import default_policy, read_policy

    if init:
        _write(folder or Path("policy.yaml"), as_json)
        return
    if folder is None:
        raise UsageError("name the folder of a run or of an audit.")
    wanted = default_policy() if policy is None else read_policy(policy)
    try:
        [model] = open_models([folder])
        shown = decision_of(model, wanted)
    except ResperturbError as error:  # what cannot be read cannot be known: 2, for 1 says that the policy failed
        raise UsageError(str(error)) from error
    decision = shown.decision
    payload = {
        "model": model.name,
        "policy": {**wanted.model_dump(), "sha256": wanted.digest},
        "outcome": decision.outcome,
        "status": shown.state.word,
        "words": shown.meaning,
        "attacked": shown.attacked,
        "reasons": decision.reasons,
        "tried": decision.tried,
        "evidence": decision.evidence,
        "not_tested": NOT_TESTED,
        "next_steps": shown.next_steps,
        "false_failure_rate": decision.false_failure_rate,
        "checks": decision.checks,
    }
    emit(payload, as_json, lambda console: _show(console, shown, wanted.id))
    raise typer.Exit(decision.exit_code)


def _show(console: Any, shown: "ModelDecision", policy: str) -> None:
    from rich.table import Table

    from resperturb.cli.output import escaped

    state = shown.state
    console.print(f"[{state.colour}]{state.shape} {shown.status}[/]  {escaped(shown.meaning)}")
    console.print()
    table = Table.grid(padding=(0, 2, 0, 0))
    for row in shown.rows:
        table.add_row(escaped(row.title), escaped(f"{row.found} / {row.limit}"))
        table.add_row(f"  {escaped(row.drawn())}", f"[{row.state.colour}]{row.state.shape} {escaped(row.verdict)}[/]")
    console.print(table)
    console.print()
    enough = "reaches the policy's minimum" if shown.enough else "below the policy's minimum"
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_row("Attacked", escaped(shown.attacked))
    facts.add_row("Evidence", escaped(f"{shown.evidence}: {enough}"))
    facts.add_row("Next step", escaped("; ".join(shown.next_steps)))
    facts.add_row("Policy", escaped(policy))
    console.print(facts)


def _write(path: Path, as_json: bool) -> None:
    from resperturb.errors import UsageError
    from resperturb.files import write_bytes
    from resperturb.report.policy import default_text

    if path.exists():
        raise UsageError(f"{path} exists and is not overwritten; name another file.")
    write_bytes(path, default_text().encode())
    emit({"policy": str(path)}, as_json, lambda console: console.print(f"Wrote {path}.", markup=False))
