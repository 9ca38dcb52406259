"""Progress bars: on a terminal, on stderr; nothing in a pipe."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from resperturb.training.loop import Update


@contextmanager
def training_progress(title: str, shown: bool = True) -> "Iterator[Callable[[Update], None]]":
    """Show how far a training is, its accuracy so far, and when it will be done."""
    if not (shown and sys.stderr.isatty()):
        yield lambda update: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=None, note="")

        def show(update: "Update") -> None:
            progress.update(task, completed=update.step, total=update.steps)
            if update.metrics is not None and "loss" in update.metrics:
                accuracy, loss = update.metrics["train_accuracy"], update.metrics["loss"]
                progress.update(task, note=f"epoch {update.epoch + 1}: loss {loss:.3f}, accuracy {accuracy:.3f}")

        yield show


@contextmanager
def stage_progress(title: str) -> Iterator[Callable[[str, int, int], None]]:
    """Show which stage a long command is in, and how many parts of it are done."""
    if not sys.stderr.isatty():
        yield lambda what, done, count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=None)
        yield lambda what, done, count: progress.update(task, description=what, completed=done, total=count)
