"""Measure time and memory of a leave-one-out audit after its models were queried.

    python -m benchmarks.scoring --models 256 --records 50000

The predictions are random, in one file per model, as an audit writes them. Then the audit reads, attacks and measures
them, as a repeated audit does.
"""

import argparse
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.random_answers import random_answers
from resperturb.attacks import Query
from resperturb.auditing import Candidates, Fitted, Job, Settings, audit_trainee, leave_one_out
from resperturb.auditing.api import plan_of
from resperturb.auditing.fit import Models
from resperturb.auditing.store import opened_store
from resperturb.engine import local_engine
from resperturb.privacy import Guarantee, nothing_proven
from resperturb.progress import Lines


class Answered:
    """A trainee whose models were all queried."""

    name, description = "random answers", "nothing was trained"

    def digest(self) -> str:
        return "random"

    def fit(self, job: Job) -> Iterator[Fitted]:
        raise AssertionError(f"the answers of model {job.number} are not there")

    def guarantee(self, delta: float, records: int) -> Guarantee:
        return nothing_proven("Nothing was trained.", delta)

    def shared(self) -> None:
        return None


def audit_of_random_answers(folder: Path, models: int, records: int, draws: int) -> dict[str, float]:
    """Write predictions, audit them, and return seconds and megabytes.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     measured = audit_of_random_answers(Path(folder) / "audit", models=6, records=300, draws=2)
    >>> sorted(measured)
    ['answers', 'gigabytes', 'seconds']
    """
    rng = np.random.default_rng(0)
    population = min(200, records // 10)
    count, rows = records - population, np.arange(records)
    labels = rng.integers(0, 10, records)
    candidates = Candidates(rows, labels, np.full(count, "record"), rows[:count])
    design, settings = leave_one_out(candidates.units, models, 0), Settings.of((1, draws), 1e-5, 0.95)
    with opened_store(folder, plan_of(Answered(), candidates, design, settings.draws)) as store:
        every = Models(Answered(), candidates, design, settings.draws, store, local_engine, 1, Lines("", print))
        for number in range(models):
            served, weights = (
                random_answers(rng, records, query, labels)
                for query in (Query("served", settings.draws), Query("weights"))
            )
            store.keep(number, {"served": served, "weights": weights}, every._bound(number))
    size = sum(path.stat().st_size for path in (folder / "models").glob("*.npz"))
    started = time.perf_counter()
    audit_trainee(Answered(), candidates, design, settings, out=folder, jobs=1, quiet=True)
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"answers": size / 2**30, "seconds": seconds, "gigabytes": peak}


def main() -> None:
    """Print seconds and memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=256)
    parser.add_argument("--records", type=int, default=50_000)
    parser.add_argument("--draws", type=int, default=16, help="how many times every record was queried")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = audit_of_random_answers(Path(folder) / "audit", given.models, given.records, given.draws)
    print(
        f"{given.models} models, {given.records:,} records, {given.draws} draws: {found['answers']:.2f} GB of answers"
    )
    print(f"audit: {found['seconds']:.0f} s, peak memory {found['gigabytes']:.2f} GB")


if __name__ == "__main__":
    main()
