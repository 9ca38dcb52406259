"""Measure what an audit costs compared with its own trainings, in one run on one machine.

    python benchmarks/audits.py --epochs 25 --save docs/results/audits.json
    python benchmarks/audits.py --epochs 120 --save docs/results/audits.json

The audit is that of a run on all of its images, with 16 shadow models and the draws 1 and 16. It trains 17 models,
each on about half of the images. The script compares it with 17 trainings of that length without noise by the same
engine, then repeats it as a command of its own, with everything kept. It reports wall time, processor time, which
other programs affect less, and the processor time of those programs. Other settings in the file are kept.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypedDict

import torch

from resperturb.auditing.ask import ask
from resperturb.engine.local import usable_cores
from resperturb.environment import environment
from resperturb.training import train_many
from resperturb.training.audited import AskedRun, audit_run, recipe_candidates
from resperturb.training.config import TrainConfig, make_config
from resperturb.training.loop import train
from resperturb.training.run import Run, open_run

TARGETS = {"audit_over_trainings": 1.10, "repeated_seconds": 5.0}
DRAWS = (1, 16)


class Spent(TypedDict):
    """Wall seconds, processor seconds of our processes, and of all others meanwhile (None if not known)."""

    wall: float
    processor: float
    others: float | None


def timed(what: str, work: Callable[[], object]) -> Spent:
    """Run the work, and return the time it took."""

    def ours() -> float:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(one.ru_utime + one.ru_stime for one in used)

    wall, before, all_before = time.perf_counter(), ours(), _busy_seconds()
    work()
    processor, all_after = ours() - before, _busy_seconds()
    others = None if all_before is None or all_after is None else max(0.0, all_after - all_before - processor)
    spent: Spent = {"wall": time.perf_counter() - wall, "processor": processor, "others": others}
    print(f"{what}: {spent}", file=sys.stderr, flush=True)
    return spent


def _busy_seconds() -> float | None:
    """Return the busy seconds of this machine's processors; None where the system does not report them."""
    try:
        user, nice, system, _, _, irq, softirq, *_ = map(int, Path("/proc/stat").read_text().split()[1:9])
    except OSError:
        return None
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def data(records: int, part: str, subset_seed: int = 0) -> dict[str, object]:
    """Describe a data set whose part ``half`` trains a model on about ``records`` images; a tenth is held back."""
    return {"spec": "fashion-sample", "limit": round(records / 0.45), "part": part, "subset_seed": subset_seed}


def without_noise(records: int, epochs: int, count: int) -> list[TrainConfig]:
    """Describe ``count`` trainings on halves."""
    numbers = range(count)
    return [make_config(data=data(records, "half", n), epochs=epochs, seed=1000 + n) for n in numbers]


def asking(target: Run) -> Spent:
    """Query one model of the audit again about all candidates, on one thread as a process of the engine does."""
    model, candidates = models_of(target)[0], recipe_candidates(target.config.data)
    asked = AskedRun(model, target.config.data, 0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return timed("asking", lambda: ask(asked, candidates.rows, candidates.labels, DRAWS))
    finally:
        torch.set_num_threads(threads)


def models_of(target: Run) -> list[Run]:
    """Open the models that were trained for an audit."""
    return [open_run(path.parent) for path in sorted((target.path / "audit" / "models").glob("*/config.json"))]


def steps_of(runs: list[Run]) -> float:
    """Return the seconds that all trainings together spent on their steps."""
    return sum(run.result.seconds for run in runs)


def measure(records: int, epochs: int, shadows: int, jobs: int) -> dict[str, object]:
    """Time the trainings, the audit, and the audit again."""
    with tempfile.TemporaryDirectory() as folder:
        trained: list[Run] = []
        configs = without_noise(records, epochs, shadows + 1)
        plain = timed("trainings", lambda: trained.extend(train_many(configs, Path(folder) / "plain", jobs)))
        noise = {"name": "additive", "gamma": 0.5}
        config = make_config(data=data(records, "all"), epochs=epochs, seed=0, perturbation=noise)
        target = train(config, runs=Path(folder) / "noisy")
        audit = timed("audit", lambda: audit_run(target, shadows=shadows, draws=DRAWS, jobs=jobs))
        own = models_of(target)
        command = [sys.executable, "-m", "resperturb", "audit", str(target.path), "--json"]
        command += ["--shadows", str(shadows), "--draws", ",".join(map(str, DRAWS)), "--jobs", str(jobs)]
        repeated = timed("repeated", lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))
        one = asking(target)
        return {
            "setting": {"records": records, "epochs": epochs, "shadows": shadows, "jobs": jobs},
            "environment": {**environment(), "cores": str(usable_cores())},
            "trainings": plain,
            "audit": audit,
            "repeated": repeated,
            "audit_over_trainings": {
                "wall": audit["wall"] / plain["wall"],
                "processor": audit["processor"] / plain["processor"],
            },
            "models_trained": {"trainings": len(trained), "audit": len(own)},
            "seconds_in_steps": {"trainings": steps_of(trained), "audit": steps_of(own)},
            "asking_one_model": one,
        }


def saved(path: Path, measured: dict[str, object]) -> None:
    """Save a measurement in the file, in place of one of the same setting."""
    before = json.loads(path.read_text())["measured"] if path.exists() else []
    others = [one for one in before if one["setting"] != measured["setting"]]
    path.write_text(json.dumps({"targets": TARGETS, "measured": [*others, measured]}, indent=2) + "\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=400)
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--shadows", type=int, default=16)
    parser.add_argument("--jobs", type=int, default=usable_cores())
    parser.add_argument("--save", type=Path, help="save the result in this JSON file")
    given = parser.parse_args(arguments)
    measured = measure(given.records, given.epochs, given.shadows, given.jobs)
    if given.save is not None:
        saved(given.save, measured)
    print(json.dumps(measured, indent=2))


if __name__ == "__main__":
    main()
