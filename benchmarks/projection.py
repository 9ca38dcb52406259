"""What an audit costs on a cluster: a formula, with every number that goes into it in sight.

    python benchmarks/projection.py --gpus 8 64 --images-per-second 1000
    python benchmarks/projection.py --run runs/private --gpus 8      # with the speed of a run of yours

``--page docs/how-to/several-devices.md`` writes the tables of that page.
"""

import argparse
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "fanout.json"


@dataclass(frozen=True)
class Audit:
    """An audit and what it runs on; the defaults are ImageNet and assumptions about machines.

    ``images_per_second`` is what one GPU trains, noise included, and ``answers_per_second`` what the network answers
    on it. Every model is asked about all ``candidates``, ``passes`` times each, by the task that trained it: noise is
    drawn 16 times, and taken off once.
    """

    images: int = 1_281_167
    share: float = 1 / 4
    epochs: int = 90
    shadows: int = 64
    learned_shadows: int = 2
    images_per_second: float = 1000.0
    answers_per_second: float = 3000.0
    candidates: float = 1_281_167 / 2
    passes: int = 17
    overhead_seconds: float = 0.0
    start_seconds: float = 0.0

    @property
    def trainings(self) -> int:
        """The shadows, and those of the paper's attack."""
        return self.shadows + self.learned_shadows

    @property
    def training_seconds(self) -> float:
        """How long one training takes on one GPU.

        >>> round(Audit().training_seconds / 3600, 1)
        8.0
        """
        return self.images * self.share * self.epochs / self.images_per_second + self.overhead_seconds

    @property
    def asking_seconds(self) -> float:
        """How long it takes to ask one model, on the GPU that trained it.

        >>> round(Audit().asking_seconds / 3600, 1)
        1.0
        """
        return self.candidates * self.passes / self.answers_per_second

    @property
    def gpu_hours(self) -> float:
        """What training and asking take together.

        >>> round(Audit().gpu_hours)
        595
        """
        return self.trainings * (self.training_seconds + self.asking_seconds) / 3600

    def waves(self, gpus: int) -> int:
        """How many trainings one GPU does one after the other: a GPU that is left over waits.

        >>> [Audit().waves(gpus) for gpus in (8, 64, 66)]
        [9, 2, 1]
        """
        return math.ceil(self.trainings / gpus)

    def hours(self, gpus: int) -> float:
        """How long all takes on ``gpus`` GPUs, one per training.

        >>> [round(Audit().hours(gpus), 1) for gpus in (8, 64)]
        [81.1, 18.0]
        """
        return (self.start_seconds + self.waves(gpus) * (self.training_seconds + self.asking_seconds)) / 3600


def imagenet(measured: dict[str, Any] | None) -> dict[str, Audit]:
    """The audits of the page: of the records themselves, and of 2,000 canaries in a model of all images."""
    records = Audit()
    if measured is not None:
        overhead = measured["overhead"]
        records = replace(
            records,
            overhead_seconds=overhead["seconds_a_task"]["ray"],
            start_seconds=overhead["seconds_before_first_task"]["ray"],
        )
    return {
        "of records: every shadow is trained on a quarter of the images": records,
        "of records, 62 shadows, `--draws 1`": replace(records, shadows=62, passes=2),
        "of 2,000 canaries: every shadow is trained on all images": replace(
            records, share=1.0, learned_shadows=0, candidates=2000
        ),
    }


def table(audits: dict[str, Audit], gpus: Sequence[int]) -> str:
    """Write what audits cost as a table.

    >>> print(table({"small": Audit(images=4000, epochs=100, candidates=2000)}, [8]))
    | audit | trainings | training one | asking one | GPU hours | on 8 GPUs |
    |---|---|---|---|---|---|
    | small | 66 | 1.7 min | 0.2 min | 2.0 | 16.7 min |
    """
    heads = [f"on {number} GPUs" for number in gpus]
    lines = [
        f"| audit | trainings | training one | asking one | GPU hours | {' | '.join(heads)} |",
        "|" + "---|" * (5 + len(gpus)),
    ]
    for name, audit in audits.items():
        hours = [_time(audit.hours(number)) for number in gpus]
        lines.append(
            f"| {name} | {audit.trainings} | {_time(audit.training_seconds / 3600)} | "
            f"{_time(audit.asking_seconds / 3600)} | {_number(audit.gpu_hours)} | {' | '.join(hours)} |"
        )
    return "\n".join(lines)


