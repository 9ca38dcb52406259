"""``resperturb rademacher``: Theorem 3 on given inputs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from resperturb.cli.output import JsonOption, emit

if TYPE_CHECKING:
    from resperturb_reproduction.rademacher import Rademacher


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("rademacher")(show_rademacher)


def show_rademacher(
    data: Annotated[Path, typer.Option(help="The inputs: a .npy file with one row (or image) for each record.")],
    gamma: Annotated[list[float], typer.Option(help="Noise coefficient; give it more than once to compare.")],
    power: Annotated[float, typer.Option(help="The power p of the features, between 0 and 1.")] = 0.5,
    time: Annotated[float, typer.Option(help="The time T of the flow.")] = 1.0,
    norm: Annotated[float, typer.Option(help="Largest norm of the weights (the paper's c).")] = 1.0,
    loss_bound: Annotated[float, typer.Option(help="Largest loss (the paper's B).")] = 1.0,
    lipschitz: Annotated[float, typer.Option(help="Lipschitz constant of the loss (the paper's L).")] = 1.0,
    delta: Annotated[float, typer.Option(help="Probability with which the gap may be larger.")] = 0.05,
    draws: Annotated[int, typer.Option(help="Sign draws, for more than 16 records.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the sign draws.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Theorem 3: how much multiplicative noise shrinks the Rademacher complexity. It protects nobody.

    Example: `resperturb rademacher --data inputs.npy --gamma 0.5 --gamma 1 --gamma 2`
    """
    from resperturb_reproduction.rademacher import rademacher

    result = rademacher(
        _load(data),
        gamma,
        power=power,
        time=time,
        norm=norm,
        loss_bound=loss_bound,
        lipschitz=lipschitz,
        delta=delta,
        draws=draws,
        seed=seed,
    )
    emit(result.to_dict(), as_json, lambda console: _show_rademacher(console, result))


def _show_rademacher(console: Any, result: "Rademacher") -> None:
    from rich.table import Table
    from rich.text import Text

    how = "all signs" if result.sum.draws is None else f"{result.sum.draws} sign draws"
    table = Table(title=f"Theorem 3 on {result.sum.records} records ({how})", title_justify="left")
    for heading in ("gamma", "R(G)/R(F)", "complexity", "standard error", "gap at most", "gap as printed"):
        table.add_column(heading, justify="right")
    for row in (result.plain, *result.noisy):
        numbers = (row.gamma, row.ratio, row.complexity, row.standard_error, row.gap, row.gap_printed)
        table.add_row(*(f"{value:.4g}" for value in numbers))
    console.print(table)
    console.print(result.meaning[0].upper() + result.meaning[1:])
    console.print(f"Protects {result.protects}")
    console.print("It holds only if")
    grid = Table.grid(padding=(0, 2))
    for assumption in result.assumptions:
        grid.add_row("", assumption.status, Text(assumption.statement))
    console.print(grid)


def _load(path: Path) -> Any:
    import numpy as np

    from resperturb.errors import UsageError

    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise UsageError(f"{path} is not a readable .npy file of numbers.") from error
    if not isinstance(array, np.ndarray):
        raise UsageError(f"{path} holds several arrays; save the inputs alone, with numpy.save.")
    return array
