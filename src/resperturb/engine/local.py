"""Trainings in processes of this machine.

Each training is a run that resumes by itself, so nothing here keeps state: whatever was begun goes on. Processes are
spawned: a script that calls this needs ``if __name__ == "__main__"``.
"""

import multiprocessing
import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from resperturb.errors import ResperturbError
from resperturb.training.config import TrainConfig
from resperturb.training.run import Run, open_run

Tell = Callable[[TrainConfig, Run | ResperturbError], None]

# A process that dies (killed for want of memory, for instance) gets its training back so often.
TRIES = 3
# Long enough for a training to finish its step and write its checkpoint.
PATIENCE_SECONDS = 60
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass
class _Worker:
    process: BaseProcess
    connection: Connection
    task: int | None = None


@dataclass
class _Pool:
    runs: Path
    threads: int
    workers: list[_Worker] = field(default_factory=list)

    def start(self) -> _Worker:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, self.runs, self.threads), daemon=True)
        with _thread_limit(self.threads), _deaf_to_ctrl_c():
            process.start()
        theirs.close()
        worker = _Worker(process, ours)
        self.workers.append(worker)
        return worker

    def drop(self, worker: _Worker) -> None:
        self.workers.remove(worker)
        worker.connection.close()
        worker.process.join(PATIENCE_SECONDS)

    def close(self) -> None:
        """Ask all to stop, which makes them save; end those that do not."""
        for worker in self.workers:
            with suppress(OSError):
                worker.connection.close()
            if worker.process.is_alive():
                worker.process.terminate()
        for worker in self.workers:
            worker.process.join(PATIENCE_SECONDS)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()


class DiedError(ResperturbError):
    """A training whose process ended again and again."""


def local(configs: Sequence[TrainConfig], runs: Path, jobs: int | None, tell: Tell) -> None:
    """Train in ``jobs`` processes of this machine, which share its cores; with one job, in this process.

    ``jobs`` is the number of cores unless given.
    """
    from resperturb.training.loop import train

    cores = usable_cores()
    jobs = min(cores if jobs is None else jobs, len(configs))
    if jobs > 1:
        pool = _Pool(runs, max(1, cores // jobs))
        try:
            _train_all(configs, pool, jobs, tell)
        finally:
            pool.close()
        return
    for config in configs:
        outcome: Run | ResperturbError
        try:
            outcome = train(config, runs=runs)
        except ResperturbError as error:
            outcome = error
        tell(config, outcome)


def usable_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _train_all(configs: Sequence[TrainConfig], pool: _Pool, jobs: int, tell: Tell) -> None:
    todo = deque(range(len(configs)))
    tries = [0] * len(configs)
    left = len(configs)
    while left:
        while todo and sum(worker.task is not None for worker in pool.workers) < jobs:
            idle = next((worker for worker in pool.workers if worker.task is None), None) or pool.start()
            idle.task = todo.popleft()
            tries[idle.task] += 1
            with suppress(OSError):  # a worker that has died is noticed below
                idle.connection.send(configs[idle.task])
        answered = wait([worker.connection for worker in pool.workers if worker.task is not None])
        for worker in [worker for worker in pool.workers if worker.connection in answered]:
            task = worker.task
            assert task is not None
            outcome: Path | ResperturbError
            try:
                outcome = worker.connection.recv()
                worker.task = None
            except (EOFError, OSError):
                pool.drop(worker)
                if tries[task] < TRIES:
                    todo.appendleft(task)
                    continue
                outcome = DiedError(
                    f"the process of a training ended {TRIES} times (exit code {worker.process.exitcode}), perhaps "
                    "for want of memory; try fewer --jobs. The same command goes on from here."
                )
            left -= 1
            tell(configs[task], outcome if isinstance(outcome, ResperturbError) else open_run(outcome))


def _work(connection: Connection, runs: Path, threads: int) -> None:
    """Train what comes through the pipe until it closes."""
    # Ctrl-C is for the parent, which then asks each worker once: two requests would mean "at once, do not save".
    with suppress(OSError):
        os.setpgid(0, 0)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    import torch

    from resperturb.training.loop import train

    torch.set_num_threads(threads)
    while True:
        try:
            config = connection.recv()
        except (EOFError, OSError):
            return
        outcome: Path | ResperturbError
        try:
            outcome = train(config, runs=runs).path
        except ResperturbError as error:
            outcome = error
        except Exception as error:
            traceback.print_exc()
            outcome = ResperturbError(f"a training failed unexpectedly ({type(error).__name__}: {error}); see above.")
        try:
            connection.send(outcome)
        except OSError:
            return


def _end_with_parent() -> None:
    """Whoever kills the parent does not leave its workers behind."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def _thread_limit(threads: int) -> Iterator[None]:
    """Let a new process see how many threads it may use before it loads any library that starts them."""
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """Let a new process inherit that Ctrl-C is ignored, so that it does not die of it while it loads."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
