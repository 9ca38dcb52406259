"""Trainings as tasks of a Ray cluster, whose nodes need neither a disk in common nor the images.

A task is a function of a configuration to the files of its run. The images travel once to each node, into the memory
that the workers of the node share; the files come back and are written here, run by run, as each ends. A task that is
lost with its worker or its node begins anew; what has come back is never lost.
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

import torch

from resperturb.data.images import ImageSet
from resperturb.data.rows import Rows
from resperturb.engine.local import DiedError, Tell, usable_cores
from resperturb.errors import ResperturbError, UsageError
from resperturb.files import write_bytes
from resperturb.training.config import TrainConfig, make_config
from resperturb.training.inputs import is_provided, load_inputs, provide
from resperturb.training.run import Run, create_run

# Nodes of a cluster come and go, so a training gets more tries than a process of this machine.
TRIES = 5
# Long enough for a training to finish its step and remove its scratch folder.
PATIENCE_SECONDS = 10

SCRATCH = "resperturb-task-"

Files = dict[str, bytes]

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

    def __call__(self, configs: Sequence[TrainConfig], runs: Path, jobs: int | None, tell: Tell) -> None:
        """Train ``jobs`` at a time, or as many as the cluster has room for."""
        address = self.address or os.environ.get("RAY_ADDRESS") or "local"
        ray = _import_ray(address)
        may_grow = address != "local" or ray.is_initialized()
        with _connected(ray, address):
            gpus = self.gpus if self.gpus is not None else min(1.0, ray.cluster_resources().get("GPU", 0.0))
            _check_room(ray, self.cpus, gpus, waiting=may_grow)
            tasks = _Tasks(ray, self.cpus, gpus)
            try:
                self._train_all(configs, runs, jobs or len(configs), tell, tasks)
            finally:
                tasks.cancel()

    def _train_all(self, configs: Sequence[TrainConfig], runs: Path, jobs: int, tell: Tell, tasks: "_Tasks") -> None:
        todo = deque(configs)
        tries = Counter[str]()
        while todo or tasks.running:
            while todo and len(tasks.running) < jobs:
                config = todo.popleft()
                tries[config.digest] += 1
                tasks.start(config)
            config, outcome = tasks.next()
            if isinstance(outcome, _LostError):
                if tries[config.digest] < self.tries:
                    _logger.warning("the Ray task of a training was lost (%s); it is started again.", outcome)
                    todo.appendleft(config)
                    continue
                outcome = DiedError(
                    f"the Ray task of a training was lost {self.tries} times ({outcome}), perhaps for want of "
                    "memory; try fewer --jobs, or more --ray-cpus. The same command trains what is left."
                )
            tell(config, outcome if isinstance(outcome, ResperturbError) else _written(config, runs, outcome))


class _LostError(ResperturbError):
    """A task that ended without an answer: its process was killed, or its node is gone."""


class _Tasks:
    """The tasks that are in the cluster."""

    def __init__(self, ray: Any, cpus: int, gpus: float) -> None:
        self.ray, self.threads = ray, cpus
        # Lost tasks are started again from here: Ray would try those that run out of memory without end.
        self.remote = ray.remote(train_elsewhere).options(num_cpus=cpus, num_gpus=gpus, max_retries=0)
        self.accelerator = "auto" if gpus else "cpu"
        self.running: dict[Any, TrainConfig] = {}
        self._shipped: dict[str, list[Any]] = {}

    def start(self, config: TrainConfig) -> None:
        # In a list, the images are fetched by who needs them and not for every task.
        reference = self.remote.remote(
            config.model_dump(mode="json"),
            self._images(config),
            self.threads,
            self.accelerator,
            version("resperturb"),
        )
        self.running[reference] = config

    def next(self) -> tuple[TrainConfig, Files | ResperturbError]:
        """Wait until a task ends, and give its outcome."""
        from resperturb.training.loop import InterruptedTrainingError

        [reference], _ = self.ray.wait(list(self.running), num_returns=1)
        outcome: Files | ResperturbError
        try:
            outcome = self.ray.get(reference)
            if isinstance(outcome, InterruptedTrainingError):
                outcome = _LostError("its worker was told to end")
        except self.ray.exceptions.RayTaskError as error:
            # Ray itself failed in there: the images were lost on their way, for instance.
            lost = isinstance(error.cause, self.ray.exceptions.RayError)
            outcome = _LostError(type(error.cause).__name__) if lost else _unexpected(error)
        except self.ray.exceptions.RayError as error:
            outcome = _LostError(type(error).__name__)
        return self.running.pop(reference), outcome

    def cancel(self) -> None:
        """Ask all that run to end; end those that do not."""
        left = list(self.running)
        for reference in left:
            self.ray.cancel(reference)
        if left:
            _, left = self.ray.wait(left, num_returns=len(left), timeout=PATIENCE_SECONDS)
        for reference in left:
            self.ray.cancel(reference, force=True)

    def _images(self, config: TrainConfig) -> list[Any]:
        """Put the images into the cluster, once; not those that are too many for memory, which nodes have to have."""
        mark = config.data.fingerprint
        if mark not in self._shipped:
            inputs = load_inputs(config.data)
            both = (inputs.train, inputs.test)
            in_memory = all(isinstance(part.images, torch.Tensor) for part in both)
            self._shipped[mark] = [self.ray.put([_packed(part) for part in both])] if in_memory else []
        return self._shipped[mark]


def train_elsewhere(
    config: dict[str, Any], images: Sequence[Any], threads: int, accelerator: str, wanted: str
) -> Files | ResperturbError:
    """Train on a worker, in a scratch folder, and return the files of the run; this is the task."""
    import ray

    from resperturb.training.loop import train

    if version("resperturb") != wanted:
        return UsageError(
            f"a node of the Ray cluster has resperturb {version('resperturb')} and this machine has {wanted}; "
            "install the same version everywhere."
        )
    torch.set_num_threads(threads)
    asked = make_config(**config)
    try:
        if not images:
            _require_data(asked)
        elif not is_provided(asked.data.fingerprint):
            provide(*(_unpacked(*packed) for packed in ray.get(images[0])))
        with _scratch() as scratch:
            run = train(asked, runs=scratch, accelerator=accelerator)
            return {path.name: path.read_bytes() for path in (run.metrics_path, run.model_path, run.result_path)}
    except ResperturbError as error:
        return error


def _require_data(config: TrainConfig) -> None:
    try:
        load_inputs(config.data)
    except UsageError as error:
        raise UsageError(
            "images that are kept on disk because memory is too small for them are not sent to the nodes of a Ray "
            f"cluster, and a node does not have them under the same name: {error}"
        ) from error


@contextmanager
def _scratch() -> Iterator[Path]:
    """Make a folder for the time of a task, and remove those of tasks that were killed before they could.

    What is in there was learned from private images. The lock beside a folder ends with the process that made it.
    """
    for lock in Path(tempfile.gettempdir()).glob(f"{SCRATCH}*.lock"):
        _remove_if_left(lock)
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


def _remove_if_left(lock: Path) -> None:
    with suppress(OSError), open(lock) as theirs:  # it is somebody else's, or its task is still at work
        fcntl.flock(theirs, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if lock.with_suffix("").exists():
            shutil.rmtree(lock.with_suffix(""))
        lock.unlink()


def _packed(images: ImageSet) -> tuple[Any, ...]:
    # As arrays of numpy, which the workers of a node read in place; tensors would be copied into each of them.
    assert isinstance(images.images, torch.Tensor)
    return images.images.numpy(), images.labels.numpy(), images.classes, images.groups, images.name


def _unpacked(images: Any, labels: Any, classes: tuple[str, ...], groups: Any, name: str) -> ImageSet:
    return ImageSet(Rows([images]), torch.from_numpy(labels.copy()), classes, groups, name)


def _written(config: TrainConfig, runs: Path, files: Files) -> Run:
    """Write the files of a run that was trained elsewhere; the result comes last, as its presence says "finished"."""
    from resperturb.training.loop import only_process

    run = create_run(config, None, runs)
    with only_process(run):
        for path in (run.metrics_path, run.model_path, run.result_path):
            write_bytes(path, files[path.name])
        run.checkpoint_path.unlink(missing_ok=True)
    return run


def _import_ray(address: str) -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address == "local":
        # Ray reads this when it is imported, and then binds to the loopback interface, on Linux too: nobody else has
        # any business with a cluster that is ours for an hour.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    try:
        import ray
    except ImportError:
        raise UsageError("the engine 'ray' needs the package ray: `pip install 'resperturb[ray]'`.") from None
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


def _check_answers(address: str) -> None:
    """Knock first: Ray would knock for minutes at a door behind which nobody is."""
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
