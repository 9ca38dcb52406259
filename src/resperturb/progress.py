"""How far something is, in lines of text on stderr: for pipes and logs, where there is no bar."""

import sys
import time
from collections.abc import Callable

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
        unit: str = "steps",
    ) -> None:
        self._title, self._write, self._clock, self._unit = title, write or _to_stderr, clock, unit
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
                    f"{self._title}: about {duration(left)} for what is left ({total - done} of {total} {self._unit})"
                )
        if now - self._last >= SECONDS_BETWEEN_LINES:
            self._last = now
            share = f"{done} of {total} {self._unit} ({done / total:.0%})"
            self._write(f"{self._title}: {share}, about {duration(left)} left{note}")


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