def of_run(run: Path, audit: Audit) -> Audit:
    """Take the number of images, the epochs and the speed from a run that is finished: its shadows are like it."""
    result, config = (json.loads((run / name).read_text()) for name in ("result.json", "config.json"))
    seen = result["records"] * config["epochs"]
    return replace(
        audit,
        images=result["records"],
        share=1.0,
        epochs=config["epochs"],
        images_per_second=seen / result["seconds"],
        candidates=2.0 * result["records"],
    )


def measured_table(result: dict[str, Any]) -> str:
    """Write a result as a table for people."""
    ratios, overhead, memory = result["ratios"], result["overhead"], result["memory"]
    spread = result["throughput"]["ratio_of_each_turn"]
    lines = [
        "| measured | value | target |",
        "|---|---|---|",
        f"| {result['throughput']['trainings']} trainings: time of 1 worker with 2 threads / of 2 workers with 1 | "
        f"{ratios['throughput_two_over_one']:.2f} ({min(spread):.2f} to {max(spread):.2f}) | at least 1.3 |",
    ]
    for name in ("local", "ray"):
        share, milliseconds = 100 * ratios[f"overhead_share_{name}"], 1000 * overhead["seconds_a_task"][name]
        lines += [
            f"| {name}: overhead of a task, over {overhead['task_seconds']} s | "
            f"{share:.2f}% ({milliseconds:.0f} ms) | at most 5% |",
            f"| {name}: before the first task | {overhead['seconds_before_first_task'][name]:.1f} s | |",
            f"| {name}: memory of a worker, training on {memory[name]['images_megabytes']:.0f} MB of images | "
            f"{memory[name]['worker_megabytes']:.0f} MB | |",
        ]
    own = memory["ray"]["helpers_megabytes"]
    lines.append(f"| ray: memory of its own processes; the images are in shared memory, once | {own:.0f} MB | |")
    return "\n".join(lines)


def check_of_formula(measured: dict[str, Any]) -> str:
    """Hold the formula against the benchmark: its own trainings, from what one of them took."""
    throughput = measured["throughput"]
    seconds, start = throughput["training_seconds"], measured["overhead"]["seconds_before_first_task"]["local"]
    predicted = start + math.ceil(throughput["trainings"] / 2) * seconds
    turns = throughput["two_workers_of_one_thread_seconds"]
    return (
        f"On the machine of the benchmark the steps of one training took {seconds:.1f} s. The formula gives "
        f"{predicted:.0f} s for {throughput['trainings']} trainings by two workers; {sum(turns) / len(turns):.0f} s "
        "were measured. It leaves out that the test images are asked about at the end of a training."
    )


def write_page(page: Path, measured: dict[str, Any] | None) -> None:
    """Put the tables between their marks on the page."""
    text = page.read_text()
    if measured is None:
        found = "Not measured yet: `python benchmarks/fanout.py` does it."
    else:
        note = "\n\n**A quick look, not to be quoted.**" if measured["quick"] else ""
        found = f"{measured_table(measured)}\n\n{check_of_formula(measured)}{note}"
    for name, content in (("measured", found), ("projection", table(imagenet(measured), (8, 64)))):
        block = f"<!-- {name} -->\n\n{content}\n\n<!-- end of {name} -->"
        text = re.sub(rf"<!-- {name} -->.*<!-- end of {name} -->", lambda _, new=block: new, text, flags=re.DOTALL)
    page.write_text(text)


def present() -> dict[str, Any] | None:
    """What the benchmark has measured, if it has been run."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else None


def _time(hours: float) -> str:
    if hours >= 48:
        return f"{hours / 24:.1f} days"
    return f"{hours:.1f} h" if hours >= 1 else f"{60 * hours:.1f} min"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--images", type=int, help="training images of the data set")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--shadows", type=int)
    parser.add_argument("--images-per-second", type=float, help="that one GPU trains")
    parser.add_argument("--answers-per-second", type=float, help="of the network on one GPU")
    parser.add_argument("--run", type=Path, help="take images, epochs and speed from a finished run")
    parser.add_argument("--page", type=Path, help="write the tables of the page instead")
    chosen = parser.parse_args(arguments)
    if chosen.page is not None:
        write_page(chosen.page, present())
        return
    asked = ("images", "epochs", "shadows", "images_per_second", "answers_per_second")
    given = {name: getattr(chosen, name) for name in asked if getattr(chosen, name) is not None}
    audit = next(iter(imagenet(present()).values()))
    if chosen.run is not None:
        audit = of_run(chosen.run, audit)
    audit = replace(audit, **given)
    if "images" in given:
        audit = replace(audit, candidates=audit.images / 2)
    print(table({str(chosen.run or "as asked"): audit}, chosen.gpus))


if __name__ == "__main__":
    main()
