"""``resperturb bench``: what privacy costs in time and memory on this machine."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from resperturb.cli.output import JsonOption, emit

HELP = """
Measure what privacy costs: time and memory of a step, beside a plain PyTorch loop written by hand.

Compiles a dozen networks first, so it takes a quarter of an hour on two cores; nothing else should run meanwhile.

Example: `resperturb bench --model resnet8 --figure docs/images/speed`
"""

RATIOS = {
    "trainer_over_plain": "the trainer without noise / plain",
    "additive_over_plain": "additive / plain",
    "multiplicative_over_plain": "multiplicative / plain",
    "en5_over_5_singles": "En5 / five single networks",
    "dpsgd_over_additive": "DP-SGD / additive",
    "prediction_additive_over_plain": "prediction, additive / plain",
}


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("bench", help=HELP)(bench)


def bench(
    model: Annotated[str, typer.Option(help="The network.")] = "resnet8",
    larger: Annotated[str, typer.Option(help="A second, larger network; 'none' for none.")] = "resnet20",
    batch_size: Annotated[int, typer.Option(min=1, help="Images a step.")] = 128,
    image_size: Annotated[int, typer.Option(min=1, help="Pixels a side.")] = 32,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, of about a second for each way.")] = 21,
    threads: Annotated[int | None, typer.Option(min=1, help="Processor threads; one for each core.")] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="A rough look: nothing compiled, 3 rounds, one network. Not to be quoted."),
    ] = False,
    memory: Annotated[bool, typer.Option("--memory/--no-memory", help="Measure the memory too.")] = True,
    figure: Annotated[Path | None, typer.Option(help="Draw the bars here, as .png and .svg.")] = None,
    save: Annotated[Path | None, typer.Option(help="Write the result here as JSON.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure, draw, print."""
    import os

    from rich.console import Console

    from resperturb.files import write_json
    from resperturb.models import build
    from resperturb.noise import has_compiler
    from resperturb.paper.bench import Setting, can_measure_memory, run_bench

    for name in (model, larger):
        if name != "none":
            build(name, num_classes=2)
    compiled = not quick and has_compiler()
    first = Setting(model, batch_size, image_size, threads or os.cpu_count() or 1, compiled)
    settings = [first]
    if not quick and larger != "none":
        settings.append(Setting(larger, batch_size, image_size, first.threads, compiled))
    with Console(stderr=True).status("Starting") as status:
        result = run_bench(
            settings,
            rounds=3 if quick else rounds,
            memory=memory and can_measure_memory(),
            on_update=lambda message: status.update(message) if sys.stderr.isatty() else None,
        )
    result["quick"] = quick
    if save is not None:
        write_json(save, result)
    if figure is not None:
        from resperturb.paper.figures.speed import speed_figure
        from resperturb.report import save_figure

        save_figure(speed_figure(result), figure.with_suffix("") if figure.suffix in (".png", ".svg") else figure)
    emit(result, as_json, lambda console: _show(console, result))


def _show(console: Any, result: dict[str, Any]) -> None:
    from rich.table import Table

    from resperturb.paper.bench import WAYS

    for network in result["networks"]:
        size = network["image_size"]
        title = f"{network['model']}, {size}x{size}, batch {network['batch_size']}, {network['threads']} threads"
        table = Table(title=title, title_justify="left")
        table.add_column("way")
        for heading in ("ms a step", "/ plain", "peak MB", "/ plain"):
            table.add_column(heading, justify="right")
        for name, milliseconds in network["milliseconds"].items():
            base = network["prediction_plain" if name.startswith("prediction") else "plain"]
            memory = network["megabytes"].get(name)
            table.add_row(
                WAYS[name][0] + (" = plain" if name == base else ""),
                f"{milliseconds:.1f}",
                f"{milliseconds / network['milliseconds'][base]:.2f}",
                "" if memory is None else f"{memory:.0f}",
                "" if memory is None else f"{memory / network['megabytes'][base]:.2f}",
            )
        console.print(table)
        console.print(_ratio_table(network, {} if result["quick"] else result["targets"]))
    if result["quick"]:
        console.print("A rough look: nothing was compiled and few rounds were taken. Do not quote these numbers.")
    busy = result["environment"]["load_before"]
    if busy > 0.3 * result["environment"]["cores"]:
        console.print(f"The machine was busy (load {busy:.1f} before the start): do not quote these numbers.")


def _ratio_table(network: dict[str, Any], targets: dict[str, float]) -> Any:
    from rich.table import Table

    table = Table()
    table.add_column("ratio")
    for heading in ("time", "middle half of the rounds", "target", "memory"):
        table.add_column(heading, justify="right")
    for name, label in RATIOS.items():
        value, target = network["ratios"][name], targets.get(name)
        low, high = network["quartiles"][name]
        reached = "" if target is None else f"{target:.2f}, " + ("reached" if value <= target else "missed")
        memory = network["memory_ratios"].get(name)
        table.add_row(
            label, f"{value:.3f}", f"{low:.3f} to {high:.3f}", reached, "" if memory is None else f"{memory:.2f}"
        )
    return table
