"""``resperturb frontier``: which defence costs the least accuracy for the leak that you accept."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from resperturb.cli.output import (
    DataInOption,
    EngineOption,
    JobsOption,
    JsonOption,
    RayCpusOption,
    RayGpusOption,
    emit,
    engine_of,
)

if TYPE_CHECKING:
    from resperturb.frontiers import FrontierResult


def frontier(
    data: Annotated[str | None, typer.Option("--data", help="Folder, file or name of the images.")] = None,
    config: Annotated[Path | None, typer.Option(help="YAML file of a training without a defence.")] = None,
    model: Annotated[str | None, typer.Option(help="Network.", show_default="resnet8")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the images.")] = None,
    image_size: Annotated[int | None, typer.Option(min=1, help="Resize the short side to N pixels; crop.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Use N random images.")] = None,
    group_column: Annotated[str | None, typer.Option(help="Column whose values stay together: patient.")] = None,
    subgroup_column: Annotated[str | None, typer.Option(help="Column of subgroups that are compared: sex.")] = None,
    defences: Annotated[
        str | None, typer.Option(help="Names separated by commas.", show_default="all that the network allows")
    ] = None,
    strengths: Annotated[int, typer.Option(min=1, help="The most strengths of each defence.")] = 3,
    models: Annotated[int, typer.Option(min=8, help="Models of each setting; 64 name exposed records.")] = 16,
    hours: Annotated[float | None, typer.Option(help="The most hours of this call.")] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder that keeps everything.")] = Path("runs/frontier"),
    jobs: JobsOption = None,
    seed: Annotated[int, typer.Option(help="Random seed of halves and trainings.")] = 0,
    max_auc: Annotated[float | None, typer.Option(help="Recommend: the largest AUC on records.")] = None,
    max_canary_tpr: Annotated[float | None, typer.Option(help="Recommend: the largest TPR on canaries.")] = None,
    max_accuracy_loss: Annotated[float | None, typer.Option(help="Recommend: the largest loss of accuracy.")] = None,
    engine: EngineOption = "local",
    ray_cpus: RayCpusOption = None,
    ray_gpus: RayGpusOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be trained; train nothing.")] = False,
    data_in: DataInOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find which defence, and how much of it, costs the least accuracy for the leak that you accept.

    K models of every setting are trained on random halves of your images, with the same halves and seeds for every
    setting. Each model is attacked once, by the models outside its pair, at about eight checkpoints of its training.
    So every setting is a curve, settings are compared at equal accuracy, and early stopping costs nothing.

    The command first says what it will train and how long that takes here. `--hours` leaves settings out, and says
    which. Rerun the same command to resume.

    Examples: `resperturb frontier --data ./patches --dry-run`,
    `resperturb frontier --data ./patches --epochs 40 --hours 8 --max-auc 0.6`,
    `resperturb frontier --data ./patches --defences additive,dropout --strengths 2 --models 64`

    The folder keeps `frontier.json` and `frontier.html`, and `exposed.json` for your eyes only.
    """
    from resperturb.cli.train import read_config
    from resperturb.errors import UsageError
    from resperturb.frontiers.recipe import recipe_study
    from resperturb.frontiers.result import check_limits

    limits = {"max_auc": max_auc, "max_canary_tpr": max_canary_tpr, "max_accuracy_loss": max_accuracy_loss}
    check_limits(limits)
    recipe = read_config(config)
    given = {"spec": data, "image_size": image_size, "limit": limit, "group_column": group_column}
    recipe["data"] = {**recipe.get("data", {}), **{key: value for key, value in given.items() if value is not None}}
    if "spec" not in recipe["data"]:
        raise UsageError("name the images: --data FOLDER, or data in --config.")
    recipe |= {key: value for key, value in {"model": model, "epochs": epochs}.items() if value is not None}
    study = recipe_study(
        recipe,
        defences=[name.strip() for name in defences.split(",") if name.strip()] if defences else (),
        strengths=strengths,
        models=models,
        seed=seed,
        subgroup_column=subgroup_column,
    )
    if dry_run:
        plan = study.plan(out, hours, jobs)
        assert plan is not None
        emit(
            {"seconds": plan.seconds, "models": models, "left_out": [*study.left_out, *plan.left_out]},
            as_json,
            lambda console: console.print("\n".join(plan.lines(models, jobs)), markup=False, soft_wrap=True),
        )
        return
    where = engine_of(engine, ray_cpus, ray_gpus)
    found = study.run(out, engine=where, jobs=jobs, hours=hours, quiet=as_json)
    chosen = found.report(out / "frontier.html", **limits)
    emit(found.to_dict(**limits), as_json, lambda console: show(console, found, chosen, limits))


def show(console: Any, found: "FrontierResult", page: Path, limits: dict[str, float | None]) -> None:
    """Print a frontier: its finding, a line per setting, the comparisons, the recommendation."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from resperturb.frontiers.page import settings_table

    console.print(Text(found.title, style="bold"))
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    columns, rows = settings_table(found)
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)
    for remark in found.remarks:
        console.print(f"- {remark}", markup=False)
    if (choice := found.choice(**limits)) is not None:
        console.print(Text(choice.sentence, style="bold"))
    console.print(f"The page: {page}", markup=False)
