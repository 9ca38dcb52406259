"""``resperturb reproduce``: the paper's tables and figures by name, beside what we measure."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from resperturb.cli.engines import EngineOption, RayAddressOption, RayCpusOption, RayGpusOption, engine_of
from resperturb.cli.output import JsonOption, emit

if TYPE_CHECKING:
    from resperturb.engine import Engine
    from resperturb.paper.reproduce.declarations import Experiment
    from resperturb.paper.reproduce.presets import Preset
    from resperturb.paper.reproduce.results import Measured

PresetOption = Annotated[
    str, typer.Option("--preset", help="quick (a smoke test), cpu (hours on two cores) or paper (the full settings).")
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
    from resperturb.paper.reproduce.declarations import EXPERIMENTS

    lines = [{"id": e.id, "place": e.place, "title": e.title, "data": list(e.data)} for e in EXPERIMENTS]

    def show(console: Any) -> None:
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
    runs: RunsOption = RUNS,
    results: ResultsOption = None,
    jobs: JobsOption = None,
    seeds: SeedsOption = None,
    engine: EngineOption = "local",
    ray_address: RayAddressOption = None,
    ray_cpus: RayCpusOption = None,
    ray_gpus: RayGpusOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run experiments: train what is missing, attack, measure, draw.

    Stop it whenever you like: the same command goes on from where it was.

    Example: `resperturb reproduce run cifar10-table --preset cpu --jobs 2`
    """
    _run(ids, preset, runs, results, jobs, seeds, engine_of(engine, ray_address, ray_cpus, ray_gpus), as_json)


