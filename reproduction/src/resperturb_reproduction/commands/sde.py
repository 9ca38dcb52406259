"""`resperturb sde`: push an image through the ODE and an SDE, reverse it, and draw what comes back."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from resperturb.cli.output import JsonOption, emit

if TYPE_CHECKING:
    from resperturb_reproduction.sde.reversal import ReversalResult


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("sde", short_help="Push an image through the ODE and the SDE, and back", rich_help_panel="Paper")(sde)


def sde(
    image: Annotated[
        Path | None,
        typer.Option(help="Your own image, shrunk to 192 pixels a side. [default: a drawn sample]"),
    ] = None,
    strategy: Annotated[str, typer.Option(help="additive or multiplicative noise.")] = "additive",
    gamma: Annotated[float, typer.Option(help="Noise coefficient, for image values in [0, 1].")] = 1.0,
    dt: Annotated[float, typer.Option(help="Step size: one over a whole number.")] = 0.01,
    out: Annotated[Path, typer.Option(help="Folder for the figures and the numbers.")] = Path("runs/sde"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of all the noise.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Push an image through the ODE and the SDE behind a residual network, and try to get it back.

    Draws the paper's panels next to those of three stronger attackers, and writes their errors as JSON.

    Example: `resperturb sde --image portrait.jpg --strategy multiplicative --out figures`
    """
    from rich.console import Console

    from resperturb.files import write_json
    from resperturb_reproduction.figures.sde import reversal_figure
    from resperturb_reproduction.figures.style import save_figure
    from resperturb_reproduction.sde.images import SAMPLE, load_image
    from resperturb_reproduction.sde.reversal import run_reversal

    _make_folder(out)
    pixels = load_image(image or SAMPLE)
    with Console(stderr=True).status("Running the image forward and back"):
        result = run_reversal(pixels, strategy, gamma, dt, seed)
        files = [*save_figure(reversal_figure(result), out / f"sde-{result.strategy}")]
    source = "drawn sample" if image is None else str(image)
    numbers = {**result.summary(), "source": source}
    written = out / f"sde-{result.strategy}.json"
    write_json(written, numbers)
    files.append(written)
    payload = {**numbers, "files": [str(path) for path in files]}
    emit(payload, as_json, lambda console: _show(console, result, files))


def _make_folder(out: Path) -> None:
    """Find out that the folder cannot be written to before the work, not after it."""
    from resperturb.errors import UsageError

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out {out} cannot be made a folder: {error.strerror}. Choose another one.") from error


def _show(console: Any, result: "ReversalResult", files: list[Path]) -> None:
    from rich.table import Table

    from resperturb_reproduction.sde.reversal import ATTACKERS

    rows, cols, _ = result.original.shape
    table = Table(
        title=f"{result.strategy} noise, gamma {result.gamma:g}, dt {result.dt:g}, seed {result.seed}, "
        f"{cols} x {rows} pixels with values in \\[0, 1]",
        title_justify="left",
    )
    table.add_column("What the attacker has and does")
    table.add_column("Relative L2 error", justify="right")
    table.add_column("PSNR (dB)", justify="right")
    for name, found in result.recoveries.items():
        what = ATTACKERS[name].replace("queries", f"{result.queries} queries")
        table.add_row(what, f"{found.relative_l2:.3g}", f"{found.psnr:.1f}")
    table.add_section()
    table.add_row("A guess of one colour", f"{result.blind.relative_l2:.3g}", f"{result.blind.psnr:.1f}")
    console.print(table)
    console.print("A large error is not privacy: look at the panel of averaged queries.")
    for path in files:
        console.print(f"Wrote {path}", markup=False, soft_wrap=True)
