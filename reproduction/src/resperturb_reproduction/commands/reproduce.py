"""``resperturb reproduce``: the paper's tables and figures by name, beside what we measure."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from resperturb.cli.engines import EngineOption, RayAddressOption, RayCpusOption, RayGpusOption, engine_of
from resperturb.cli.output import JsonOption, emit

if TYPE_CHECKING:
    from rich.console import Console

    from resperturb.engine import Engine
    from resperturb_reproduction.reproduce.declarations import Experiment
    from resperturb_reproduction.reproduce.presets import Preset
    from resperturb_reproduction.reproduce.results import AnyResult, Measured, Row
    from resperturb_reproduction.reproduce.status import Status
    from resperturb_reproduction.reproduce.verdicts import Spreads

PresetOption = Annotated[
    str,
    typer.Option(
        "--preset",
        help="quick (a smoke test), cpu (hours on two cores), long (60 epochs) or paper (the full settings).",
    ),
]
RunsOption = Annotated[Path, typer.Option("--runs", help="Folder of all trainings; what is there is not redone.")]
ResultsOption = Annotated[
    Path | None, typer.Option("--results", help="Folder of results and figures. [default: RUNS/results-PRESET]")
]
JobsOption = Annotated[
    int | None, typer.Option("--jobs", min=1, help="Trainings at a time. [default: one, or all cores but for quick]")
]
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
    help="Reproduce the paper: every table and every figure by its name, beside what it printed.",
)


def register(parent: typer.Typer) -> None:
    """Add the group of commands."""
    parent.add_typer(app, name="reproduce")


@app.command("list")
def list_experiments(as_json: JsonOption = False) -> None:
    """List every table and figure by its ID.

    Example: `resperturb reproduce list --json`
    """
    from resperturb_reproduction.reproduce.declarations import EXPERIMENTS

    lines = [{"id": e.id, "place": e.place, "title": e.title, "data": list(e.data)} for e in EXPERIMENTS]

    def show(console: "Console") -> None:
        from rich.table import Table

        table = Table()
        for heading in ("ID", "in the paper", "what"):
            table.add_column(heading, no_wrap=heading != "what")
        for line in lines:
            table.add_row(str(line["id"]), str(line["place"]), str(line["title"]))
        console.print(table)

    emit({"experiments": lines}, as_json, show)


@app.command("run")
def run(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Experiments by their IDs, or 'all'.")],
    preset: PresetOption = "quick",
    rows: Annotated[
        str | None, typer.Option("--rows", help="Only these rows, with commas: non-private,gamma-4.5.")
    ] = None,
    runs: RunsOption = RUNS,
    results: ResultsOption = None,
    jobs: JobsOption = None,
    seeds: SeedsOption = None,
    shadows: ShadowsOption = None,
    attacks: AttacksOption = None,
    measure_only: MeasureOption = False,
    engine: EngineOption = "local",
    ray_address: RayAddressOption = None,
    ray_cpus: RayCpusOption = None,
    ray_gpus: RayGpusOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run experiments: train what is missing, attack, compare with the paper, draw.

    Give the command again after an interruption: finished trainings are not repeated. Each row keeps its preset, and
    rows of other presets stay in the result: the best is shown.

    Example: `resperturb reproduce run cifar10-table --preset paper --rows non-private,gamma-4.5 --seeds 1`
    """
    from resperturb_reproduction.reproduce.declarations import chosen, with_attacks
    from resperturb_reproduction.reproduce.presets import preset_named

    picked = with_attacks(chosen(ids, _listed(rows)), _listed(attacks))
    size = preset_named(preset, seeds, shadows)
    _run(picked, size, runs, results, jobs, engine_of(engine, ray_address, ray_cpus, ray_gpus), as_json, measure_only)


