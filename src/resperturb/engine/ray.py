"""Tasks on a Ray cluster, whose nodes need neither a disk in common nor the data.

A task works in a scratch folder of its node. Its shared data (the images) travel once to each node, into the memory
that the workers of the node share; its files come back and are written here as each task ends. A task that is lost
with its worker or its node begins anew; what has come back is never lost.
"""

import fcntl
import logging
import os
import shutil
import socket
import tempfile
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from resperturb.engine.local import usable_cores
from resperturb.engine.task import DiedError, Files, Task, Tell, collected
from resperturb.errors import ResperturbError, StoppedError, UsageError
from resperturb.extras import needed

# Nodes of a cluster come and go, so a training gets more tries than a process of this machine.
TRIES = 5
# Long enough for a training to finish its step and remove its scratch folder.
PATIENCE_SECONDS = 10

SCRATCH = "resperturb-task-"

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RayEngine:
    """Train in a Ray cluster: the one at ``address``, or one on this machine that ends with the call.

    A training is given ``cpus`` cores, which is its number of threads, and ``gpus``, of which a fraction may be
    asked for; left out, that is one where the cluster has any.
    """

    address: str | None = None
    cpus: int = 1
    gpus: float | None = None
    tries: int = TRIES

    def __call__(self, tasks: Sequence[Task], jobs: int | None, tell: Tell) -> None:
        """Run ``jobs`` tasks at a time, or as many as the cluster has room for."""
        address = self.address or os.environ.get("RAY_ADDRESS") or "local"
        ray = _import_ray(address)
        may_grow = address != "local" or ray.is_initialized()
        with _connected(ray, address):
            gpus = self.gpus if self.gpus is not None else min(1.0, ray.cluster_resources().get("GPU", 0.0))
            _check_room(ray, self.cpus, gpus, waiting=may_grow)
            running = _Running(ray, self.cpus, gpus)
            try:
                self._run_all(tasks, jobs or len(tasks), tell, running)
            finally:
                running.cancel()

    def _run_all(self, tasks: Sequence[Task], jobs: int, tell: Tell, running: "_Running") -> None:
        todo = deque(range(len(tasks)))
        tries = Counter[int]()
        while todo or running.tasks:
            while todo and len(running.tasks) < jobs:
                number = todo.popleft()
                tries[number] += 1
                running.start(number, tasks[number])
            number, outcome = running.next()
            if isinstance(outcome, _LostError):
                if tries[number] < self.tries:
                    _logger.warning("a Ray task was lost (%s); it is started again.", outcome)
                    todo.appendleft(number)
                    continue
                outcome = DiedError(
                    f"a Ray task was lost {self.tries} times ({outcome}), perhaps for lack of memory; try fewer "
                    "--jobs, or more --ray-cpus. Rerun the same command to train what is left."
                )
            if isinstance(outcome, ResperturbError):
                tell(tasks[number], outcome)
            else:
                tasks[number].receive(outcome)
                tell(tasks[number], None)


class _LostError(ResperturbError):
    """A task that ended without an answer: its process was killed, or its node is gone."""


class _Running:
    """The tasks that are in the cluster."""

    def __init__(self, ray: Any, cpus: int, gpus: float) -> None:
        self.ray, self.threads = ray, cpus
        # Lost tasks are started again from here: Ray would try those that run out of memory without end.
        self.remote = ray.remote(work_elsewhere).options(num_cpus=cpus, num_gpus=gpus, max_retries=0)
        self.accelerator = "auto" if gpus else "cpu"
        self.tasks: dict[Any, int] = {}
        self._shipped: dict[str, list[Any]] = {}

    def start(self, number: int, task: Task) -> None:
        # In a list, the data are fetched by the task that reads them and not for every task.
        reference = self.remote.remote(task, self._sent(task), self.threads, self.accelerator, version("resperturb"))
        self.tasks[reference] = number

    def next(self) -> tuple[int, Files | ResperturbError]:
        """Wait until a task ends, and give its outcome."""
        [reference], _ = self.ray.wait(list(self.tasks), num_returns=1)
        outcome: Files | ResperturbError
        try:
            outcome = self.ray.get(reference)
            if isinstance(outcome, StoppedError):
                outcome = _LostError("its worker was told to end")
        except self.ray.exceptions.RayTaskError as error:
            # Ray itself failed in there: the images were lost on their way, for instance.
            lost = isinstance(error.cause, self.ray.exceptions.RayError)
            outcome = _LostError(type(error.cause).__name__) if lost else _unexpected(error)
        except self.ray.exceptions.RayError as error:
            outcome = _LostError(type(error).__name__)
        return self.tasks.pop(reference), outcome

    def cancel(self) -> None:
        """Ask all that run to end; end those that do not."""
        left = list(self.tasks)
        for reference in left:
            self.ray.cancel(reference)
        if left:
            _, left = self.ray.wait(left, num_returns=len(left), timeout=PATIENCE_SECONDS)
        for reference in left:
            self.ray.cancel(reference, force=True)

    def _sent(self, task: Task) -> list[Any]:
        """Put the shared data of a task into the cluster, once."""
        shared = task.shared()
        if shared is None:
            return []
        if shared.key not in self._shipped:
            packed = shared.pack()
            self._shipped[shared.key] = [] if packed is None else [self.ray.put(packed)]
        return self._shipped[shared.key]


