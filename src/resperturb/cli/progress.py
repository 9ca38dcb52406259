"""How far a command is, on stderr: a bar on a terminal, a line per minute in a pipe or a log."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from resperturb.training.checkpoint import EpochMetrics
    from resperturb.training.loop import Update

SECONDS_BETWEEN_LINES = 60.0
# So long steps are watched before the time of all of them is guessed.
SECONDS_WATCHED = 5.0


def duration(seconds: float) -> str:
    """Write a time for people.

    >>> duration(45), duration(600), duration(9000)
    ('45 s', '10 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class Lines:
    """Says in lines of text how far something is: an estimate if it takes more than a minute, then a line per minute.

    >>> now = iter([0.0, 6.0, 70.0])
    >>> lines = Lines("training", write=print, clock=lambda: next(now))
    >>> for step in (0, 10, 100):
    ...     lines.step(step, 1000)
    training: about 10 min for what is left (990 of 1000 steps)
    training: 100 of 1000 steps (10%), about 10 min left
    """

    def __init__(
        self,
        title: str,
        write: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._title, self._write, self._clock = title, write or _to_stderr, clock
        self._start: tuple[float, int] | None = None
        self._last = 0.0
        self._estimated = False

    def say(self, text: str) -> None:
        """Write a line now."""
        self._write(f"{self._title}: {text}")
        self._start = None  # what comes after it, such as compiling, is no measure of the steps

    def step(self, done: int, total: int, note: str = "") -> None:
        """Take note of the steps done, and say so if it is time to."""
        now = self._clock()
        if self._start is None:
            self._start = now, done
            self._last = self._last or now
            return
        passed, steps = now - self._start[0], done - self._start[1]
        if steps <= 0:
            return
        left = passed / steps * (total - done)
        if not self._estimated and passed >= SECONDS_WATCHED:
            self._estimated = True
            if left > SECONDS_BETWEEN_LINES:
                self._write(
                    f"{self._title}: about {duration(left)} for what is left ({total - done} of {total} steps)"
                )
        if now - self._last >= SECONDS_BETWEEN_LINES:
            self._last = now
            share = f"{done} of {total} steps ({done / total:.0%})"
            self._write(f"{self._title}: {share}, about {duration(left)} left{note}")


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


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
            if update.note:
                return lines.say(update.note)
            if update.metrics is not None and update.metrics.loss is not None:
                note = f"; after epoch {update.epoch + 1}: {_scores(update.metrics)}"
            return lines.step(update.step, update.steps, note)

        yield tell
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
            if update.note:
                progress.update(task, note=update.note)
            if update.metrics is not None and update.metrics.loss is not None:
                progress.update(task, note=f"epoch {update.epoch + 1}: {_scores(update.metrics)}")

        yield show


def _scores(metrics: "EpochMetrics") -> str:
    return f"loss {metrics.loss:.3f}, accuracy {metrics.train_accuracy:.3f}"


@contextmanager
def stage_progress(title: str) -> Iterator[Callable[[str, int, int], None]]:
    """Show which stage a long command is in, and how many parts of it are done."""
    if not sys.stderr.isatty():
        stages: dict[str, Lines] = {}

        def tell(what: str, done: int, count: int) -> None:
            if what not in stages:
                stages[what] = Lines(f"{title}: {what}" if title else what)
            stages[what].step(done, count)

        yield tell
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=None)
        yield lambda what, done, count: progress.update(task, description=what, completed=done, total=count)