@app.command("all")
def run_all(
    preset: PresetOption = "quick",
    runs: RunsOption = RUNS,
    results: ResultsOption = None,
    jobs: JobsOption = None,
    seeds: SeedsOption = None,
    measure_only: MeasureOption = False,
    engine: EngineOption = "local",
    ray_address: RayAddressOption = None,
    ray_cpus: RayCpusOption = None,
    ray_gpus: RayGpusOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run everything: the tables first, then the figures.

    Example: `resperturb reproduce all --preset cpu --results docs/results`
    """
    from resperturb_reproduction.reproduce.declarations import chosen
    from resperturb_reproduction.reproduce.presets import preset_named

    with_what = engine_of(engine, ray_address, ray_cpus, ray_gpus)
    _run(chosen(["all"]), preset_named(preset, seeds), runs, results, jobs, with_what, as_json, measure_only)


@app.command("status")
def show_status(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID...]", help="Some experiments only.")] = None,
    preset: PresetOption = "quick",
    runs: RunsOption = RUNS,
    results: ResultsOption = None,
    jobs: JobsOption = None,
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

    picked, size = chosen(ids or ["all"]), preset_named(preset, seeds)
    found = status(picked, size, runs, _results(results, runs, size), _jobs(jobs, size))
    emit(plain(found), as_json, lambda console: _show_status(console, found))


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
    from resperturb_reproduction.reproduce.presets import preset_named
    from resperturb_reproduction.reproduce.results import load_all

    folder = _results(results, runs, preset_named(preset))
    found = load_all(folder)
    if not found:
        raise UsageError(
            f"there are no results in {folder}; `resperturb reproduce run ID --preset {preset} --results {folder}`."
        )
    for name, figure in page_figures(found).items():
        save_figure(figure, folder / name, ("svg",))
    written = write_pages(page, folder, found)
    payload = {
        "page": str(page),
        "pages": [str(path) for path in written],
        "results": {name: [made.preset for made in result.made] for name, result in found.items()},
    }
    emit(payload, as_json, lambda console: console.print(f"Wrote {page} from {len(found)} results.", soft_wrap=True))


def _listed(names: str | None) -> list[str]:
    return [] if names is None else [name.strip() for name in names.split(",") if name.strip()]


def _run(
    experiments: "list[Experiment]",
    preset: "Preset",
    runs: Path,
    results: Path | None,
    jobs: int | None,
    engine: "Engine",
    as_json: bool,
    measure_only: bool,
) -> None:
    from rich.console import Console

    from resperturb.engine import local_engine
    from resperturb.files import plain
    from resperturb_reproduction.reproduce.library import Library
    from resperturb_reproduction.reproduce.results import load_all, refuse_smoke_test
    from resperturb_reproduction.reproduce.runner import run_experiments
    from resperturb_reproduction.reproduce.verdicts import Spreads

    folder = _results(results, runs, preset)
    for experiment in experiments:
        refuse_smoke_test(folder, experiment.id, preset.name)
    progress = Console(stderr=True, quiet=as_json, highlight=False, soft_wrap=True, markup=False)
    at_a_time = jobs if engine is not local_engine else _jobs(jobs, preset)
    library = Library(runs, at_a_time, progress.print, engine, may_train=not measure_only)
    kept: dict[str, AnyResult] = {}
    files: dict[str, list[str]] = {}

    def keep(experiment: "Experiment", measured: "Measured") -> None:
        kept[experiment.id], files[experiment.id] = _keep(folder, measured)

    run_experiments(experiments, preset, library, keep)
    spreads = Spreads([*load_all(folder).values(), *kept.values()])
    payload = {
        "preset": preset.name,
        "means": preset.about,
        "results": {name: {**_judged(result, spreads), "files": files[name]} for name, result in kept.items()},
        "failures": library.failures,
    }

    def show(console: "Console") -> None:
        console.print(f"Preset {preset.name}: {preset.about}.")
        for result in kept.values():
            _show_result(console, result, spreads)
        for failure in library.failures.values():
            console.print(f"Not trained: {failure}", soft_wrap=True)

    emit(plain(payload), as_json, show)
    if library.failures:
        raise typer.Exit(1)


def _keep(folder: Path, measured: "Measured") -> "tuple[AnyResult, list[str]]":
    from dataclasses import replace

    from resperturb_reproduction.figures.reproduction import draw
    from resperturb_reproduction.figures.style import save_figure
    from resperturb_reproduction.reproduce.results import save

    result = save(folder, measured.result)
    files = [str(folder / f"{result.id}.json")]
    for name, figure in draw(replace(measured, result=result)).items():
        files += [str(path) for path in save_figure(figure, folder / name, ("svg",))]
    return result, files


def _judged(result: "AnyResult", spreads: "Spreads") -> "dict[str, object]":
    """A result as it is kept, with verdicts and without the curves of its rows."""
    from resperturb.files import plain
    from resperturb_reproduction.reproduce.results import Trained
    from resperturb_reproduction.reproduce.verdicts import judge_claims, judge_row

    content: dict[str, object] = plain(result)
    if isinstance(result, Trained):
        content["rows"] = [
            {**{k: v for k, v in plain(row).items() if k not in ("roc", "thresholds")}, "verdict": plain(verdict)}
            for row in result.rows
            for verdict in [judge_row(row, result, spreads)]
        ]
        content["claims"] = plain(judge_claims(result, spreads))
    return content


def _results(results: Path | None, runs: Path, preset: "Preset") -> Path:
    return runs / f"results-{preset.name}" if results is None else results


def _jobs(jobs: int | None, preset: "Preset") -> int:
    from resperturb.engine import usable_cores

    if jobs is not None:
        return jobs
    return 1 if preset.name == "quick" else usable_cores()


def _show_result(console: "Console", result: "AnyResult", spreads: "Spreads") -> None:
    from rich.table import Table

    from resperturb_reproduction.reproduce.declarations import BY_ID
    from resperturb_reproduction.reproduce.results import Budgets, Computed
    from resperturb_reproduction.reproduce.verdicts import judge_claims, judge_row

    if isinstance(result, Computed):
        console.print(f"{result.id}: {result.verdict}", soft_wrap=True)
        return
    if isinstance(result, Budgets):
        for line in result.rows:
            console.print(f"{result.id}: {line.data}, {line.name}: {line.verdict}", soft_wrap=True)
        return
    table = Table(title=f"{result.id}: {BY_ID[result.id].title}", title_justify="left")
    for heading in ("row", "preset", "AUC (paper)", "train (paper)", "test (paper)"):
        table.add_column(heading)
    for row in result.shown:
        beside = (_beside(row, metric) for metric in ("auc", "train_accuracy", "test_accuracy"))
        table.add_row(row.key, row.preset, *beside)
    console.print(table)
    for row in result.attacked:
        strongest = f"{row.audit.auc:.3f} ({row.audit.strongest})" if row.audit else "no audit"
        console.print(
            f"  {row.key}, preset {row.preset}: AUC of the adaptive attack {_beside(row, 'adaptive_auc')}, strongest "
            f"of the audit {strongest}",
            soft_wrap=True,
        )
    for row in result.shown:
        verdict = judge_row(row, result, spreads)
        console.print(f"  {row.name}: {verdict}. {verdict.detail}", soft_wrap=True)
    for found in judge_claims(result, spreads):
        console.print(f"  {found.claim.text} {found.verdict}. {found.verdict.detail}", soft_wrap=True)


def _beside(row: "Row", metric: str) -> str:
    found, printed = row.measured.of(metric), getattr(row.paper, metric, None)
    ours = "?" if found is None else f"{found.mean:.3f}"
    return ours + ("" if printed is None else f" ({printed:.3f})")


def _show_status(console: "Console", found: "Status") -> None:
    from rich.table import Table

    table = Table("ID", "trainings", "left, core-hours", "result")
    for line in found.experiments:
        trained = f"{line.done} of {line.trainings}" if line.trainings else ""
        left = f"{line.core_seconds_left / 3600:.2f}" if line.trainings else ""
        state = "complete" if line.complete else "partial" if found.preset in line.presets else "none"
        table.add_row(line.id, trained, left, state)
    console.print(table)
    measured = "measured times" if found.measured_over_planned else "plan; nothing is measured yet"
    console.print(
        f"{found.done} of {found.trainings} trainings are done (shared ones counted once). Left: "
        f"{found.core_seconds_left / 3600:.1f} core-hours, about {found.seconds_left / 3600:.1f} hours with "
        f"{found.jobs} jobs (from the {measured}), without the attacks and audits.",
        soft_wrap=True,
    )
