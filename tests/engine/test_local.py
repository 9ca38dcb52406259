"""Processes of this machine: how a new one is set up, and when a task is given up."""

import os
import re
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from resperturb.engine import DiedError, Shared, Task, local_engine
from resperturb.engine.local import _inherited
from resperturb.errors import ResperturbError


@dataclass(frozen=True)
class Note(Task):
    """Record a worker's shared data and its setup."""

    folder: Path
    number: int
    data: bytes | None = b"read in place"

    def work(self, folder: Path, accelerator: str = "auto", shared: Any | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        names = ("OMP_WAIT_POLICY", "OMP_NUM_THREADS")
        (folder / "note").write_text(f"{bytes(shared or b'').decode()} {[os.environ.get(name) for name in names]}")

    def results(self) -> tuple[str, ...]:
        return ("note",)

    def shared(self) -> Shared:
        return Shared("data", lambda: self.data)


class Doomed(Note):
    """Its process is killed every time."""

    def work(self, folder: Path, accelerator: str = "auto", shared: Any | None = None) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Timed(Note):
    """Takes longer in this process, or in one of the others."""

    slow_here: bool = False
    here: int = field(default_factory=os.getpid)
    alike: ClassVar[bool] = True

    def work(self, folder: Path, accelerator: str = "auto", shared: Any | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        is_here = os.getpid() == self.here
        time.sleep(0.5 if is_here == self.slow_here else 0.02)
        (folder / "note").write_text("here" if is_here else "elsewhere")


@pytest.mark.parametrize("slow_here", [True, False])
def test_many_equal_tasks_run_in_the_way_measured_to_be_faster(
    tmp_path: Path, slow_here: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resperturb.engine.local.usable_cores", lambda: 2)
    tasks = [Timed(tmp_path / str(number), number, None, slow_here) for number in range(16)]
    told: list[Task] = []
    local_engine(tasks, None, lambda task, outcome: told.append(task))
    places = [(task.folder / "note").read_text() for task in tasks]
    assert len(told) == len(set(told)) == 16
    assert places == ["here", "elsewhere", "elsewhere", *["elsewhere" if slow_here else "here"] * 13]
    local_engine(tasks[:15], None, lambda task, outcome: None)  # too few to measure
    assert {(task.folder / "note").read_text() for task in tasks[:15]} == {"elsewhere"}


def test_a_process_that_dies_every_time_is_given_up_on_and_the_others_are_not(tmp_path: Path) -> None:
    told: dict[int, ResperturbError | None] = {}

    def tell(task: Task, outcome: ResperturbError | None) -> None:
        assert isinstance(task, Note)
        told[task.number] = outcome

    tasks = [(Doomed if number == 1 else Note)(tmp_path / str(number), number) for number in range(4)]
    local_engine(tasks, 2, tell)
    assert [told[number] for number in (0, 2, 3)] == [None, None, None]
    assert isinstance(told[1], DiedError)
    assert re.search(r"ended 3 times \(exit code -9\).*fewer --jobs", str(told[1]))


def test_workers_read_shared_data_in_place_wait_passively_and_have_one_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"):
        monkeypatch.delenv(name, raising=False)
    local_engine([Note(tmp_path / str(number), number) for number in range(2)], 2, lambda task, outcome: None)
    threads = max(1, len(os.sched_getaffinity(0)) // 2)
    for number in range(2):
        assert (tmp_path / str(number) / "note").read_text() == f"read in place ['passive', '{threads}']"
    assert "OMP_WAIT_POLICY" not in os.environ
    monkeypatch.setenv("GOMP_SPINCOUNT", "1000")  # the user's own choice
    local_engine([Note(tmp_path / str(number), number) for number in range(2)], 2, lambda task, outcome: None)
    assert "[None, " in (tmp_path / "0" / "note").read_text()


def test_a_new_process_gets_its_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    with _inherited(2):
        assert os.environ["OMP_NUM_THREADS"] == os.environ["MKL_NUM_THREADS"] == "2"
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "MKL_NUM_THREADS" not in os.environ
