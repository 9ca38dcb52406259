"""Trainings in a Ray cluster of two nodes: the same files as on one machine, and nothing is lost by a kill."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from typer.testing import CliRunner

from resperturb.cli import app
from resperturb.data import load_pair
from resperturb.engine import RayEngine, Task
from resperturb.engine import ray as fanout_ray
from resperturb.engine.task import Tell
from resperturb.errors import ResperturbError, UsageError
from resperturb.training.config import TrainConfig
from resperturb.training.loop import train
from resperturb.training.many import TrainTask, train_many
from resperturb.training.run import Run
from tests.conftest import tiny_config

ray = pytest.importorskip("ray")

ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # nodes have no address but 127.0.0.1
    "RAY_TMPDIR": "/tmp",
    "OMP_NUM_THREADS": "1",
    "CXX": "no-compiler",  # compiling takes longer than any of these trainings
    "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]),
}
Given = TypeVar("Given")
TRAININGS = 5
EPOCHS = 15
NODE = {"num_cpus": 1, "object_store_memory": 100_000_000, "include_dashboard": False}


class TwoNodes:
    """A cluster on this machine, bound to 127.0.0.1: a head, and two nodes with a core each."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self._cluster = Cluster(initialize_head=True, head_node_args={**NODE, "num_cpus": 0})
        self._nodes = [self._cluster.add_node(**NODE) for _ in range(2)]
        self.address = str(self._cluster.address)
        self.engine = RayEngine(self.address)

    def trainings(self) -> list[tuple[Any, int]]:
        """The processes that are training, each with its node."""
        raylets = [(node, node.all_processes["raylet"][0].process.pid) for node in self._nodes]
        return [(node, pid) for node, raylet in raylets for pid in children(raylet) if "work_elsewhere" in title(pid)]

    def caught(self) -> tuple[Any, int] | None:
        """A training that pauses in the middle: otherwise it might end before its accident."""
        for node, pid in self.trainings():
            os.kill(pid, signal.SIGSTOP)
            if (node, pid) in self.trainings():
                return node, pid
            os.kill(pid, signal.SIGCONT)
        return None

    def kill_a_worker(self) -> None:
        os.kill(wait_for(self.caught)[1], signal.SIGKILL)

    def remove_a_node(self) -> None:
        node, pid = wait_for(self.caught)
        self._cluster.remove_node(node, allow_graceful=False)
        self._nodes.remove(node)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)  # so that it sees that its node is gone

    def shutdown(self) -> None:
        self._cluster.shutdown()


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give the folder in which the tasks have their scratch folders."""
    scratch = tmp_path_factory.mktemp("scratch")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**ENVIRONMENT, "TMPDIR": str(scratch)}.items():
            patch.setenv(name, value)
        # Ray may have been imported before the environment said so.
        patch.setattr(ray._private.ray_constants, "ENABLE_RAY_CLUSTER", False)
        yield scratch


@pytest.fixture(scope="module")
def cluster(environment: Path) -> Iterator[TwoNodes]:
    nodes = TwoNodes()
    yield nodes
    nodes.shutdown()


def artefacts(run: Run) -> dict[str, Any]:
    """Return all results of a training except its time and place."""
    files: dict[str, Any] = {path.name: path.read_bytes() for path in run.path.iterdir() if path.name[0] != "."}
    files["result.json"] = json.loads(files["result.json"])
    for name in ("seconds", "environment", "checksum"):
        del files["result.json"][name]
    return files


def spy(engine: RayEngine, asked: list[TrainConfig]) -> Callable[..., None]:
    def note(tasks: Sequence[Task], jobs: int | None, tell: Tell) -> None:
        asked.extend(task.config for task in tasks if isinstance(task, TrainTask))
        engine(tasks, jobs, tell)

    return note


def test_a_cluster_trains_the_same_as_one_process_though_workers_nodes_and_drivers_die(
    tmp_path: Path,
    environment: Path,
    cluster: TwoNodes,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    configs = [config(private_images(tmp_path), seed) for seed in range(TRAININGS)]
    at_home = train_many(configs, tmp_path / "home", jobs=1)

    # A driver that is killed leaves finished results, and no process at work.
    runs = tmp_path / "runs"
    driver = start(tmp_path, runs, cluster.address)
    try:
        wait_for(lambda: list(runs.glob("*/result.json")))
    finally:
        driver.kill()
        driver.wait()
    finished = {path.parent.name: path.stat().st_ino for path in runs.glob("*/result.json")}
    assert 1 <= len(finished) < TRAININGS
    wait_for(lambda: not cluster.trainings())

    # The next one has the images in memory; nodes never see a file of them.
    (tmp_path / "private.npz").unlink()
    accidents = [cluster.kill_a_worker, cluster.remove_a_node]
    asked: list[TrainConfig] = []
    started: list[TrainConfig] = []
    told: list[Run] = []
    puts: list[object] = []
    monkeypatch.setattr(fanout_ray._Running, "start", noting(fanout_ray._Running.start, started))
    monkeypatch.setattr(ray, "put", noting(ray.put, puts))

    def suffer(run: Run) -> None:
        told.append(run)
        if run.path.name not in finished and accidents:
            accidents.pop(0)()

    capfd.readouterr()
    trained = train_many(configs, runs, on_done=suffer, engine=spy(cluster.engine, asked))
    assert not capfd.readouterr().out
    assert not accidents
    assert [artefacts(run) for run in trained] == [artefacts(run) for run in at_home]
    assert sorted(run.path for run in told) == sorted(run.path for run in trained)
    assert {run.path.name for run in trained} == finished.keys() | {config.digest for config in asked}
    assert len(asked) == TRAININGS - len(finished)
    assert {name: (runs / name / "result.json").stat().st_ino for name in finished} == finished
    # What is left on the nodes of tasks that were killed goes with the next task.
    monkeypatch.setattr(tempfile, "tempdir", str(environment))

    def swept() -> bool:
        with fanout_ray._scratch() as ours:
            return not [path for path in environment.glob("resperturb-*") if path.stem != ours.name]

    wait_for(swept)
    assert not list(environment.glob("resperturb-*"))
    # Two tasks were lost and started again, and the images were sent to the cluster once for all of them.
    assert len(started) >= len(asked) + 2
    assert len(puts) == 1


def test_a_training_that_fails_in_a_cluster_says_why_and_leaves_the_cluster_at_work(
    tmp_path: Path, cluster: TwoNodes
) -> None:
    bad, endless = tiny_config(data={"limit": 40}, lr=1e30), config("fashion-sample", 0, epochs=100000)
    with pytest.raises(ResperturbError, match="not finite"):
        train_many([bad, endless], tmp_path, engine=cluster.engine)
    assert not ray.is_initialized()
    wait_for(lambda: not cluster.trainings())
    assert not list(tmp_path.glob("*/result.json"))
    ray.init(cluster.address, log_to_driver=False)
    try:
        assert any(node["Alive"] for node in ray.nodes())
        with pytest.raises(UsageError, match="no node of the Ray cluster has 9 CPUs and 0 GPUs"):
            fanout_ray._check_room(ray, 9, 0, waiting=False)
    finally:
        ray.shutdown()


def test_ctrl_c_ends_a_cluster_that_was_started_for_the_trainings(tmp_path: Path, environment: Path) -> None:
    driver = start(tmp_path, tmp_path / "runs", "local", epochs=100000)
    started = set()
    try:
        wait_for(lambda: list(environment.glob("resperturb-*/*/metrics.jsonl")))
        wait_for(lambda: any("work_elsewhere" in title(pid) for pid in descendants(driver.pid)))
        started = descendants(driver.pid)
        assert listening(started) <= {"127.0.0.1"}
        os.killpg(driver.pid, signal.SIGINT)  # as a terminal does
        assert driver.wait(120) != 0
        wait_for(lambda: not any(is_alive(pid) for pid in started))
    finally:
        for pid in (*started, driver.pid):
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)
    assert not list(environment.glob("resperturb-*"))
    assert not list(tmp_path.glob("runs/*/result.json"))


def test_the_scratch_folder_of_a_task_at_work_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with fanout_ray._scratch() as one:
        (one / "weights").write_text("private")
        with fanout_ray._scratch() as other:
            assert (one / "weights").exists()
            assert other != one
    assert not list(tmp_path.iterdir())
    (tmp_path / f"{fanout_ray.SCRATCH}killed.lock").touch()
    (tmp_path / f"{fanout_ray.SCRATCH}killed").mkdir()
    with fanout_ray._scratch() as ours:
        assert {path.stem for path in tmp_path.iterdir()} == {ours.name}


def test_without_ray_there_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = train(tiny_config(epochs=1), runs=tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)
    done = CliRunner().invoke(app, ["audit", str(run.path), "--shadows", "4", "--engine", "ray"])
    assert isinstance(done.exception, UsageError)
    assert "pip install 'resperturb[ray]'" in str(done.exception)


def test_where_there_is_no_cluster_that_is_said_at_once(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # taken, but nothing listens
        address = f"127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(ResperturbError, match=f"nothing answers at the Ray address {address}"):
            train_many([tiny_config(data={"limit": 40})], tmp_path, engine=RayEngine(address))


def private_images(folder: Path) -> str:
    """A file of images that only the driver has."""
    train, test = load_pair("fashion-sample", limit=240)
    path = folder / "private.npz"
    np.savez(
        path,
        x_train=train.images.numpy()[:, 0],
        y_train=train.labels.numpy(),
        x_test=test.images.numpy()[:, 0],
        y_test=test.labels.numpy(),
    )
    return str(path)


def config(spec: str, seed: int, epochs: int = EPOCHS) -> TrainConfig:
    return tiny_config(data={"spec": spec}, seed=seed, epochs=epochs)


SCRIPT = """
import sys
from pathlib import Path
from resperturb.training import train_many
from resperturb.engine import RayEngine
from tests.engine.test_ray import TRAININGS, config

