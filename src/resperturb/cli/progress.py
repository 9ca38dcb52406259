"""How far a command is, on stderr: a bar on a terminal, a line per minute in a pipe or a log."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from resperturb.progress import Lines

if TYPE_CHECKING:
    from rich.progress import Progress

    from resperturb.training.checkpoint import EpochMetrics
    from resperturb.training.loop import Update


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
