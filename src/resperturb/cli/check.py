"""``resperturb check``: is what Theorem 1 assumes true of a run?"""

from pathlib import Path
from typing import Annotated, Any

import typer

from resperturb.cli.output import LARGEST_SEED, JsonOption, emit

HELP = """
Measure on a trained run what Theorem 1 assumes: the radius of its inputs, the norm of each block's mean output, and
whether those outputs are normally distributed. A budget computed with values that do not hold may not be claimed.

Example: `resperturb check runs/private --radius 30 --bound 30`
"""


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("check", help=HELP)(check)


def check(
    run: Annotated[Path, typer.Argument(help="Folder of a finished, perturbed run.")],
    radius: Annotated[float, typer.Option(min=0, help="R, assumed; the paper takes 30.")] = 30.0,
    bound: Annotated[float, typer.Option(min=0, help="G, assumed; the paper takes 30.")] = 30.0,
    records: Annotated[int, typer.Option(min=2, help="Images whose outputs are looked at.")] = 64,
    draws: Annotated[int, typer.Option(min=20, help="Noise draws for each of them.")] = 100,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Of the choice and the noise.")] = 0,
    figure: Annotated[
        Path | None, typer.Option(help="Where to write the quantile plot; in the run's folder if left out.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure, print, draw."""
    from resperturb.report.assumption_figures import quantile_figure
    from resperturb.report.figures import save_figure
    from resperturb.training.assumptions import measure_assumptions, summary
    from resperturb.training.run import open_run

    measured = measure_assumptions(open_run(run), records=records, draws=draws, seed=seed)
    found = summary(measured, radius, bound)
    where = run / "quantiles" if figure is None else figure.with_suffix("")
    save_figure(quantile_figure(measured), where)
    emit({"run": str(run), "figure": f"{where}.png", **found}, as_json, lambda console: _show(console, found, where))


def _show(console: Any, found: dict[str, Any], where: Path) -> None:
    from rich.table import Table

    table = Table(title="assumed against measured", title_justify="left")
    for heading in ("", "assumed", "measured", "holds"):
        table.add_column(heading)
    for label, key in (("radius of the inputs (R)", "radius"), ("norm of the mean outputs (G)", "bound")):
        row = found[key]
        table.add_row(label, f"{row['assumed']:.4g}", f"{row['measured']:.4g}", "yes" if row["holds"] else "no")
    worst = max(junction["share_rejected_as_normal"] for junction in found["junctions"])
    table.add_row(
        "normal outputs", "5% rejected", f"{worst:.0%} rejected", "yes" if found["normality"]["holds"] else "no"
    )
    console.print(table)
    console.print(
        f"Measured on {found['images']} images; the outputs on {found['records']} of them, with {found['draws']} "
        f"draws each. A larger image or output may exist elsewhere: only clipping makes R certain (--clip-radius). "
        f"Quantile plot: {where}.png"
    )