def work_elsewhere(
    task: Task, shared: Sequence[Any], threads: int, accelerator: str, wanted: str
) -> Files | ResperturbError:
    """Do a task on a worker, in a scratch folder, and return its files; this is what Ray runs."""
    import ray
    import torch

    if version("resperturb") != wanted:
        return UsageError(
            f"a node of the Ray cluster has resperturb {version('resperturb')} and this machine has {wanted}; "
            "install the same version everywhere."
        )
    torch.set_num_threads(threads)
    try:
        with _scratch() as scratch:
            folder = scratch / "task"
            task.work(folder, accelerator, ray.get(shared[0]) if shared else None)
            return collected(task, folder)
    except ResperturbError as error:
        return error


@contextmanager
def _scratch() -> Iterator[Path]:
    """Make a folder for the time of a task, and remove those of tasks that were killed before they could.

    What is in there was learned from private images. The lock next to a folder ends with the process that made it.
    """
    _remove_leftovers()
    while True:
        handle, name = tempfile.mkstemp(prefix=SCRATCH, suffix=".lock")
        fcntl.flock(handle, fcntl.LOCK_EX)
        if os.path.exists(name):
            break
        os.close(handle)  # before it was locked, another task took it for one that was left
    folder = Path(name).with_suffix("")
    try:
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        Path(name).unlink(missing_ok=True)
        os.close(handle)


def _remove_leftovers() -> None:
    for lock in Path(tempfile.gettempdir()).glob(f"{SCRATCH}*.lock"):
        with suppress(OSError), open(lock) as theirs:  # it belongs to another user, or its task is still at work
            fcntl.flock(theirs, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if lock.with_suffix("").exists():
                shutil.rmtree(lock.with_suffix(""))
            lock.unlink()


def _import_ray(address: str) -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address == "local":
        # Ray reads this when it is imported, and then binds to the loopback interface, on Linux too: nobody else has
        # any business with a cluster that is ours for an hour.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    needed("ray", "the engine 'ray'")
    import ray

    return ray


@contextmanager
def _connected(ray: Any, address: str) -> Iterator[None]:
    """Join the cluster at ``address``, and leave it as it was; or start one, and end it."""
    if ray.is_initialized():
        yield
        return
    _check_answers(address)
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    # Whatever is said to the driver, of a node that is gone for instance, is printed among our results otherwise.
    ray._private.worker._worker_logs_enabled = False
    try:
        if address == "local":
            ray.init(address, num_cpus=usable_cores(), include_dashboard=False, **quiet)
        else:
            ray.init(address, **quiet)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ResperturbError(f"cannot join the Ray cluster at {address}: {_first_line(error)}") from error
    try:
        yield
    finally:
        ray.shutdown()
        if address == "local":
            _remove_leftovers()  # of tasks that a second Ctrl-C interrupted in their cleaning up


def _check_answers(address: str) -> None:
    """Try the address first: Ray itself would retry for minutes where nothing listens."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE_SECONDS).close()
        except OSError as error:
            raise ResperturbError(
                f"nothing answers at the Ray address {address} ({error.strerror or error}); `ray status` on the head "
                "of the cluster tells its address."
            ) from error


def _check_room(ray: Any, cpus: int, gpus: float, waiting: bool) -> None:
    """Refuse, or say, that no node is large enough: Ray would wait without a word."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if any(node.get("CPU", 0) >= cpus and node.get("GPU", 0) >= gpus for node in nodes):
        return
    lacking = f"no node of the Ray cluster has {cpus} CPUs and {gpus:g} GPUs, which a training was to be given"
    if not waiting:
        raise UsageError(f"{lacking}; ask for less (--ray-cpus, --ray-gpus).")
    _logger.warning("%s; waiting for one to be added.", lacking)


def _unexpected(error: Exception) -> ResperturbError:
    if "failed to import on the worker" in str(error):
        return UsageError(
            "the nodes of the Ray cluster cannot import resperturb; install the same version of it on each of them, "
            f"`pip install 'resperturb[ray]=={version('resperturb')}'`."
        )
    _logger.error("%s", error)
    return ResperturbError(
        f"a training failed unexpectedly ({_first_line(getattr(error, 'cause', error))}); see above."
    )


def _first_line(error: object) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
