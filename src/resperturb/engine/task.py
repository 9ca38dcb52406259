"""What an engine runs: a task works in a folder, and says which files it leaves there."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from resperturb.errors import ResperturbError

Files = dict[str, bytes]


@dataclass(frozen=True)
class Shared:
    """Data that many tasks of one machine or node read in place, sent there once, by the name ``key``.

    ``pack`` is called where the tasks come from; it returns None if every node must have the data itself.
    """

    key: str
    pack: Callable[[], Any | None]


class Task(ABC):
    """A piece of work that any process can do. It can be pickled, and its results are files.

    Attributes:
        folder: Where its files are kept, on the machine that the task comes from.
        alike: Whether tasks of this class that are run together take about as long as each other.
    """

    folder: Path
    alike: ClassVar[bool] = False

    @abstractmethod
    def work(self, folder: Path, accelerator: str = "auto", shared: Any | None = None) -> None:
        """Do it, and leave the results in ``folder``; what was begun there is resumed."""

    @abstractmethod
    def results(self) -> tuple[str, ...]:
        """Return patterns of the files to bring back, in the order in which they are to be written.

        The last one says that the task is finished.
        """

    def shared(self) -> Shared | None:
        """Return the data that the task reads besides itself; None if there are none."""
        return None

    def receive(self, files: Files) -> None:
        """Write files that were made on another machine to :attr:`folder`."""
        from resperturb.files import write_bytes

        for name, content in files.items():
            write_bytes(self.folder / name, content)


Tell = Callable[[Task, ResperturbError | None], None]


class Engine(Protocol):
    """Where tasks run."""

    def __call__(self, tasks: Sequence[Task], jobs: int | None, tell: Tell) -> None:
        """Run every task, at most ``jobs`` at a time.

        As each ends, ``tell`` is called with it and with the error that it failed by, or None. An exception that
        ``tell`` raises ends all the others.
        """


class DiedError(ResperturbError):
    """A task whose process ended again and again."""


def collected(task: Task, folder: Path) -> Files:
    """Read the results of a task from the folder it worked in, in the order of their patterns."""
    found: Files = {}
    for pattern in task.results():
        for path in sorted(path for path in folder.glob(pattern) if path.is_file()):
            found[path.relative_to(folder).as_posix()] = path.read_bytes()
    return found
