"""What an audit costs beside its own trainings, in one run on one machine.

    python benchmarks/audits.py --save docs/results/audits.json

takes about ten minutes on two quiet cores. An audit with 16 shadow models and the draws 1 and 16 is compared with 17
plain trainings of the same length by the same engine; then it is repeated, with everything kept. Processor time
stands beside wall time: neighbours move it less.
"""

import argparse
import json
import os
import platform
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from resperturb.audits import audit_run
from resperturb.engine import train_many
from resperturb.training.config import TrainConfig, make_config
from resperturb.training.loop import train

TARGETS = {"audit_over_trainings": 1.10, "repeated_seconds": 5.0}


class Spent(TypedDict):
    """Seconds by the clock on the wall, and of all processors together."""

    wall: float
    processor: float


@dataclass
class Stages:
    """How long each stage of an audit took."""

    seconds: dict[str, float]
    last: tuple[str, float] | None = None

    def __call__(self, what: str, done: int, count: int) -> None:
        """Take the time; for ``on_stage`` of an audit."""
        now = time.perf_counter()
        if self.last is not None:
            name, began = self.last
            self.seconds[name] = self.seconds.get(name, 0.0) + now - began
        self.last = (what, now)


def timed(work: Callable[[], object]) -> Spent:
    """Do it, and say what it took."""

    def processor() -> float:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(one.ru_utime + one.ru_stime for one in used)

    wall, cpu = time.perf_counter(), processor()
    work()
    return {"wall": time.perf_counter() - wall, "processor": processor() - cpu}


def configs(records: int, epochs: int, count: int, **changes: object) -> list[TrainConfig]:
    """So many trainings on a quarter of the images each."""
    data = {"spec": "fashion-sample", "limit": 4 * records, "part": "target_train"}
    return [make_config(data=data, epochs=epochs, seed=1000 + number, **changes) for number in range(count)]


def measure(records: int, epochs: int, shadows: int, jobs: int | None) -> dict[str, object]:
    """Time the trainings, the audit, and the audit again."""
    with tempfile.TemporaryDirectory() as folder:
        plain = timed(lambda: train_many(configs(records, epochs, shadows + 1), Path(folder) / "plain", jobs))
        [config] = configs(records, epochs, 1, perturbation={"name": "additive", "gamma": 0.5})
        target = train(config, runs=Path(folder) / "noisy")
        first, again = Stages({}), Stages({})
        audit = timed(lambda: audit_run(target, shadows=shadows, draws=(1, 16), jobs=jobs, on_stage=first))
        repeated = timed(lambda: audit_run(target, shadows=shadows, draws=(1, 16), jobs=jobs, on_stage=again))
    return {
        "setting": {"records": records, "epochs": epochs, "shadows": shadows, "cores": os.cpu_count()},
        "machine": platform.processor() or platform.machine(),
        "targets": TARGETS,
        "trainings": plain,
        "audit": audit,
        "repeated": repeated,
        "audit_over_trainings": {name: audit[name] / plain[name] for name in ("wall", "processor")},
        "stages": {"audit": first.seconds, "repeated": again.seconds},
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=400)
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--shadows", type=int, default=16)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--save", type=Path, help="write the result here as JSON")
    given = parser.parse_args(arguments)
    text = json.dumps(measure(given.records, given.epochs, given.shadows, given.jobs), indent=2)
    if given.save is not None:
        given.save.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
