"""``resperturb audit``: every attack on a run, and what they show beside what is proven."""

from pathlib import Path
from typing import Annotated, Any

import typer

from resperturb.cli.data_in import DataInOption
from resperturb.cli.engines import EngineOption, RayAddressOption, RayCpusOption, RayGpusOption, engine_of
from resperturb.cli.output import JsonOption, emit, escaped, true_positives, warn_of_few

HELP = """
Attack a run as hard as is known how, and set what that shows beside what is proven.

Shadow models are trained like the target, its perturbation included, on random subsets; they are kept beside the run
and used again. The attacks: thresholds on loss, confidence and entropy, LiRA, RMIA, label-only, and the paper's own;
with one draw of the noise and with many, with the noise taken off, and on each network of an ensemble. Canaries are
attacked if the run was trained with some (`resperturb train --canaries`).

`--one-run` trains nothing: it makes do with the attacks that need no shadow.

Example: `resperturb audit runs/private --shadows 16 --jobs 2`

The audit is kept in the run as audit.json. A stopped audit goes on when the same command is given again.
"""


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("audit", help=HELP)(audit)


def audit(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    shadows: Annotated[int, typer.Option(min=4, help="Shadow models: an even number.")] = 16,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Trainings at a time.", show_default="what the engine has room for")
    ] = None,
    draws: Annotated[str, typer.Option(help="Numbers of noise draws to combine, with commas between.")] = "1,16",
    engine: EngineOption = "local",
    ray_address: RayAddressOption = None,
    ray_cpus: RayCpusOption = None,
    ray_gpus: RayGpusOption = None,
    one_run: Annotated[bool, typer.Option("--one-run", help="Train no shadows.")] = False,
    delta: Annotated[float, typer.Option(help="The delta at which epsilon is bounded.")] = 1e-5,
    confidence: Annotated[float, typer.Option(help="Of the intervals, and of all bounds together.")] = 0.95,
    data_in: DataInOption = None,
    as_json: JsonOption = False,
) -> None:
    """Parse, audit, print."""
    from resperturb.audits.audit import Settings
    from resperturb.audits.audit import audit as audit_run
    from resperturb.cli.progress import stage_progress
    from resperturb.training.run import open_run

    settings = Settings(
        shadows=0 if one_run else shadows,
        jobs=jobs,
        draws=_numbers(draws),
        delta=delta,
        confidence=confidence,
        engine=engine_of(engine, ray_address, ray_cpus, ray_gpus),
    )
    with stage_progress("audit") as on_stage:
        found = audit_run(open_run(run), settings, on_stage)
    emit(found, as_json, lambda console: show(console, found))


def show(console: Any, found: dict[str, Any]) -> None:
    """Print an audit: leakage over all axes, the canaries, and the two bounds."""
    target, candidates = found["target"], found["candidates"]
    console.print(
        f"{escaped(found['run'])}: train accuracy {target['train_accuracy']:.3f}, test accuracy "
        f"{target['test_accuracy']:.3f}; {found['shadows']['count']} shadows; candidates: "
        + ", ".join(f"{number} {kind.replace('_', '-')}" for kind, number in candidates.items())
    )
    kind = "record" if "record" in candidates else "canaries" if len(candidates) > 1 else next(iter(candidates))
    console.print(_axes(found, kind))
    console.print(_headlines(found, kind))
    if any(other != "record" for other in candidates):
        console.print(_kinds(found))
    warn_of_few(console, next(entry["by_kind"][kind] for entry in found["attacks"] if kind in entry["by_kind"]))
    _show_exposed(console, found["exposed"])
    _show_bounds(console, found)


def _axes(found: dict[str, Any], kind: str) -> Any:
    """Leakage over all axes: a row for each attack, a column for each way to ask the model."""
    from rich.table import Table

    cells = {
        (_row(entry), _column(entry)): f"{entry['by_kind'][kind]['auc']:.3f}"
        for entry in found["attacks"]
        if kind in entry["by_kind"]
    }
    columns = list(dict.fromkeys(column for _, column in cells))
    table = Table(title=f"AUC of every attack on the {_plural(kind)} (0.5 is a coin toss)", title_justify="left")
    table.add_column("attack")
    for column in columns:
        table.add_column(column, justify="right")
    for row in dict.fromkeys(row for row, _ in cells):
        table.add_row(row, *(cells.get((row, column), "") for column in columns))
    return table


