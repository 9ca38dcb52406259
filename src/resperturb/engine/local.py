"""Tasks in processes of this machine.

Each task resumes by itself, so nothing here keeps state. Processes are spawned and do not import the caller's main
module: functions of a script or a notebook travel by value (cloudpickle), so a script needs no guard.

A pool of our own: an executor of the standard library terminates all its processes when one dies, does not say which
task that one had, and stops a process twice on Ctrl-C, which a training takes for "at once, do not save".
"""

import logging
import mmap
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from statistics import median
from typing import Any

from resperturb.engine.task import DiedError, Task, Tell
from resperturb.environment import WAITING, wait_passively
from resperturb.errors import ResperturbError

# A process that dies (for lack of memory, for instance) gets its task back so often.
TRIES = 3
# Long enough for a training to finish its step and write its checkpoint.
PATIENCE_SECONDS = 60
# With as many tasks per core, measuring how to run them costs less than 3% of their time.
TASKS_PER_CORE = 8
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Memory:
    """A pickled value whose arrays are in memory that other processes map, instead of each loading its own.

    The memory has no name in the file system: it is gone with the last process that has it. ``owner``
    has it as the file descriptor ``handle``; ``content`` is the pickle without the arrays.
    """

    key: str
    content: bytes
    sizes: tuple[int, ...]
    owner: int
    handle: int


def share(key: str, value: Any) -> Memory | None:
    """Put a value into shared memory; None where the system has none without a name.

    >>> import numpy as np
    >>> memory = share("images", {"images": np.arange(3)})
    >>> memory is None or attach(memory)["images"].tolist()
    [0, 1, 2]
    """
    if not hasattr(os, "memfd_create"):  # only Linux has it
        return None
    buffers: list[pickle.PickleBuffer] = []
    content = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    handle = os.memfd_create("resperturb")
    with open(handle, "wb", closefd=False) as file:
        for buffer in buffers:
            file.write(buffer.raw())
    return Memory(key, content, tuple(buffer.raw().nbytes for buffer in buffers), os.getpid(), handle)


def attach(memory: Memory) -> Any | None:
    """Return the value of :func:`share`, whose arrays are read-only; None where the memory cannot be opened."""
    total = sum(memory.sizes)
    view = memoryview(b"")
    if total:
        with suppress(OSError), open(f"/proc/{memory.owner}/fd/{memory.handle}", "rb") as file:
            view = memoryview(mmap.mmap(file.fileno(), total, prot=mmap.PROT_READ))
    if len(view) != total:
        return None
    ends = list(accumulate(memory.sizes, initial=0))
    buffers = [view[start:end] for start, end in pairwise(ends)]
    return pickle.loads(memory.content, buffers=buffers)


@dataclass
class _Worker:
    process: BaseProcess
    connection: Connection
    task: int | None = None


@dataclass
class _Pool:
    threads: int
    workers: list[_Worker] = field(default_factory=list)
    memories: dict[str, Memory | None] = field(default_factory=dict)

    def send(self, worker: _Worker, task: Task) -> None:
        """Give a task to a worker, and tell it where the data are that the task reads."""
        import cloudpickle

        shared, memory = task.shared(), None
        if shared is not None:
            if shared.key not in self.memories:
                packed = shared.pack()
                self.memories[shared.key] = None if packed is None else share(shared.key, packed)
            memory = self.memories[shared.key]
        worker.connection.send_bytes(cloudpickle.dumps((task, memory)))

    def start(self) -> _Worker:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, self.threads), daemon=True)
        with _inherited(self.threads):
            process.start()
        theirs.close()
        worker = _Worker(process, ours)
        self.workers.append(worker)
        return worker

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
        for memory in self.memories.values():
            if memory is not None:
                os.close(memory.handle)


