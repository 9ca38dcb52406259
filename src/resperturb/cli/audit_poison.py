"""``resperturb audit-poison``: a bound on epsilon from many trainings with and without a poisoned record."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from resperturb.cli.engines import EngineOption, RayAddressOption, RayCpusOption, RayGpusOption, engine_of
from resperturb.cli.output import JsonOption, emit, escaped
from resperturb.files import plain

if TYPE_CHECKING:
    from resperturb.audits.poison import PoisonAudit

HELP = """
Train a run's setting many times, half of them with a poisoned record, and bound epsilon by who shows it.

This is the audit of Jagielski, Ullman and Oprea (2020), which the paper used. It costs two trainings a trial and
shows little with few of them; but it rests on nothing except that trainings are independent. `resperturb audit` asks
harder for its price.

Example: `resperturb audit-poison runs/private --poison clipbkd --trials 20 --jobs 2`

The models are kept beside the run and used again; the result is kept in the run as poison.json.
"""


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("audit-poison", help=HELP)(audit_poison)


def audit_poison(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run, whose setting is trained again.")],
    poison: Annotated[str, typer.Option(help="clipbkd or backdoor.")] = "clipbkd",
    copies: Annotated[int, typer.Option(min=1, help="Copies of the poisoned record; epsilon is for one.")] = 1,
    trials: Annotated[int, typer.Option(min=1, help="Models with the poison, and as many without.")] = 20,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Trainings at a time.", show_default="what the engine has room for")
    ] = None,
    engine: EngineOption = "local",
    ray_address: RayAddressOption = None,
    ray_cpus: RayCpusOption = None,
    ray_gpus: RayGpusOption = None,
    delta: Annotated[float, typer.Option(help="The delta at which epsilon is bounded.")] = 1e-5,
    confidence: Annotated[float, typer.Option(help="Of the bound.")] = 0.95,
    as_json: JsonOption = False,
) -> None:
    """Parse, audit, print."""
    from resperturb.audits.poison import PoisonSettings, poison_audit
    from resperturb.cli.progress import stage_progress
    from resperturb.data.poison import KINDS
    from resperturb.errors import UsageError
    from resperturb.training.run import open_run

    kind = next((known for known in KINDS if known == poison), None)
    if kind is None:
        raise UsageError(f"--poison is clipbkd or backdoor, not {poison!r}.")
    where = engine_of(engine, ray_address, ray_cpus, ray_gpus)
    settings = PoisonSettings(kind, copies, trials, delta, confidence, jobs, where)
    with stage_progress("audit-poison") as on_stage:
        found = poison_audit(open_run(run), settings, lambda done, count: on_stage("training", done, count))
    emit(plain(found), as_json, lambda console: _show(console, found))


def _show(console: Any, found: "PoisonAudit") -> None:
    bound = found.epsilon_lower
    copies = f"{found.copies} cop{'y' if found.copies == 1 else 'ies'}"
    console.print(
        f"{escaped(found.run)}: {copies} of a {found.poison} record. It was noticed in {found.noticed_with} of "
        f"{found.trials} models trained on it and in {found.noticed_without} of {found.trials} without."
    )
    console.print(
        f"Shown: {bound.words} (a perfect attack would show {found.most_that_could_be_shown:.3g} with so many "
        "trials)."
    )
    if found.guarantee is None or found.verdict == "nothing proven":
        console.print("Nothing is proven about added records.")
    else:
        console.print(f"Proven: {found.guarantee.words}: {found.verdict}.", markup=False)
    for line in bound.assumptions:
        console.print(f"- {line}")
