"""What commands share: options, results (a JSON object on stdout, or a table for a person), progress on stderr."""

import json
import os
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from resperturb.files import plain
from resperturb.progress import Lines

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from resperturb.bounds.attack_metrics import TruePositiveRate
    from resperturb.engine import Engine
    from resperturb.training.checkpoint import EpochMetrics
    from resperturb.training.loop import Update

# Seeds are added to, and torch takes 64 bits.
LARGEST_SEED = 2**62

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")]

VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Print the tables too.")]

PolicyOption = Annotated[Path | None, typer.Option(help="Policy to decide by; see `resperturb gate --init`.")]
ReviewersOption = Annotated[
    bool,
    typer.Option("--for-reviewers", help="Also show data, seeds, weights, training accuracies. Do not publish."),
]
JobsOption = Annotated[
    int | None, typer.Option(min=1, help="Trainings at a time.", show_default="what the engine has room for")
]

# The name is the data layer's, which this module must not import: it would pull torch into `--help`.
DATA_IN_VARIABLE = "RESPERTURB_DATA_IN"


def _remember(chosen: str | None) -> str | None:
    # In the environment, so that processes which are started for the work know it too.
    if chosen is not None:
        os.environ[DATA_IN_VARIABLE] = chosen
    return chosen


DataInOption = Annotated[
    Literal["memory", "disk"] | None,
    typer.Option(
        "--data-in",
        callback=_remember,
        show_default="memory",
        help="Keep decoded images in memory, or in a file that is mapped.",
    ),
]
EngineOption = Annotated[
    Literal["local", "ray"],
    typer.Option("--engine", help="Where trainings run: in processes of this machine, or on a Ray cluster."),
]
RayCpusOption = Annotated[
    int | None, typer.Option("--ray-cpus", min=1, help="Cores of a training in the cluster.", show_default="1")
]
RayGpusOption = Annotated[
    float | None,
    typer.Option(
        "--ray-gpus",
        min=0,
        help="GPUs of a training in the cluster; 0.25 lets four share one.",
        show_default="1 where there are any",
    ),
]


def emit(payload: Mapping[str, Any], as_json: bool, show: Callable[[Any], None]) -> None:
    """Print ``payload`` as JSON, or let ``show`` draw it on a rich console."""
    if as_json:
        typer.echo(json.dumps(plain(payload), allow_nan=False))
    else:
        show(terminal())


def terminal(**options: Any) -> "Console":
    """Give a console of rich on which no name, whatever characters are in it, can do more than be read."""
    from rich.console import Console

    class Terminal(Console):
        def render_str(self, text: str, **kwargs: Any) -> Any:
            return super().render_str(visible(text), **kwargs)

    return Terminal(**{"highlight": False, **options})


def shown_rate(point: "TruePositiveRate | None") -> str:
    """Show a true positive rate, or why there is none: too few non-members for so low a rate, or tied scores.

    >>> from resperturb.bounds import attack_metrics
    >>> shown_rate(attack_metrics([1.0, 2.0], [0.0] * 30).at_fpr(0.01))
    'too few'
    """
    if point is None:
        return "too few"
    return "tied" if point.tied else f"{point.tpr:.3f}"


def fail(error: object) -> None:
    """Say what is wrong on stderr, in one message."""
    terminal(stderr=True, soft_wrap=True).print(f"[bold red]Error:[/] {escaped(error)}")


def escaped(name: object) -> str:
    """Write a name as it is where rich would read markup in it, or where a control character would act.

    >>> escaped("runs/[red]")
    'runs/\\\\[red]'
    """
    from rich.markup import escape

    return escape(visible(str(name)))


def visible(text: str) -> str:
    """Show control characters, which could rewrite a terminal, as the codes that they are; keep line ends and tabs.

    >>> visible("a\\x1b[2J")
    'a\\\\x1b[2J'
    """
    odd = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return "".join(
        one.encode("unicode_escape").decode() if one not in "\n\t" and unicodedata.category(one) in odd else one
        for one in text
    )


def engine_of(name: str, cpus: int | None, gpus: float | None) -> "Engine":
    """Give the engine that the options ask for; Ray itself reads RAY_ADDRESS.

    >>> engine_of("ray", 4, None)
    RayEngine(address=None, cpus=4, gpus=None, tries=5)
    >>> engine_of("local", 4, None)
    Traceback (most recent call last):
    ...
    resperturb.errors.UsageError: --ray-cpus is for --engine ray; add that, or leave it out.
    """
    from resperturb.errors import UsageError

    if name == "ray":
        from resperturb.engine.ray import RayEngine

        return RayEngine(None, 1 if cpus is None else cpus, gpus)
    for option, value in (("--ray-cpus", cpus), ("--ray-gpus", gpus)):
        if value is not None:
            raise UsageError(f"{option} is for --engine ray; add that, or leave it out.")
    from resperturb.engine.local import local

    return local


@contextmanager
def training_progress(title: str, shown: bool = True) -> "Iterator[Callable[[Update], None]]":
    """Show how far a training is, its accuracy so far, and when it will be done."""
    if not shown:
        yield lambda update: None
        return
    if not sys.stderr.isatty():
        lines, note = Lines(title or "training"), ""

        def tell(update: "Update") -> None:
            nonlocal note
            if update.metrics is not None and update.metrics.loss is not None:
                note = f"; after epoch {update.epoch + 1}: {_scores(update.metrics)}"
            lines.step(update.step, update.steps, note)

        yield tell
        return
    with _bar() as progress:
        task = progress.add_task(title, total=None, note="")

        def show(update: "Update") -> None:
            progress.update(task, completed=update.step, total=update.steps)
            if update.metrics is not None and update.metrics.loss is not None:
                progress.update(task, note=f"epoch {update.epoch + 1}: {_scores(update.metrics)}")

        yield show


def _scores(metrics: "EpochMetrics") -> str:
    return f"loss {metrics.loss:.3f}, accuracy {metrics.train_accuracy:.3f}"


def _bar(**options: Any) -> "Progress":
    """Make a bar of rich that goes when it is done: ``training ━━━━ 100% 0:00:42 left``."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
        TextColumn("left"),
        TextColumn("{task.fields[note]}"),
    )
    return Progress(*columns, **{"console": Console(stderr=True), "transient": True, **options})