def local(tasks: Sequence[Task], jobs: int | None, tell: Tell) -> None:
    """Run tasks in ``jobs`` processes of this machine, which share its cores; with one job, in this process.

    Where ``jobs`` is left open and there are many tasks that are alike, it is measured: the first task has all cores,
    the next ones have one core each and run side by side, and the rest run in the faster of these two ways.
    Otherwise there are as many processes as GPUs, or as cores where there is no GPU.
    """
    measured = False
    if jobs is None:
        import torch

        gpus, cores = torch.cuda.device_count() if torch.cuda.is_available() else 0, usable_cores()
        jobs = gpus or cores
        measured = not gpus and 1 < cores <= len(tasks) / TASKS_PER_CORE and all(task.alike for task in tasks)
    jobs = min(jobs, len(tasks))
    if jobs > 1:
        with closing(_Pool(max(1, usable_cores() // jobs))) as pool:
            faster = True
            if measured:
                alone = _run_here(tasks[:1], tell)
                faster = median(_run_all(tasks[1 : 1 + jobs], pool, jobs, tell)) <= jobs * alone
                tasks = tasks[1 + jobs :]
            if faster:
                _run_all(tasks, pool, jobs, tell)
                return
        _log.info("One task at a time, with all cores, is faster here than %d side by side.", jobs)
    _run_here(tasks, tell)


def _run_here(tasks: Sequence[Task], tell: Tell) -> float:
    """Run tasks in this process; return the seconds that the last one took."""
    seconds = 0.0
    for task in tasks:
        started, outcome = time.monotonic(), None
        try:
            task.work(task.folder)
        except ResperturbError as error:
            outcome = error
        seconds = time.monotonic() - started
        tell(task, outcome)
    return seconds


def usable_cores() -> int:
    """Count the cores that this process may use, at least 1."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _run_all(tasks: Sequence[Task], pool: _Pool, jobs: int, tell: Tell) -> list[float]:
    """Run tasks in processes; return the seconds that each took."""
    times = []
    todo = deque(range(len(tasks)))
    tries = [0] * len(tasks)
    while todo or any(worker.task is not None for worker in pool.workers):
        while todo and sum(worker.task is not None for worker in pool.workers) < jobs:
            idle = next((worker for worker in pool.workers if worker.task is None), None) or pool.start()
            idle.task = todo.popleft()
            tries[idle.task] += 1
            with suppress(OSError):  # a worker that has died is noticed below
                pool.send(idle, tasks[idle.task])
        answered = wait([worker.connection for worker in pool.workers if worker.task is not None])
        for worker in [worker for worker in pool.workers if worker.connection in answered]:
            number = worker.task
            assert number is not None
            outcome: ResperturbError | None
            try:
                outcome, seconds = worker.connection.recv()
                times.append(seconds)
                worker.task = None
            except (EOFError, OSError):
                pool.workers.remove(worker)
                worker.connection.close()
                worker.process.join(PATIENCE_SECONDS)
                if tries[number] < TRIES:
                    todo.appendleft(number)
                    continue
                outcome = DiedError(
                    f"the process of a training ended {TRIES} times (exit code {worker.process.exitcode}), perhaps "
                    "for lack of memory; try fewer --jobs. Rerun the same command to resume."
                )
            tell(tasks[number], outcome)
    return times


def _work(connection: Connection, threads: int) -> None:
    """Do the tasks that come through the pipe until it closes."""
    # Ctrl-C is for the parent, which then stops each worker once: two signals would mean "at once, do not save".
    with suppress(OSError):
        os.setpgid(0, 0)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    import cloudpickle
    import torch

    torch.set_num_threads(threads)
    key, data = "", None
    with suppress(EOFError, OSError):  # the parent has closed the pipe, or is gone
        while True:
            message = connection.recv_bytes()
            outcome: ResperturbError | None = None
            started = time.monotonic()
            try:
                task, memory = cloudpickle.loads(message)
                if memory is not None and memory.key != key:
                    key, data = memory.key, attach(memory)
                started = time.monotonic()  # without what unpickling imports
                task.work(task.folder, shared=None if memory is None else data)
            except ResperturbError as error:
                outcome = error
            except Exception as error:
                traceback.print_exc()
                said = f"{type(error).__name__}: {error}"
                outcome = ResperturbError(f"a training failed unexpectedly ({said}); see above.")
            connection.send((outcome, time.monotonic() - started))


def _end_with_parent() -> None:
    """Stop this process when its parent is gone, even if that was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def _inherited(threads: int) -> Iterator[None]:
    """Set up what a new process inherits before it loads torch: its threads, how they wait, and its pages of memory.

    Ctrl-C is ignored, for it would die of it while it loads. The caller's main module is hidden, for importing that
    would run an unguarded script again.
    """
    from resperturb.heap import HUGE_PAGES, use_huge_pages

    names = (*THREAD_VARIABLES, *WAITING, HUGE_PAGES)
    before = {name: os.environ.get(name) for name in names}
    main = sys.modules["__main__"]
    kept = {name: getattr(main, name) for name in ("__file__", "__spec__") if hasattr(main, name)}
    in_main_thread = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN) if in_main_thread else None
    try:
        os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))
        wait_passively()
        use_huge_pages()
        if "__file__" in kept:
            del main.__file__
        main.__spec__ = None
        yield
    finally:
        for name, item in kept.items():
            setattr(main, name, item)
        if in_main_thread:
            signal.signal(signal.SIGINT, handler)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