if __name__ == "__main__":
    spec, runs, address, epochs = sys.argv[1:]
    train_many([config(spec, seed, int(epochs)) for seed in range(TRAININGS)], Path(runs), engine=RayEngine(address))
"""


def start(folder: Path, runs: Path, address: str, epochs: int = EPOCHS) -> subprocess.Popen[bytes]:
    """Start a separate driver."""
    (folder / "script.py").write_text(SCRIPT)
    command = [sys.executable, folder / "script.py", private_images(folder), runs, address, str(epochs)]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)


def noting(function: Callable[..., Any], calls: list[Any]) -> Callable[..., Any]:
    """The function, with a note of the last argument of every call."""

    def noted(*arguments: Any) -> Any:
        calls.append(arguments[-1])
        return function(*arguments)

    return noted


def wait_for(condition: Callable[[], Given | None]) -> Given:
    """Return the value of a condition as soon as it is true."""
    until = time.monotonic() + 200
    while not (given := condition()):
        assert time.monotonic() < until, "it did not come to pass in three minutes"
        time.sleep(0.05)
    return given


def title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def status(pid: int) -> list[str]:
    """The state of a process, its parent, and so on; nothing if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return []


def is_alive(pid: int) -> bool:
    return status(pid)[:1] not in ([], ["Z"])


def children(parent: int) -> list[int]:
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return [pid for pid in pids if status(pid)[1:2] == [str(parent)]]


def descendants(parent: int) -> set[int]:
    return {pid for child in children(parent) for pid in (child, *descendants(child))}


def listening(pids: set[int]) -> set[str]:
    """The addresses at which any of these processes takes connections."""
    psutil = pytest.importorskip("psutil")
    found = set()
    for pid in pids:
        try:
            connections = psutil.Process(pid).net_connections("tcp")
        except psutil.Error:
            continue
        found |= {c.laddr.ip.removeprefix("::ffff:") for c in connections if c.status == "LISTEN"}
    return found