def _row(entry: dict[str, Any]) -> str:
    other = entry["combination"] not in (None, "mean logit", "votes") or (
        entry["combination"] == "votes" and entry["attack"] != "label-only"
    )
    return f"{entry['attack']}, {entry['combination']}" if other else str(entry["attack"])


def _column(entry: dict[str, Any]) -> str:
    draws = f"{entry['draws']} draw{'s' if entry['draws'] > 1 else ''}"
    return draws if entry["access"] == "noise on" else str(entry["access"])


def _plural(kind: str) -> str:
    return kind if kind == "canaries" else "records" if kind == "record" else f"{kind.replace('_', '-')} canaries"


def _headlines(found: dict[str, Any], kind: str) -> Any:
    table = _measures_table("The attacks that were fixed beforehand", ["attack"], ["epsilon >="])
    for entry in found["attacks"]:
        if entry["headline"] and kind in entry["by_kind"]:
            bound = entry["epsilon_lower"]
            shown = "" if bound is None else f"{bound['epsilon']:.3f}"
            table.add_row(_named(entry), *_numbers_of(entry["by_kind"][kind]), shown)
    return table


def _measures_table(title: str, before: list[str], after: list[str]) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in before:
        table.add_column(heading, no_wrap=True)
    table.add_column("AUC\ninterval", justify="right", no_wrap=True)
    for heading in ("bal.\nacc.", "TPR at\n0% FPR", "\n0.1%", "\n1%", "\n10%", *after):
        table.add_column(heading, justify="right")
    return table


def _named(entry: dict[str, Any]) -> str:
    combination = f", {entry['combination']}" if entry["combination"] else ""
    return f"{entry['attack']}\n  {_column(entry)}{combination}"


def _kinds(found: dict[str, Any]) -> Any:
    table = _measures_table("The strongest attack on each kind of candidate, in hindsight", ["kind and attack"], [])
    for kind in dict.fromkeys(kind for entry in found["attacks"] for kind in entry["by_kind"]):
        entries = [entry for entry in found["attacks"] if kind in entry["by_kind"]]
        best = max(entries, key=lambda entry: float(entry["by_kind"][kind]["auc"]))
        table.add_row(f"{_plural(kind)}\n  {_row(best)}, {_column(best)}", *_numbers_of(best["by_kind"][kind]))
    return table


def _numbers_of(measured: dict[str, Any]) -> list[str]:
    low, high = measured["auc_interval"]
    return [
        f"{measured['auc']:.3f}\n{low:.3f}-{high:.3f}",
        f"{measured['balanced_accuracy']:.3f}",
        *(true_positives(measured, rate) for rate in ("0", "0.001", "0.01", "0.1")),
    ]


def _show_exposed(console: Any, exposed: dict[str, Any] | None) -> None:
    if exposed is None or exposed["metrics"] is None:
        return
    metrics, worst = exposed["metrics"], exposed["worst"]
    low, high = metrics["auc_interval"]
    console.print(
        f"Most exposed: {exposed['chosen']}. Attacked by {exposed['attack']} ({exposed['view']}): AUC "
        f"{metrics['auc']:.3f} ({low:.3f} to {high:.3f}). The worst of all, a {worst['kind'].replace('_', '-')}, is "
        f"{worst['separation']:.1f} standard deviations apart between shadows with and without it."
    )


def _show_bounds(console: Any, found: dict[str, Any]) -> None:
    from rich.text import Text

    lower, upper = found["epsilon_lower"], found["epsilon_upper"]
    proven = "infinite" if upper["epsilon"] == float("inf") else f"{upper['epsilon']:.3g}"
    colours = {"refuted": "bold red", "consistent": "bold green"}
    console.print()
    verdict = Text.assemble(
        "Proven: epsilon at most ",
        (proven, "bold"),
        "; shown: epsilon at least ",
        (f"{lower['epsilon']:.3f}", "bold"),
        f" (delta {lower['delta']:g}, {100 * lower['confidence']:g}% confidence): ",
        (found["verdict"], colours.get(found["verdict"], "bold yellow")),
        ".",
    )
    console.print(verdict)
    console.print(f"- {upper['why']}")
    console.print(f"- The lower bound is {lower['correction']}.")
    for line in [lower["refusal"], *lower["assumptions"], *found["caveats"]]:
        if line:
            console.print(f"- {line}")


def _numbers(text: str) -> tuple[int, ...]:
    from resperturb.errors import UsageError

    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--draws takes whole numbers with commas between, such as 1,16; not {text!r}.") from None
