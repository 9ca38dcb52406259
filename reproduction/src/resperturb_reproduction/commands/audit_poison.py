"""``resperturb audit-poison``: a bound on epsilon from many trainings with and without a poisoned record."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from resperturb.cli.output import EngineOption, JsonOption, RayCpusOption, RayGpusOption, emit, engine_of, escaped
from resperturb.files import plain

if TYPE_CHECKING:
    from resperturb_reproduction.poison import PoisonAudit

HELP = """
Train a run's recipe many times, half of them with a poisoned record, and bound epsilon by how well they differ.

This is the audit of Jagielski, Ullman and Oprea (2020), which the paper used. It costs two trainings per trial and
shows little with few of them, but it assumes nothing except independent trainings. `resperturb audit` finds more for
the same cost.

Example: `resperturb audit-poison runs/noisy --poison clipbkd --trials 20 --jobs 2`

The models are kept next to the run and used again; the result is written to poison.json in the run.
"""


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command(
        "audit-poison",
        help=HELP,
        short_help="Bound epsilon by poisoning a recipe many times",
        rich_help_panel="Paper",
    )(audit_poison)


def audit_poison(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run, whose setting is trained again.")],
    poison: Annotated[str, typer.Option(help="clipbkd or backdoor.")] = "clipbkd",
    copies: Annotated[int, typer.Option(min=1, help="Copies of the poisoned record; epsilon is for one.")] = 1,
    trials: Annotated[int, typer.Option(min=1, help="Models with the poison, and as many without.")] = 20,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Trainings at a time.", show_default="what the engine has room for")
    ] = None,
    engine: EngineOption = "local",
    ray_cpus: RayCpusOption = None,
    ray_gpus: RayGpusOption = None,
    delta: Annotated[float, typer.Option(help="Delta of the lower bound.")] = 1e-5,
    confidence: Annotated[float, typer.Option(help="Confidence of the lower bound.")] = 0.95,
    as_json: JsonOption = False,
) -> None:
    """Parse, audit, print."""
    from resperturb.progress import Lines
    from resperturb.training import open_run
    from resperturb_reproduction.poison import PoisonSettings, poison_audit

    where = engine_of(engine, ray_cpus, ray_gpus)
    settings = PoisonSettings(poison, copies, trials, delta, confidence)  # type: ignore[arg-type]  # it checks the kind
    found = poison_audit(open_run(run), settings, Lines("audit-poison", unit="models").step, jobs, where)
    emit(plain(found), as_json, lambda console: _show(console, found))


def _show(console: Any, found: "PoisonAudit") -> None:
    bound = found.epsilon_lower
    copies = f"{found.copies} cop{'y' if found.copies == 1 else 'ies'}"
    console.print(
        f"{escaped(found.run)}: {copies} of a {found.poison} record. It was recognised by {found.noticed_with} of "
        f"{found.trials} models trained on it and by {found.noticed_without} of {found.trials} without."
    )
    console.print(
        f"Shown: {bound.words} (a perfect attack would show {found.most_that_could_be_shown:.3g} with this "
        "many trials)."
    )
    if found.guarantee is None:
        console.print("Nothing is proven about added records.")
    else:
        refuted = bound.epsilon > found.guarantee.claimed_epsilon
        console.print(f"Proven: {found.guarantee.words}{': refuted' if refuted else ''}.", markup=False)
    for line in bound.assumptions:
        console.print(f"- {line}")
