"""Measure the throughput of training while other programs run, by how OpenMP's threads wait.

    python benchmarks/busy.py --save docs/results/busy.json

Each setting trains in a process of its own, next to neighbours that each keep one core busy. The fair share of a
training with c threads on c cores next to n neighbours is c / (c + n) of its throughput on the idle machine. Targets:
on the idle machine at most 2% slower than the fastest setting, with as many neighbours as cores at least half of the
fair share, with three times as many at least a third. Each round measures all settings in turn, so slow changes of
the machine affect every setting. The table gives the median of the rounds and their range. Nothing else may run
meanwhile.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from resperturb.environment import SPINS, WAITING, environment

# Variables that are set in the environment of the training.
SETTINGS: dict[str, dict[str, str]] = {
    "active (OpenMP's default)": {},
    "passive": {"OMP_WAIT_POLICY": "passive"},
    "what commands set": {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": str(SPINS)},
    "one thread": {"OMP_NUM_THREADS": "1"},
}
MODELS = {"resnet8": 32, "resnet20": 32, "torchvision:resnet18": 64}
TARGETS = {"idle": 0.98, "as many": 1 / 2, "three times": 1 / 3}
# Started as `python -c STEPS model size seconds`; prints steps per second, the first ones left out.
STEPS = """
import sys, time, torch
from resperturb.data.images import ImageSet
from resperturb.training import Progress, Steps, make_config

model, size, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
images = torch.randint(0, 256, (1280, 3, size, size), dtype=torch.uint8)
members = ImageSet(images, torch.arange(1280) % 10, tuple("0123456789"), None, "random pixels")
config = make_config(data={"spec": "random"}, model=model, perturbation={"name": "additive", "gamma": 0.5})
steps, progress = Steps(config, members), Progress()

def take():
    steps.take(progress)
    if progress.step == steps.per_epoch:
        progress.start_epoch(progress.epoch + 1)

for _ in range(3):
    take()
began, count = time.perf_counter(), 0
while time.perf_counter() - began < seconds:
    take()
    count += 1
print(count / (time.perf_counter() - began))
"""


@contextmanager
def neighbours(count: int) -> Iterator[None]:
    """Keep ``count`` cores busy, or as many as the scheduler gives."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for one in busy:
            one.kill()
            one.wait()


def steps_per_second(model: str, setting: str, seconds: float) -> float:
    inherited = {name: value for name, value in os.environ.items() if name not in (*WAITING, "OMP_NUM_THREADS")}
    command = [sys.executable, "-c", STEPS, model, str(MODELS[model]), str(seconds)]
    done = subprocess.run(command, env={**inherited, **SETTINGS[setting]}, capture_output=True, text=True, check=True)
    return float(done.stdout)


def measured(rounds: int, seconds: float, cores: int) -> dict[str, list[float]]:
    """Return the steps per second of every round, by ``model/setting/neighbours``."""
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        for count in (0, cores, 3 * cores):
            for model in MODELS:
                for setting in SETTINGS:
                    with neighbours(count):
                        found.setdefault(f"{model}/{setting}/{count}", []).append(
                            steps_per_second(model, setting, seconds)
                        )
                    print(model, setting, f"{count} neighbours", found[f"{model}/{setting}/{count}"][-1], flush=True)
    return found


def table(found: dict[str, list[float]], cores: int) -> Iterator[str]:
    """Return a row per model and setting: steps per second, and with neighbours the share of the fair throughput."""
    yield "| network | setting | idle, steps/s | as many neighbours as cores | three times as many |"
    yield "|---|---|---|---|---|"
    middle = {key: statistics.median(values) for key, values in found.items()}
    for model in MODELS:
        best = max(middle[f"{model}/{setting}/0"] for setting in SETTINGS)
        for setting in SETTINGS:
            idle = middle[f"{model}/{setting}/0"]
            cells = [f"{idle:.2f} ({idle / best:.2f} of the fastest)"]
            for count, name in ((cores, "as many"), (3 * cores, "three times")):
                fair = best * cores / (cores + count)
                shares = [value / fair for value in found[f"{model}/{setting}/{count}"]]
                met = "met" if statistics.median(shares) >= TARGETS[name] else "missed"
                cells.append(
                    f"{statistics.median(shares):.2f} of fair ({min(shares):.2f} to {max(shares):.2f}; {met})"
                )
            yield f"| {model} | {setting} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=15.0, help="length of a measurement")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"Warning: the load of this machine is {load:.1f}; these numbers describe it as well.", file=sys.stderr)
    found = measured(options.rounds, options.seconds, cores)
    print("\n".join(table(found, cores)))
    if options.save:
        payload = {"environment": environment(), "load_before": load, "cores": cores, "steps_per_second": found}
        options.save.write_text(json.dumps({**payload, "targets": TARGETS}, indent=1) + "\n")


if __name__ == "__main__":
    main()
