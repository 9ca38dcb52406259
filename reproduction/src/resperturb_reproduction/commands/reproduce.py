"""``resperturb reproduce``: the paper's tables and figures by name, compared with what it published."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from resperturb.cli.output import EngineOption, JsonOption, RayCpusOption, RayGpusOption, emit, engine_of

if TYPE_CHECKING:
    from rich.console import Console

    from resperturb_reproduction.reproduce.results import AnyResult
    from resperturb_reproduction.reproduce.verdicts import Spreads

PresetOption = Annotated[
    str,
    typer.Option(
        "--preset",
        help="quick (a smoke test), cpu (hours on two cores), long (60 epochs) or paper (the full settings).",
    ),
]
RunsOption = Annotated[Path, typer.Option("--runs", help="Folder of all trainings; finished ones are not repeated.")]
ResultsOption = Annotated[
    Path | None, typer.Option("--results", help="Folder of results and figures. [default: RUNS/results-PRESET]")
]
JobsOption = Annotated[int, typer.Option("--jobs", min=1, help="Trainings at a time.")]
SeedsOption = Annotated[
    int | None, typer.Option("--seeds", min=1, help="Trainings of every table row. [default: the preset's]")
]
ShadowsOption = Annotated[
    int | None, typer.Option("--shadows", min=4, help="Shadow models of an audit. [default: the preset's]")
]
AttacksOption = Annotated[
    str | None,
    typer.Option("--attacks", help="Make only these attacks: paper, adaptive, audit, or several with commas."),
]
MeasureOption = Annotated[
    bool, typer.Option("--measure-only", help="Train nothing: measure the trainings that are there.")
]

RUNS = Path("runs/reproduce")
app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Reproduce the paper: every table and every figure by its name, compared with what it published.",
)


def register(parent: typer.Typer) -> None:
    """Add the group of commands."""
    line = "Reproduce the paper's tables and figures by name"
    parent.add_typer(app, name="reproduce", short_help=line, rich_help_panel="Paper")


@app.command("list")
def list_experiments(as_json: JsonOption = False) -> None:
    """List every table and figure by its ID.

    Example: `resperturb reproduce list --json`
    """
    from resperturb_reproduction.reproduce.declarations import EXPERIMENTS

    lines = [{"id": e.id, "place": e.place, "title": e.title, "data": list(e.data)} for e in EXPERIMENTS]
    rows = [(e.id, e.place, e.title) for e in EXPERIMENTS]
    emit({"experiments": lines}, as_json, lambda console: _table(console, ("ID", "in the paper", "what"), rows))


@app.command("run")
def run(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Experiments by their IDs, or 'all'.")],
    preset: PresetOption = "quick",
    rows: Annotated[
        str | None, typer.Option("--rows", help="Only these rows, with commas: non-private,gamma-4.5.")
    ] = None,
    data: Annotated[
        str | None, typer.Option("--data", help="Only the rows of these data sets, with commas: cifar10,idc.")
    ] = None,
    runs: RunsOption = RUNS,
    results: ResultsOption = None,
    jobs: JobsOption = 1,
    seeds: SeedsOption = None,
    shadows: ShadowsOption = None,
    attacks: AttacksOption = None,
    measure_only: MeasureOption = False,
    engine: EngineOption = "local",
    ray_cpus: RayCpusOption = None,
    ray_gpus: RayGpusOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run experiments: train what is missing, attack, compare with the paper, draw.

    Give the command again after an interruption: finished trainings are not repeated. Each row keeps its preset, and
    rows of other presets stay in the result: the best is shown.

    Example: `resperturb reproduce run cifar10-table --preset paper --rows non-private,gamma-4.5 --seeds 1`
    """
    from rich.console import Console

    from resperturb.files import plain
    from resperturb_reproduction.reproduce.declarations import chosen, with_attacks
    from resperturb_reproduction.reproduce.library import Library
    from resperturb_reproduction.reproduce.presets import preset_named
    from resperturb_reproduction.reproduce.results import load, load_all, refuse_smoke_test
    from resperturb_reproduction.reproduce.runner import run_experiments
    from resperturb_reproduction.reproduce.verdicts import Spreads

    picked = with_attacks(chosen(ids, _listed(rows), _listed(data)), _listed(attacks))
    size, folder = preset_named(preset, seeds, shadows), _results(results, runs, preset)
    for experiment in picked:
        refuse_smoke_test(load(folder, experiment.id), folder, preset)
    on = engine_of(engine, ray_cpus, ray_gpus)
    progress = Console(stderr=True, quiet=as_json, highlight=False, soft_wrap=True, markup=False)
    library = Library(runs, jobs, progress.print, on, may_train=not measure_only)
    kept: dict[str, AnyResult] = {}
    files: dict[str, list[str]] = {}

    def keep(result: "AnyResult") -> None:
        kept[result.id], files[result.id] = _keep(folder, result)

    run_experiments(picked, size, library, keep)
    spreads = Spreads([*load_all(folder).values(), *kept.values()])
    payload = {
        "preset": size.name,
        "means": size.about,
        "results": {name: {**_judged(result, spreads), "files": files[name]} for name, result in kept.items()},
        "failures": library.failures,
    }

    def show(console: "Console") -> None:
        console.print(f"Preset {size.name}: {size.about}.")
        for result in kept.values():
            _show_result(console, result, spreads)
        for failure in library.failures.values():
            console.print(f"Not trained: {failure}", soft_wrap=True)

    emit(plain(payload), as_json, show)
    if library.failures:
        raise typer.Exit(1)


