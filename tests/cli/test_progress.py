"""In a pipe: an estimate if it takes more than a minute, then a line per minute."""

import re
from io import StringIO

import pytest
from rich.console import Console

from resperturb.cli.output import _bar, training_progress
from resperturb.progress import Lines
from resperturb.training.loop import Update


class Clock:
    """A clock that a test advances."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def watched(steps: int, seconds_per_step: float) -> list[str]:
    clock, said = Clock(), list[str]()
    lines = Lines("training", said.append, clock)
    for step in range(steps + 1):
        clock.now = step * seconds_per_step
        lines.step(step, steps)
    return said


def test_a_short_training_is_silent() -> None:
    assert watched(steps=50, seconds_per_step=1.0) == []


def test_a_long_task_reports_its_time_beforehand_and_once_per_minute() -> None:
    said = watched(steps=600, seconds_per_step=1.0)
    assert said[0] == "training: about 10 min for what is left (595 of 600 steps)"
    assert len(said) == 1 + 10
    assert said[1] == "training: 60 of 600 steps (10%), about 9 min left"


def test_slow_steps_are_reported_one_by_one() -> None:
    said = watched(steps=3, seconds_per_step=100.0)
    assert said[0] == "training: about 3 min for what is left (2 of 3 steps)"


def test_steps_before_an_interruption_do_not_count_as_speed() -> None:
    clock, said = Clock(), list[str]()
    lines = Lines("training", said.append, clock)
    for step in range(900, 961):
        clock.now = float(step)
        lines.step(step, 1000)
    assert said[-1] == "training: 960 of 1000 steps (96%), about 40 s left"


def test_on_a_terminal_a_bar_shows_the_time_left() -> None:
    console = Console(width=80, force_terminal=True, file=StringIO(), legacy_windows=False)
    clock = Clock()
    with console.capture() as said, _bar(console=console, get_time=clock, auto_refresh=False) as progress:
        task = progress.add_task("training", total=100, note="")
        for done in (25, 50):
            clock.now = 0.84 * done
            progress.update(task, completed=done)
        progress.refresh()
    assert re.search(r"50% 0:00:4\d left", re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", said.get()))


def test_others_than_the_first_process_are_silent(capsys: pytest.CaptureFixture[str]) -> None:
    with training_progress("training", shown=False) as tell:
        tell(Update(10, 10, 0))
    assert capsys.readouterr().err == ""
