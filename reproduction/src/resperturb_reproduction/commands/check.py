"""``resperturb check``: is what Theorem 1 assumes true of a run?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from resperturb.cli.output import LARGEST_SEED, JsonOption, emit

if TYPE_CHECKING:
    from resperturb_reproduction.assumptions import MeasuredAssumptions

HELP = """
Measure on a trained run what Theorem 1 assumes: the radius of its inputs, the norm of each block's mean output, and
whether those outputs are normally distributed. A budget computed with values that do not hold may not be claimed.

Example: `resperturb check runs/noisy --radius 30 --bound 30`
"""


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command(
        "check", help=HELP, short_help="Measure what Theorem 1 assumes on a trained run", rich_help_panel="Paper"
    )(check)


def check(
    run: Annotated[Path, typer.Argument(help="Folder of a finished, perturbed run.")],
    radius: Annotated[float, typer.Option(min=0, help="R, assumed; the paper takes 30.")] = 30.0,
    bound: Annotated[float, typer.Option(min=0, help="G, assumed; the paper takes 30.")] = 30.0,
    records: Annotated[int, typer.Option(min=2, help="Images whose outputs are looked at.")] = 64,
    draws: Annotated[int, typer.Option(min=20, help="Noise draws for each of them.")] = 100,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of the choice and the noise.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Measure, print."""
    from resperturb.training import open_run
    from resperturb_reproduction.assumptions import measure_assumptions

    measured = measure_assumptions(open_run(run), records=records, draws=draws, seed=seed)
    payload = {"run": str(run), **_compared(measured, radius, bound)}
    emit(payload, as_json, lambda console: _show(console, payload))


def _compared(measured: "MeasuredAssumptions", radius: float, bound: float) -> dict[str, object]:
    return {
        "radius": {
            "assumed": radius,
            "measured": measured.radius_largest,
            "median": measured.radius_median,
            "holds": measured.radius_largest <= radius,
        },
        "bound": {"assumed": bound, "measured": measured.bound, "holds": measured.bound <= bound},
        "normality": {"assumed": True, "holds": measured.normal},
        "junctions": [
            {
                "name": output.junction,
                "mean_norm_largest": output.mean_norm_largest,
                "mean_norm_median": output.mean_norm_median,
                "share_rejected_as_normal": output.rejected,
                "share_expected_if_normal": 0.05,
            }
            for output in measured.outputs
        ],
        "images": measured.images,
        "records": measured.records,
        "draws": measured.draws,
    }


def _show(console: Any, found: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table("", "assumed", "measured", "holds", title="assumed against measured", title_justify="left")
    for label, name in (("radius of the inputs (R)", "radius"), ("norm of the mean outputs (G)", "bound")):
        line = found[name]
        table.add_row(label, f"{line['assumed']:.4g}", f"{line['measured']:.4g}", "yes" if line["holds"] else "no")
    worst = max(junction["share_rejected_as_normal"] for junction in found["junctions"])
    table.add_row(
        "normal outputs", "5% rejected", f"{worst:.0%} rejected", "yes" if found["normality"]["holds"] else "no"
    )
    console.print(table)
    console.print(
        f"Measured on {found['images']} images; the outputs on {found['records']} of them, with {found['draws']} "
        "draws each. A larger image or output may exist elsewhere: only clipping makes R certain (--clip-radius)."
    )
