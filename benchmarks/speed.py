"""Measure what privacy costs in time and memory: ``python -m benchmarks.speed``, or ``make bench``."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from resperturb.cli.output import JsonOption, emit

HELP = """
Measure what privacy costs: time and memory of a step, compared with a plain PyTorch loop written by hand.

Several processes measure one after the other, each after compiling a dozen networks. This takes ten minutes.
Nothing else should run meanwhile.

Example: `python -m benchmarks.speed --model resnet8 --figure docs/images/speed`
"""


app = typer.Typer(add_completion=False)


@app.command(help=HELP)
def bench(
    model: Annotated[str, typer.Option(help="The network.")] = "resnet8",
    larger: Annotated[str, typer.Option(help="A second, larger network; 'none' for none.")] = "resnet20",
    batch_size: Annotated[int, typer.Option(min=1, help="Images per step.")] = 128,
    image_size: Annotated[int, typer.Option(min=1, help="Pixels per side.")] = 32,
    processes: Annotated[
        int, typer.Option(min=1, help="Processes that measure a network, one after the other; below 6, no intervals.")
    ] = 6,
    rounds: Annotated[
        int,
        typer.Option(min=1, help="Most rounds per process; a round takes about a quarter of a second per variant."),
    ] = 60,
    minutes: Annotated[float, typer.Option(min=0, help="Time limit; rounds are left out to keep it.")] = 9.5,
    threads: Annotated[int | None, typer.Option(min=1, help="Processor threads; one per core by default.")] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="A rough look: nothing compiled, one process, 3 rounds, one network. Not to be quoted."
        ),
    ] = False,
    memory: Annotated[bool, typer.Option("--memory/--no-memory", help="Measure the memory too.")] = True,
    growth: Annotated[
        bool, typer.Option("--growth/--no-growth", help="Measure how time and memory grow; not in a quick look.")
    ] = True,
    figure: Annotated[Path | None, typer.Option(help="Draw the bars here, as .png and .svg.")] = None,
    save: Annotated[Path | None, typer.Option(help="Write the result here as JSON.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure, draw, print."""
    import logging
    import os

    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler says on stderr when it begins and ends
    logging.getLogger("resperturb").setLevel(logging.WARNING)  # not for every network where its noise is

    from rich.console import Console

    from benchmarks.bench import WAYS, Workload, run_bench
    from resperturb.files import write_json
    from resperturb.models import build
    from resperturb.noise import has_compiler

    for name in (model, larger):
        if name != "none":
            build(name, num_classes=2)
    compiled = not quick and has_compiler()
    first = Workload(model, batch_size, image_size, threads or os.cpu_count() or 1, compiled)
    settings = [first]
    if not quick and larger != "none":
        # The paper's ensembles are of the small network, and variants without a target take too long on a large one.
        left_out = ("en5", "opacus", "plain_eager", "prediction_plain_eager")
        ways = tuple(way for way in WAYS if way not in left_out)
        settings.append(Workload(larger, batch_size, image_size, first.threads, compiled, ways=ways))
    with Console(stderr=True).status("Starting") as status:
        result = run_bench(
            settings,
            processes=1 if quick else processes,
            rounds=3 if quick else rounds,
            minutes=minutes,
            memory=memory,
            growth=growth and not quick,
            on_update=lambda message: status.update(message) if sys.stderr.isatty() else None,
        )
    result["quick"] = quick
    if save is not None:
        write_json(save, result)
    if figure is not None:
        from resperturb_reproduction.figures.style import save_figure

        from benchmarks.speed_figure import speed_figure

        save_figure(speed_figure(result), figure.with_suffix("") if figure.suffix in (".png", ".svg") else figure)
    emit(result, as_json, lambda console: _show(console, result))


def _show(console: Any, result: dict[str, Any]) -> None:
    from rich.table import Table

    from benchmarks.bench import WAYS

    for network in result["networks"]:
        size = network["image_size"]
        title = f"{network['model']}, {size}x{size}, batch {network['batch_size']}, {network['threads']} threads"
        table = Table(title=title, title_justify="left")
        table.add_column("way")
        for heading in ("ms per step", "/ plain", "CPU ms", "/ plain", "peak MB", "/ plain"):
            table.add_column(heading, justify="right")
        for name in network["milliseconds"]:
            base = network["prediction_plain" if name.startswith("prediction") else "plain"]
            cells = []
            for unit, digits in (("milliseconds", 1), ("cpu_milliseconds", 1), ("megabytes", 0)):
                costs = network[unit]
                cells += [f"{costs[name]:.{digits}f}", f"{costs[name] / costs[base]:.2f}"] if costs else ["", ""]
            table.add_row(WAYS[name][0] + (" = plain" if name == base else ""), *cells)
        console.print(table)
        console.print(_ratio_table(network, {} if result["quick"] else result["targets"]))
    if result["growth"]:
        console.print(_growth_table(result["growth"]))
    if result["quick"]:
        console.print("A rough look: nothing was compiled and few rounds were taken. Do not quote these numbers.")
    busy = result["environment"]["load_before"]
    if busy > 0.3 * result["environment"]["cores"]:
        console.print(f"The machine was busy (load {busy:.1f} before the start): do not quote these numbers.")


def _ratio_table(network: dict[str, Any], targets: dict[str, float]) -> Any:
    from rich.table import Table

    from benchmarks.bench import RATIOS, verdict

    table = Table()
    table.add_column("ratio")
    for heading in ("time", "95% interval", "CPU time", "95% interval", "target", "memory"):
        table.add_column(heading, justify="right")
    for name in network["ratios"]:
        target = targets.get(name)
        memory = network["memory_ratios"].get(name)
        table.add_row(
            RATIOS[name].label,
            f"{network['ratios'][name]:.3f}",
            _interval(network["intervals"][name]),
            f"{network['cpu_ratios'][name]:.3f}",
            _interval(network["cpu_intervals"][name]),
            "" if target is None else f"{target:.2f}, {verdict(network['intervals'][name], target)}",
            "" if memory is None else f"{memory:.2f}",
        )
    return table


def _interval(found: tuple[float, float] | None) -> str:
    return "too few rounds" if found is None else f"{found[0]:.3f} to {found[1]:.3f}"


def _growth_table(growth: dict[str, Any]) -> Any:
    from rich.table import Table

    from benchmarks.bench import GROWING

    table = Table(title="Growth: a slope of 1 is proportional, 0 is flat", title_justify="left")
    for heading in ("dimension", "variant", "values", "CPU seconds", "slope", "peak MB", "slope"):
        table.add_column(heading)
    for what, row in growth.items():
        table.add_row(
            what,
            GROWING[row["way"]][0],
            ", ".join(map(str, row["values"])),
            ", ".join(f"{value:.3f}" for value in row["cpu_seconds"]),
            f"{row['time_slope']:.2f}",
            ", ".join(f"{value:.0f}" for value in row["megabytes"]),
            f"{row['memory_slope']:.2f}",
        )
    return table


if __name__ == "__main__":
    app()
