"""``resperturb evidence``: which clauses of a public text an audit answers."""

from pathlib import Path
from typing import Annotated

import typer

from resperturb.cli.output import JsonOption, PolicyOption, emit


def evidence(
    folder: Annotated[Path, typer.Argument(help="Folder of a run or of an audit.")],
    text: Annotated[str, typer.Option("--for", help="The text, or a YAML file of one.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page.")] = Path("evidence.html"),
    policy: PolicyOption = None,
    declared: Annotated[Path | None, typer.Option(help="YAML file of what only you know.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Write an evidence pack: each clause of a public text is answered, not tested, or for you to fill in.

    `--for` is satre, nist-800-226, edpb-28-2024, or a YAML file of your own. `--declared` is a YAML file of what only
    you know: data_subjects, harm, prior, purpose, released_to, responsible, defence. It is no legal advice.

    Example: `resperturb evidence runs/noisy --for satre -o evidence.html`
    """
    from resperturb.files import plain, write_bytes
    from resperturb.report.collect import open_models
    from resperturb.report.evidence import counts, entries, read_declared, read_text, render_evidence
    from resperturb.report.policy import default_policy, read_policy

    wanted, stated = read_text(text), read_declared(declared)
    [model] = open_models([folder])
    by = default_policy() if policy is None else read_policy(policy)
    found = entries(wanted, model, by, stated)
    write_bytes(out, render_evidence(wanted, found, model, stated).encode())
    payload = {
        "evidence": str(out),
        "text": wanted.title,
        "policy_sha256": by.digest,
        "counts": counts(found),
        "clauses": [{**plain(one), "clause": one.clause.id} for one in found],
    }
    told = ", ".join(f"{count} {status}" for status, count in counts(found).items())
    emit(payload, as_json, lambda console: console.print(f"Wrote {out}: {told}.", markup=False))