@app.command("all")
def run_all(
    preset: PresetOption = "quick",
    runs: RunsOption = RUNS,
    results: ResultsOption = None,
    jobs: JobsOption = None,
    seeds: SeedsOption = None,
    engine: EngineOption = "local",
    ray_address: RayAddressOption = None,
    ray_cpus: RayCpusOption = None,
    ray_gpus: RayGpusOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run everything: the tables first, then the figures.

    Example: `resperturb reproduce all --preset cpu --results docs/results`
    """
    _run(["all"], preset, runs, results, jobs, seeds, engine_of(engine, ray_address, ray_cpus, ray_gpus), as_json)


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
    from resperturb.paper.reproduce.declarations import chosen
    from resperturb.paper.reproduce.presets import preset_named
    from resperturb.paper.reproduce.status import status

    picked, size = chosen(ids or ["all"]), preset_named(preset, seeds)
    found = status(picked, size, runs, _results(results, runs, size), _jobs(jobs, size))
    emit(found, as_json, lambda console: _show_status(console, found))


@app.command("report")
def report(
    preset: PresetOption = "quick",
    runs: RunsOption = RUNS,
    results: ResultsOption = None,
    page: Annotated[Path, typer.Option("--page", help="The Markdown page to write.")] = Path("reproduction.md"),
    as_json: JsonOption = False,
) -> None:
    """Write the page "paper / measured / preset / verdict" from the results.

    Paragraphs under `## ID` in notes.md of that folder are put below their experiment.

    Example: `resperturb reproduce report --results docs/results --page docs/reproduction.md`
    """
    from resperturb.errors import UsageError
    from resperturb.paper.reproduce.page import write_page
    from resperturb.paper.reproduce.presets import preset_named
    from resperturb.paper.reproduce.results import load_all

    folder = _results(results, runs, preset_named(preset))
    found = load_all(folder)
    if not found:
        raise UsageError(
            f"there are no results in {folder}; `resperturb reproduce run ID --preset {preset} --results {folder}`."
        )
    write_page(page, folder, found)
    payload = {"page": str(page), "results": {name: result["preset"] for name, result in found.items()}}
    emit(payload, as_json, lambda console: console.print(f"Wrote {page} from {len(found)} results.", soft_wrap=True))


def _run(
    ids: list[str],
    preset_name: str,
    runs: Path,
    results: Path | None,
    jobs: int | None,
    seeds: int | None,
    engine: "Engine",
    as_json: bool,
) -> None:
    from rich.console import Console

    from resperturb.engine import local_engine
    from resperturb.paper.reproduce.declarations import chosen
    from resperturb.paper.reproduce.library import Library
    from resperturb.paper.reproduce.presets import preset_named
    from resperturb.paper.reproduce.results import has_more, refuse_downgrade
    from resperturb.paper.reproduce.runner import run_experiments

    experiments, preset = chosen(ids), preset_named(preset_name, seeds)
    folder = _results(results, runs, preset)
    for experiment in experiments:
        refuse_downgrade(folder, experiment.id, preset.name)
    progress = Console(stderr=True, quiet=as_json, highlight=False, soft_wrap=True, markup=False)
    library = Library(runs, jobs if engine is not local_engine else _jobs(jobs, preset), progress.print, engine)
    kept: dict[str, dict[str, Any]] = {}

    def keep(experiment: "Experiment", measured: "Measured") -> None:
        if has_more(folder, measured.result):
            progress.print(
                f"{folder / experiment.id}.json has more seeds or audits; it is kept until there are as many."
            )
            files = []
        else:
            files = _keep(folder, measured)
        kept[experiment.id] = {**_summary(measured.result), "files": files}

    run_experiments(experiments, preset, library, keep)
    payload = {"preset": preset.name, "means": preset.about, "results": kept, "failures": library.failures}
    emit(payload, as_json, lambda console: _show_results(console, payload))
    if library.failures:
        raise typer.Exit(1)


def _keep(folder: Path, measured: "Measured") -> list[str]:
    from resperturb.paper.figures.reproduction import draw
    from resperturb.paper.reproduce.results import save
    from resperturb.report import save_figure

    files = [str(save(folder, measured.result))]
    for name, figure in draw(measured).items():
        files += [str(path) for path in save_figure(figure, folder / name)]
    return files


def _summary(result: dict[str, Any]) -> dict[str, Any]:
    """The rows of a result without their curves."""
    kept: dict[str, Any] = {key: result[key] for key in ("title", "preset", "verdict", "claims") if key in result}
    long = ("roc", "thresholds")
    if "rows" in result:
        kept["rows"] = [{key: value for key, value in row.items() if key not in long} for row in result["rows"]]
    return kept


def _results(results: Path | None, runs: Path, preset: "Preset") -> Path:
    return runs / f"results-{preset.name}" if results is None else results


def _jobs(jobs: int | None, preset: "Preset") -> int:
    from resperturb.engine import usable_cores

    if jobs is not None:
        return jobs
    return 1 if preset.name == "quick" else usable_cores()


def _show_results(console: Any, payload: dict[str, Any]) -> None:
    from rich.table import Table

    console.print(f"Preset {payload['preset']}: {payload['means']}.")
    for name, result in payload["results"].items():
        rows = [row for row in result.get("rows", ()) if "measured" in row]
        if not rows:
            console.print(f"{name}: {result.get('verdict', 'see the page')}", soft_wrap=True)
            continue
        table = Table(title=f"{name}: {result['title']}", title_justify="left")
        audited = any(row.get("audit") for row in rows)
        more = ("adaptive", "audit") if audited else ()
        for heading in ("row", "AUC (paper)", *more, "train (paper)", "test (paper)"):
            table.add_column(heading)
        for row in rows:
            audit = row.get("audit") or {}
            strongest = f"{audit['auc']:.3f}" if "auc" in audit else ""
            table.add_row(
                row["name"],
                _beside(row, "auc"),
                *((_beside(row, "adaptive_auc"), strongest) if audited else ()),
                _beside(row, "train_accuracy"),
                _beside(row, "test_accuracy"),
            )
        console.print(table)
        for row in rows:
            console.print(f"  {row['name']}: {row['verdict']}", soft_wrap=True)
        for claim in result.get("claims", ()):
            console.print(f"  {claim['verdict']}: {claim['text']}", soft_wrap=True)
    for failure in payload["failures"].values():
        console.print(f"Not trained: {failure}", soft_wrap=True)


def _beside(row: dict[str, Any], metric: str) -> str:
    spread, printed = row["measured"].get(metric), (row["paper"] or {}).get(metric)
    ours = "?" if spread is None else f"{spread['mean']:.3f}"
    return ours + ("" if printed is None else f" ({printed:.3f})")


def _show_status(console: Any, found: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table("ID", "trainings", "left, core-hours", "result")
    for line in found["experiments"]:
        trained = f"{line['done']} of {line['trainings']}" if line["trainings"] else ""
        left = f"{line['core_seconds_left'] / 3600:.2f}" if line["trainings"] else ""
        state = "complete" if line["complete"] else "partial" if line["result"] == found["preset"] else "none"
        table.add_row(line["id"], trained, left, state)
    console.print(table)
    measured = "measured times" if found["measured_over_planned"] else "plan; nothing is measured yet"
    console.print(
        f"{found['done']} of {found['trainings']} trainings are done (shared ones counted once). Left: "
        f"{found['core_seconds_left'] / 3600:.1f} core-hours, about {found['seconds_left'] / 3600:.1f} hours with "
        f"{found['jobs']} jobs (from the {measured}), without the attacks and audits.",
        soft_wrap=True,
    )
