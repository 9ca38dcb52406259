"""Many trainings at once: each is done once, whatever happens to a process."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from multiprocessing import active_children
from pathlib import Path

import numpy as np
import pytest

from resperturb.engine import Task
from resperturb.errors import ResperturbError
from resperturb.training.config import TrainConfig
from resperturb.training.loop import train
from resperturb.training.many import train_many
from resperturb.training.run import Run
from tests.conftest import tiny_config

SMALL = {"limit": 40}


def weights(run: Run) -> bytes:
    return run.model_path.read_bytes()


def test_processes_train_the_same_as_one_process_even_if_one_is_killed(tmp_path: Path) -> None:
    configs = [tiny_config(seed=seed, data=SMALL) for seed in range(5)]
    alone = [train(config, runs=tmp_path / "alone") for config in configs]
    told: list[Run] = []
    killed: list[int] = []

    def kill_one(run: Run) -> None:
        told.append(run)
        if not killed:
            killed.append(int(active_children()[0].pid or 0))
            os.kill(killed[0], signal.SIGKILL)

    runs = train_many(configs, tmp_path / "many", jobs=2, on_done=kill_one)
    assert len(killed) == 1
    assert not active_children()
    assert [run.config for run in runs] == [run.config for run in alone]
    assert sorted(run.path for run in told) == sorted(run.path for run in runs)
    assert [weights(run) for run in runs] == [weights(run) for run in alone]


def test_a_finished_training_is_not_repeated_and_needs_no_process(tmp_path: Path) -> None:
    configs = [tiny_config(seed=seed, data=SMALL, epochs=1) for seed in range(2)]
    first = train_many(configs, tmp_path, jobs=1)
    told: list[Run] = []
    assert train_many(configs, tmp_path, jobs=2, on_done=told.append, engine=_refuse) == first == told


def test_a_training_that_fails_says_why(tmp_path: Path) -> None:
    configs = [tiny_config(data=SMALL, seed=seed, lr=1e30) for seed in range(2)]
    with pytest.raises(ResperturbError, match="not finite"):
        train_many(configs, tmp_path, jobs=2)
    assert not active_children()


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_training_that_fails_need_not_end_the_others(tmp_path: Path, jobs: int) -> None:
    good, bad, twin = (tiny_config(data=SMALL, lr=lr) for lr in (0.1, 1e30, 0.1))
    told: list[Run] = []
    failed: list[tuple[TrainConfig, str]] = []
    runs = train_many(
        [bad, good, twin],
        tmp_path,
        jobs,
        told.append,
        on_failure=lambda config, error: failed.append((config, str(error))),
    )
    [(config, why)] = failed
    assert config == bad
    assert "not finite" in why
    # The one requested twice is trained once and reported twice.
    assert [run.config.lr for run in runs] == [run.config.lr for run in told] == [0.1, 0.1]
    assert runs[0].path == runs[1].path


def test_a_wanted_epsilon_names_the_run_that_is_finished(tmp_path: Path) -> None:
    config = tiny_config(
        data=SMALL, epochs=1, batch_size=4, method={"name": "dpsgd", "target_epsilon": 8.0}, seeded_noise=True
    )
    [run] = train_many([config], tmp_path)
    assert train_many([config], tmp_path, engine=_refuse) == [run]


def _refuse(tasks: Sequence[Task], jobs: int | None, tell: object) -> None:
    pytest.fail("there is nothing to train")


def script(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "script.py"
    path.write_text(text)
    return [sys.executable, str(path), str(tmp_path / "runs")]


def environment() -> dict[str, str]:
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    # Compiling would take longer than all the rest.
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "CXX": "no-compiler"}


LONG = """
import sys
from pathlib import Path
from resperturb.training import train_many
from tests.conftest import tiny_config

configs = [tiny_config(seed=seed, epochs=100000, data={"limit": 40}) for seed in range(2)]
train_many(configs, Path(sys.argv[1]), jobs=2)  # without a guard: processes do not import this script
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_who_stops_the_parent_leaves_no_process_behind(tmp_path: Path, how: signal.Signals) -> None:
    command = script(tmp_path, LONG)
    parent = subprocess.Popen(command, env=environment(), stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        _wait_for(lambda: len(list(tmp_path.glob("runs/*/metrics.jsonl"))) == 2)
        workers = _children(parent.pid)
        assert len(workers) >= 2
        parent.send_signal(how)
        parent.wait(300)
        _wait_for(lambda: not any(_is_alive(worker) for worker in workers))
    finally:
        parent.kill()
    # What they had is saved, and can be gone on with.
    assert len(list(tmp_path.glob("runs/*/checkpoint.safetensors"))) == 2
    assert not list(tmp_path.glob("runs/*/result.json"))


def test_dropout_is_in_the_training_and_not_in_the_answers(tmp_path: Path) -> None:
    plain, dropped = (train(tiny_config(data=SMALL, dropout=share), runs=tmp_path) for share in (0.0, 0.5))
    assert weights(plain) != weights(dropped)
    again = train(tiny_config(data=SMALL, dropout=0.5), runs=tmp_path / "again")
    assert weights(again) == weights(dropped)
    assert dropped.result.train_accuracy == again.result.train_accuracy


def _wait_for(condition) -> None:  # type: ignore[no-untyped-def]
    until = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < until, "it did not come to pass in five minutes"
        time.sleep(0.05)


def _children(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(path.parent.name))
    return found


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="shared memory without a name needs Linux")
def test_images_are_decoded_once_for_all_processes(tmp_path: Path) -> None:
    """The file is removed before the processes start: they get the images from this one, and train the same."""
    rng = np.random.default_rng(0)
    file = tmp_path / "images.npz"
    np.savez(file, images=rng.integers(0, 256, (80, 8, 8), dtype=np.uint8), labels=np.arange(80) % 2)
    configs = [tiny_config(data={"spec": str(file), "limit": None}, seed=seed) for seed in (1, 2)]
    alone = [weights(run) for run in train_many(configs, tmp_path / "one", jobs=1)]
    file.unlink()
    assert [weights(run) for run in train_many(configs, tmp_path / "two", jobs=2)] == alone
