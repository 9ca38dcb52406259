"""``resperturb card``: a model card with its privacy section, and a record for machines."""

import json
from pathlib import Path
from typing import Annotated

import typer

from resperturb.cli.output import JsonOption, emit

HELP = """
Write a model card for the Hugging Face Hub with the privacy section filled in: what was tried, what was found, what
is proven, and how the model stands to a policy. `--record` writes the same for machines; `--schema` prints its JSON
schema.

Neither names data, seeds or weights, unless `--for-reviewers` asks for them.

Example: `resperturb card runs/private -o MODEL_CARD.md --record privacy.json`
"""


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("card", help=HELP)(card)


def card(
    folder: Annotated[Path | None, typer.Argument(help="Folder of a run or of an audit.")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The card.")] = Path("MODEL_CARD.md"),
    record: Annotated[Path | None, typer.Option(help="Also write the record for machines here.")] = None,
    policy: Annotated[Path | None, typer.Option(help="Policy to decide by; see `resperturb gate --init`.")] = None,
    for_reviewers: Annotated[
        bool, typer.Option("--for-reviewers", help="Also name data, seeds and weights. Do not publish these.")
    ] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of the record, and stop.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write the card and say where it is."""
    from resperturb.errors import UsageError
    from resperturb.files import write_bytes, write_json
    from resperturb.report.card import model_card
    from resperturb.report.collect import open_models
    from resperturb.report.policy import default_policy, read_policy
    from resperturb.report.record import privacy_record, record_json, record_schema

    if schema:
        typer.echo(json.dumps(record_schema(), indent=2))
        return
    if folder is None:
        raise UsageError("name the folder of a run or of an audit.")
    [model] = open_models([folder])
    wanted = default_policy() if policy is None else read_policy(policy)
    found = privacy_record(model, wanted, for_reviewers)
    write_bytes(out, model_card(found).encode())
    if record is not None:
        write_json(record, record_json(found))
    payload = {"card": str(out), "record": None if record is None else str(record), "outcome": found.decision.outcome}
    emit(payload, as_json, lambda console: console.print(f"Wrote {out}. {found.decision.words}", markup=False))
