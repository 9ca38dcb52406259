"""``resperturb gate``: may this model pass, by a policy of one's own? For build servers."""

from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from resperturb.cli.output import JsonOption, emit

if TYPE_CHECKING:
    from resperturb.report.gate import Decision


def gate(
    folder: Annotated[
        Path | None, typer.Argument(help="Folder of a run or of an audit; with --init, the file to write.")
    ] = None,
    policy: Annotated[Path | None, typer.Option(help="YAML file of limits and of the least evidence.")] = None,
    init: Annotated[bool, typer.Option("--init", help="Write a policy with comments, and stop.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Hold the audit of a run, or of your own training, against a policy.

    The exit code is the decision: 0 if the policy is met as far as it was tested, 1 if a limit is exceeded, and 2 if
    that is undecided: too little evidence is not a pass.

    `--init` writes the default policy with comments, to `policy.yaml` or to the file that is named instead of a
    folder. Edit it and name it with `--policy`: without that option the default policy decides.

    Example: `resperturb gate runs/noisy --policy policy.yaml`
    """
    from resperturb.errors import ResperturbError, UsageError
    from resperturb.files import write_bytes
    from resperturb.report.collect import open_models
    from resperturb.report.gate import decide
    from resperturb.report.policy import default_policy, default_text, read_policy

    if init:
        out = folder or Path("policy.yaml")
        if out.exists():
            raise UsageError(f"{out} exists and is not overwritten; name another file.")
        write_bytes(out, default_text().encode())
        emit({"policy": str(out)}, as_json, lambda console: console.print(f"Wrote {out}.", markup=False))
        return
    if folder is None:
        raise UsageError("name the folder of a run or of an audit.")
    wanted = default_policy() if policy is None else read_policy(policy)
    try:
        [model] = open_models([folder])
        decision = decide(model, wanted)
    except ResperturbError as error:  # what cannot be read cannot be known: 2, for 1 says that the policy failed
        raise UsageError(str(error)) from error
    payload = {**decision.to_dict(), "resperturb": version("resperturb")}
    emit(payload, as_json, lambda console: _show(console, decision, folder, own_policy=policy is not None))
    raise typer.Exit(decision.state.exit_code)


def _show(console: Any, decision: "Decision", folder: Path, own_policy: bool) -> None:
    import shlex

    from rich.table import Table

    from resperturb.cli.output import escaped

    state = decision.state
    console.print(f"[{state.colour}]{state.shape} {decision.status}[/]  {escaped(decision.meaning)}")
    table = Table.grid(padding=(0, 2, 0, 0))
    for row in decision.rows:
        table.add_row(escaped(row.title), escaped(f"{row.found} / {row.limit_words}"))
        table.add_row(f"  {escaped(row.drawn())}", f"[{row.state.colour}]{row.state.shape} {escaped(row.verdict)}[/]")
    if decision.rows:
        console.print("", table, "", sep="\n")
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_row("Attacked", escaped(decision.attacked))
    facts.add_row("Evidence", escaped(decision.evidence))
    # A page names no path; here the command can be copied.
    steps, audit = "; ".join(decision.next_steps), f"resperturb audit {shlex.quote(str(folder))} "
    for name in (folder.resolve().name, "RUN"):
        steps = steps.replace(f"resperturb audit {name} ", audit)
    facts.add_row("Next step", escaped(steps))
    example = "" if own_policy else ", an example: set your own with --policy"
    facts.add_row("Policy", escaped(f"{decision.policy.id}{example}"))
    console.print(facts)
