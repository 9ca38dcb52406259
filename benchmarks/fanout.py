"""Measure the gain and the cost of fanning trainings out, as ratios of one run.

    python benchmarks/fanout.py --save docs/results/fanout.json

takes under ten minutes on two quiet cores. Every measurement runs in a process of its own.

- throughput: 8 shadow trainings by 2 workers of one thread, and by 1 of two threads; both take turns.
- overhead: how much longer a task takes in an engine than a plain call of the trainer in one process, by tiny tasks
  one after the other. The cost of an engine before its first task is measured apart.
- memory: the largest private memory of a worker that trains on images of the size of CIFAR-10.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TARGETS = {"throughput_two_over_one": 1.3, "overhead_share_local": 0.05, "overhead_share_ray": 0.05}
SHADOWS = 8
EPOCHS = 24
TINY_TASKS = 30
# The first tasks of every worker are slower: libraries are loaded and caches filled.
WARM_UP = 8
TASK_SECONDS = 20
WORKERS = 2


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", type=Path, help="write the result here as JSON")
    parser.add_argument("--rounds", type=int, default=2, help="rounds of the throughput")
    parser.add_argument("--quick", action="store_true", help="a smoke test; not to be quoted")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.part is not None:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(PARTS[chosen.part](Path(folder), chosen.quick)))
        return
    result = measure(1 if chosen.quick else chosen.rounds, chosen.quick)
    if chosen.save is not None:
        chosen.save.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result["ratios"], indent=2))


def measure(rounds: int, quick: bool) -> dict[str, Any]:
    """Run every part in a process of its own, and compute the ratios."""
    load_before = os.getloadavg()[0]
    turns = [{name: _in_own_process(name, quick) for name in ("one_worker", "two_workers")} for _ in range(rounds)]
    tiny = {name: _in_own_process(name, quick) for name in ("tiny_plain", "tiny_local", "tiny_ray")}
    memory = {name: _in_own_process(name, quick) for name in ("memory_local", "memory_ray")}
    per_turn = [turn["one_worker"]["seconds"] / turn["two_workers"]["seconds"] for turn in turns]
    plain = tiny["tiny_plain"]["seconds_a_task"]
    overhead = {name: tiny[f"tiny_{name}"]["seconds_a_task"] - plain for name in ("local", "ray")}
    return {
        "ratios": {
            "throughput_two_over_one": statistics.median(per_turn),
            **{f"overhead_share_{name}": seconds / TASK_SECONDS for name, seconds in overhead.items()},
        },
        "targets": TARGETS,
        "throughput": {
            "trainings": turns[0]["one_worker"]["trainings"],
            "ratio_of_each_turn": per_turn,
            "one_worker_of_two_threads_seconds": [turn["one_worker"]["seconds"] for turn in turns],
            "two_workers_of_one_thread_seconds": [turn["two_workers"]["seconds"] for turn in turns],
            "training_seconds": statistics.median(turn["two_workers"]["training_seconds"] for turn in turns),
        },
        "overhead": {
            "plain_seconds_a_task": plain,
            "seconds_a_task": overhead,
            "seconds_before_first_task": {name: tiny[f"tiny_{name}"]["first"] - plain for name in ("local", "ray")},
            "task_seconds": TASK_SECONDS,
        },
        "memory": {name.removeprefix("memory_"): found for name, found in memory.items()},
        "quick": quick,
        "environment": {
            "python": platform.python_version(),
            "cores": os.cpu_count(),
            "load_before": load_before,
            "load_after": os.getloadavg()[0],
        },
    }


def _in_own_process(part: str, quick: bool) -> dict[str, Any]:
    print(f"measuring {part}", file=sys.stderr, flush=True)
    # Threads are what is measured: the caller's settings must not leak in.
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    command = [sys.executable, __file__, "--part", part, *(["--quick"] if quick else [])]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _throughput(folder: Path, quick: bool, jobs: int) -> dict[str, Any]:
    import torch

    from resperturb.training.config import make_config
    from resperturb.training.many import train_many

    torch.set_num_threads(WORKERS // jobs)
    configs = [
        make_config(
            data={"spec": "fashion-sample", "part": "audit", "subset_seed": number},
            epochs=1 if quick else EPOCHS,
            seed=number,
        )
        for number in range(2 if quick else SHADOWS)
    ]
    started = time.perf_counter()
    runs = train_many(configs, folder, jobs)
    seconds = time.perf_counter() - started
    times = [run.result.seconds for run in runs]
    return {"seconds": seconds, "trainings": len(runs), "training_seconds": statistics.fmean(times)}


def _tiny(folder: Path, quick: bool, engine: str) -> dict[str, Any]:
    import torch

    from resperturb.engine.local import _Pool, _run_all
    from resperturb.engine.ray import RayEngine
    from resperturb.training.config import make_config
    from resperturb.training.many import train_many

    torch.set_num_threads(1)
    count = WARM_UP + 4 if quick else TINY_TASKS
    data = {"spec": "fashion-sample", "limit": 40, "part": "target_train"}
    configs = [make_config(data=data, epochs=1, seed=seed) for seed in range(count)]
    ends: list[float] = []
    started = time.perf_counter()

    def one_process(todo: Any, jobs: int | None, tell: Any) -> None:
        pool = _Pool(1)
        try:
            _run_all(todo, pool, 1, tell)
        finally:
            pool.close()

    engines: dict[str, Any] = {"local": one_process, "ray": RayEngine()}
    chosen = {"engine": engines[engine]} if engine in engines else {}
    train_many(configs, folder, 1, lambda run: ends.append(time.perf_counter() - started), **chosen)
    return {"first": ends[0], "seconds_a_task": (ends[-1] - ends[WARM_UP - 1]) / (count - WARM_UP)}


def _memory(folder: Path, quick: bool, engine: str) -> dict[str, Any]:
    import numpy as np

    from resperturb.engine.local import local
    from resperturb.engine.ray import RayEngine
    from resperturb.training.config import make_config
    from resperturb.training.many import train_many

    generator = np.random.default_rng(0)
    records = 2000 if quick else 50_000
    arrays = {
        f"{name}_{part}": generator.integers(0, top, (number, *shape), dtype=np.uint8)
        for part, number in (("train", records), ("test", 1000))
        for name, top, shape in (("x", 256, (32, 32, 3)), ("y", 10, ()))
    }
    np.savez(folder / "images.npz", **arrays)
    configs = [
        make_config(data={"spec": str(folder / "images.npz"), "part": "target_train"}, epochs=1, seed=seed)
        for seed in range(WORKERS)
    ]
    watch = _Watch("train_elsewhere" if engine == "ray" else "multiprocessing.spawn")
    with watch:
        train_many(configs, folder / "runs", WORKERS, engine=RayEngine() if engine == "ray" else local)
    return {
        "images_megabytes": sum(array.nbytes for array in arrays.values()) / 1e6,
        "workers": len(watch.peaks),
        "worker_megabytes": max(watch.peaks.values()) / 1e6,
        "helpers_megabytes": watch.helpers / 1e6,
    }


class _Watch(threading.Thread):
    """Watch the processes below this one until the block ends.

    ``peaks`` is the most memory that each worker had to itself, ``helpers`` the most that all others had together.
    """

    def __init__(self, title: str) -> None:
        super().__init__(daemon=True)
        self.title, self.peaks, self.helpers = title, dict[int, int](), 0
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(0.2):
            workers, others = {}, 0
            for pid in _descendants(os.getpid()):
                own = _private_bytes(pid)
                if self.title in _title(pid):
                    workers[pid] = own
                elif pid not in self.peaks:
                    others += own
            self.peaks |= {pid: max(own, self.peaks.get(pid, 0)) for pid, own in workers.items()}
            self.helpers = max(self.helpers, others)

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self.join()


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def _private_bytes(pid: int) -> int:
    """Return the memory that a process shares with no other."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith(("Private_Clean", "Private_Dirty")))


def _descendants(parent: int) -> list[int]:
    below: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            below.setdefault(int(path.read_text().rsplit(")", 1)[1].split()[1]), []).append(int(path.parent.name))
        except OSError:
            continue
    found = [parent]
    for pid in found:
        found += below.get(pid, [])
    return found[1:]


PARTS = {
    "one_worker": lambda folder, quick: _throughput(folder, quick, 1),
    "two_workers": lambda folder, quick: _throughput(folder, quick, 2),
    "tiny_plain": lambda folder, quick: _tiny(folder, quick, "plain"),
    "tiny_local": lambda folder, quick: _tiny(folder, quick, "local"),
    "tiny_ray": lambda folder, quick: _tiny(folder, quick, "ray"),
    "memory_local": lambda folder, quick: _memory(folder, quick, "local"),
    "memory_ray": lambda folder, quick: _memory(folder, quick, "ray"),
}


if __name__ == "__main__":
    main()
