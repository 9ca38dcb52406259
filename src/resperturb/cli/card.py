"""``resperturb card``: a model card with its privacy section."""

from pathlib import Path
from typing import Annotated

import typer

from resperturb.cli.output import JsonOption, PolicyOption, ReviewersOption, emit


def card(
    folder: Annotated[Path, typer.Argument(help="Folder of a run or of an audit.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The card.")] = Path("MODEL_CARD.md"),
    policy: PolicyOption = None,
    for_reviewers: ReviewersOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write a model card for the Hugging Face Hub with its privacy section.

    The section has the decision by a policy, what was tried and found, and what is proven. It does not name data,
    seeds or weights, nor a training accuracy where an epsilon is proven, unless `--for-reviewers` asks for them.

    Example: `resperturb card runs/noisy -o MODEL_CARD.md`
    """
    from resperturb.files import write_bytes
    from resperturb.report.card import model_card
    from resperturb.report.collect import open_models
    from resperturb.report.gate import decide
    from resperturb.report.policy import default_policy, read_policy

    [model] = open_models([folder])
    wanted = default_policy() if policy is None else read_policy(policy)
    decided = decide(model, wanted)
    write_bytes(out, model_card(model, wanted, for_reviewers).encode())
    payload = {"card": str(out), "outcome": decided.outcome}
    emit(payload, as_json, lambda console: console.print(f"Wrote {out}. {decided.status}.", markup=False))