@app.command("status")
def show_status(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID...]", help="Some experiments only.")] = None,
    preset: PresetOption = "quick",
    runs: RunsOption = RUNS,
    results: ResultsOption = None,
    jobs: JobsOption = 1,
    seeds: SeedsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what is done, what is left, and how long it will take.

    Example: `resperturb reproduce status --preset cpu`
    """
    from resperturb.files import plain
    from resperturb_reproduction.reproduce.declarations import chosen
    from resperturb_reproduction.reproduce.presets import preset_named
    from resperturb_reproduction.reproduce.status import status

    picked = chosen(ids or ["all"])
    found = status(picked, preset_named(preset, seeds), runs, _results(results, runs, preset), jobs)

    def show(console: "Console") -> None:
        lines = [
            (
                line.id,
                f"{line.trainings - len(line.missing)} of {line.trainings}" if line.trainings else "",
                f"{line.core_seconds_left / 3600:.2f}" if line.trainings else "",
                "complete" if line.complete else "partial" if found.preset in line.presets else "none",
            )
            for line in found.experiments
        ]
        _table(console, ("ID", "trainings", "left, core-hours", "result"), lines)
        for name in {name: None for line in found.experiments if ids for name in line.missing}:
            console.print(f"Not trained: {name}", soft_wrap=True)
        times = "plan; nothing is measured yet" if found.measured_over_planned is None else "measured times"
        hours = found.core_seconds_left / 3600
        console.print(
            f"{found.done} of {found.trainings} trainings are done, audits included and shared ones counted once. "
            f"Left: {hours:.1f} core-hours, {hours / jobs:.1f} hours with {jobs} jobs (from the {times}).",
            soft_wrap=True,
        )

    emit(plain(found), as_json, show)


@app.command("report")
def report(
    preset: PresetOption = "quick",
    runs: RunsOption = RUNS,
    results: ResultsOption = None,
    page: Annotated[Path, typer.Option("--page", help="The Markdown page to write.")] = Path("reproduction.md"),
    as_json: JsonOption = False,
) -> None:
    """Write the pages from the results: a summary, the five tables, the sweeps and the open row.

    The figures of these pages are drawn again. Paragraphs under `## NAME` in notes.md of the results' folder are put
    on the page of that name.

    Example: `resperturb reproduce report --results docs/results --page docs/reproduction.md`
    """
    from resperturb.errors import UsageError
    from resperturb_reproduction.figures.reproduction import page_figures
    from resperturb_reproduction.figures.style import save_figure
    from resperturb_reproduction.reproduce.page import write_pages
    from resperturb_reproduction.reproduce.results import load_all

    folder = _results(results, runs, preset)
    found = load_all(folder)
    if not found:
        raise UsageError(
            f"there are no results in {folder}; `resperturb reproduce run ID --preset {preset} --results {folder}`."
        )
    for name, figure in page_figures(found).items():
        save_figure(figure, folder / name, ("svg",))
    payload = {
        "page": str(page),
        "pages": [str(path) for path in write_pages(page, folder, found)],
        "results": {name: [made.preset for made in result.made] for name, result in found.items()},
    }
    emit(payload, as_json, lambda console: console.print(f"Wrote {page} from {len(found)} results.", soft_wrap=True))


def _listed(names: str | None) -> list[str]:
    return [] if names is None else [name.strip() for name in names.split(",") if name.strip()]


def _results(results: Path | None, runs: Path, preset: str) -> Path:
    return runs / f"results-{preset}" if results is None else results


def _keep(folder: Path, new: "AnyResult") -> "tuple[AnyResult, list[str]]":
    from resperturb_reproduction.figures.reproduction import draw
    from resperturb_reproduction.figures.style import save_figure
    from resperturb_reproduction.reproduce.results import save

    result = save(folder, new)
    files = [str(folder / f"{result.id}.json")]
    for name, figure in draw(result).items():
        files += [str(path) for path in save_figure(figure, folder / name, ("svg",))]
    return result, files


def _judged(result: "AnyResult", spreads: "Spreads") -> "dict[str, Any]":
    """Write a result with its verdicts and without the curves of its rows."""
    from resperturb.files import plain
    from resperturb_reproduction.reproduce.results import Trained
    from resperturb_reproduction.reproduce.verdicts import judge_claims, judge_row

    content: dict[str, Any] = plain(result)
    if isinstance(result, Trained):
        content["rows"] = [
            {**plain(replace(row, roc=None, thresholds=())), "verdict": plain(judge_row(row, result, spreads))}
            for row in result.rows
        ]
        content["claims"] = plain(judge_claims(result, spreads))
    return content


def _show_result(console: "Console", result: "AnyResult", spreads: "Spreads") -> None:
    from resperturb_reproduction.reproduce.page import METRICS, beside
    from resperturb_reproduction.reproduce.results import Computed
    from resperturb_reproduction.reproduce.verdicts import judge_claims, judge_row

    if isinstance(result, Computed):
        console.print(f"{result.id}: {result.verdict}", soft_wrap=True)
        return
    console.print(f"{result.id}: published values are in brackets")
    lines = [
        (f"{row.data} {row.key}", *(beside(row, name) for name in METRICS), str(judge_row(row, result, spreads)))
        for row in result.shown
    ]
    _table(console, ("row", "AUC", "train", "test", "published row"), lines)
    for found in judge_claims(result, spreads):
        console.print(f"  {found.claim.text} {found.verdict}. {found.verdict.detail}", soft_wrap=True)


def _table(console: "Console", headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.table import Table

    table = Table()
    for heading in headings:
        table.add_column(heading, no_wrap=heading != headings[-1])
    for row in rows:
        table.add_row(*row)
    console.print(table)
