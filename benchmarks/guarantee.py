"""Measure private heads on public features at epsilon 1, 3 and 8: the numbers of docs/guarantee.md.

    RESPERTURB_DATA=... nice python -m benchmarks.guarantee --save docs/results/guarantee.json
    RESPERTURB_DATA=... nice python -m benchmarks.guarantee --save docs/results/guarantee.json --only cifar10
    python -m benchmarks.guarantee --save docs/results/guarantee.json --worst-case
    RESPERTURB_DATA=... python -m benchmarks.guarantee --save docs/results/guarantee.json --patients xray
    RESPERTURB_DATA=... python -m benchmarks.guarantee --save docs/results/fewer-records.json --records cifar10

All training and all test images are used. The head has its default settings, and every epsilon is trained with five
seeds of the noise; the seeds make the study repeatable and would void a guarantee. ``--worst-case`` trains heads
thousands of times with and without a crafted record, and bounds epsilon from below. ``--patients`` and ``--records``
train heads on fewer and fewer of them. Results are written as they come, and those in the file are kept. Seconds are
of the processor, because other programs affect wall time.
"""

import argparse
import json
import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from resperturb import features
from resperturb.data.images import ImageSet
from resperturb.data.loading import load_pair
from resperturb.environment import environment
from resperturb.features.extractor import ROWS_PER_BATCH
from resperturb.files import write_json
from resperturb.heads import Descent, DPHead, OneShot, audit_head
from resperturb.privacy import dpsgd_guarantee, training_length
from resperturb.privacy.dp_head import head_mu
from resperturb.training.methods.dpsgd import Dpsgd

EPSILONS = (1.0, 3.0, 8.0, math.inf)
DELTA = 1e-5
SIZES = (100, 200, 400, 800, 1600, 3200)
RECORDS = (500, 1000, 2000, 5000, 10_000, 20_000)
REDUCTION: dict[str, int] = {}
# Of the reproduction's results: the paper's length of training, or the longest that was run.
PRESETS = ("paper", "long")


@dataclass(frozen=True)
class Study:
    """Features of one data set.

    Attributes:
        data: The name of the data set.
        extractor: The name of the features.
        group: The column of the groups that are protected as a whole; empty to protect records.
        image_size: The size to which images are cut.
    """

    data: str
    extractor: str
    group: str = ""
    image_size: int | None = None

    @property
    def name(self) -> str:
        return f"{self.data} {self.extractor}"


STUDIES = (
    Study("mnist", "scattering"),
    Study("fashion_mnist", "scattering"),
    Study("cifar10", "efficientnet-lite0"),
    Study("idc", "efficientnet-lite0", group="patient"),
    Study("cifar10", "scattering"),
    Study("idc", "scattering", group="patient"),
    Study("cifar100", "efficientnet-lite0"),
    Study("cifar100", "scattering"),
    Study("mnist", "efficientnet-lite0"),
)
# Worst cases: the name of a head, its settings, the proven epsilon, and the number of trainings.
CRAFTED = (
    ("gradient", Descent(), 10.0, 2000),
    ("gradient", Descent(), 10.0, 10_000),
    ("gradient", Descent(), 3.0, 10_000),
    ("gradient", Descent(), 1.0, 10_000),
    ("one-shot", OneShot(), 10.0, 2000),
    ("one-shot", OneShot(), 10.0, 10_000),
    ("one-shot", OneShot(), 3.0, 10_000),
)


def main() -> None:
    """Measure everything that is not in the file yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", type=Path, required=True)
    parser.add_argument("--only", default="", help="run the studies whose names contain this")
    parser.add_argument("--features-only", action="store_true", help="compute the features, and train nothing")
    parser.add_argument("--seeds", type=int, default=5, help="seeds of the noise; those in the file are kept")
    parser.add_argument("--compare", type=Path, help="a folder with the reproduction's tables: copy its numbers only")
    parser.add_argument("--worst-case", action="store_true", help="attack heads on a crafted record only")
    parser.add_argument("--patients", help="train heads on fewer and fewer patients of this data set only")
    parser.add_argument("--records", help="train heads on fewer and fewer records of this data set only")
    chosen = parser.parse_args()
    if chosen.patients:
        fewer(chosen.patients, chosen.save, "patients")
        return
    if chosen.records:
        fewer(chosen.records, chosen.save, "records", RECORDS)
        return
    if chosen.worst_case:
        worst_cases(chosen.save)
        return
    if chosen.compare is not None:
        compare(chosen.save, chosen.compare)
        return
    for study in STUDIES:
        if chosen.only in study.name:
            measure(study, chosen.save, 0 if chosen.features_only else chosen.seeds)


def measure(study: Study, save: Path, seeds: int = 5) -> None:
    """Compute the features of one data set, train the heads that are missing, and save each."""
    train, test = load_pair(study.data, group_column=study.group or None, image_size=study.image_size)
    extractor = features.build(study.extractor, args=REDUCTION)
    kept = _row(_read(save), study) or {}
    start, fresh = time.process_time(), _Fresh()
    x = extractor.compute(train, "train", fresh)
    x_test = extractor.compute(test, "test", fresh)
    seconds = time.process_time() - start
    if kept.get("digest") not in (None, extractor.describe().digest):
        kept = {}
    row = {
        **asdict(study),
        "source": asdict(extractor.describe()),
        "digest": extractor.describe().digest,
        "fingerprint": train.fingerprint,
        "dimensions": x.shape[1],
        "training_images": len(train),
        "test_images": len(test),
        "units": len(train) if train.groups is None else len(np.unique(train.groups)),
        "classes": train.num_classes,
        "metric": "auroc" if train.num_classes == 2 else "accuracy",
        # None unless all were computed in this process.
        "feature_seconds": seconds if fresh.all_of(len(train), len(test)) else kept.get("feature_seconds"),
        "results": kept.get("results", []),
    }
    _save(save, row)
    print(f"{study.name}: {x.shape[1]} features, {seconds:.0f} s", flush=True)
    kept_results = {str(result["epsilon"]): result for result in row["results"]}
    for epsilon in EPSILONS:
        known = kept_results.get(str(epsilon))
        # Without noise there is nothing to repeat.
        for seed in range(len(known["seeds"]) if known else 0, min(seeds, 5 if math.isfinite(epsilon) else 1)):
            known = kept_results[str(epsilon)] = _result(epsilon, seed, x, train, x_test, test, known)
            row["results"] = list(kept_results.values())
            _save(save, row)
            print(f"{study.name}: {known}", flush=True)


class _Fresh:
    """Count the images whose features were computed rather than read."""

    def __init__(self) -> None:
        self.steps = 0

    def __call__(self, done: int, total: int) -> None:
        self.steps += done < total

    def all_of(self, *counts: int) -> bool:
        return self.steps >= sum(count // ROWS_PER_BATCH - 1 for count in counts)


def _result(
    epsilon: float, seed: int, x: Any, train: ImageSet, x_test: Any, test: ImageSet, known: dict[str, Any] | None
) -> dict[str, Any]:
    """Train with one more seed, and return the result of all of them."""
    start = time.process_time()
    head = DPHead(epsilon, DELTA, classes=range(train.num_classes), random_state=seed)
    head.fit(x, train.labels.numpy(), train.groups)
    probabilities = head.predict_proba(x_test)
    accuracy, value = float((probabilities.argmax(axis=1) == test.labels.numpy()).mean()), _score(probabilities, test)
    known = known or {"seeds": [], "values": [], "accuracy": 0.0, "seconds": 0.0}
    done, values = len(known["seeds"]), [*known["values"], value]
    return {
        "epsilon": epsilon,
        "mu": head_mu(epsilon, DELTA),
        "seeds": [*known["seeds"], seed],
        "values": values,
        "mean": float(np.mean(values)),
        "sd": float(np.std(values, ddof=1)) if done else None,
        "accuracy": (done * known["accuracy"] + accuracy) / (done + 1),
        "seconds": (done * known["seconds"] + time.process_time() - start) / (done + 1),
    }


def worst_cases(save: Path) -> None:
    """Train heads with and without a crafted record, as many as are missing in the file."""
    found = _read(save)
    made = found.get("worst_cases", [])
    done = {(row["head"], row["epsilon"], row["trainings"]) for row in made}
    for name, settings, epsilon, trainings in CRAFTED:
        if (name, epsilon, trainings) not in done:
            start = time.process_time()
            shown = audit_head(settings, epsilon=epsilon, delta=DELTA, trainings=trainings)
            row = {
                "head": name,
                "settings": asdict(settings),
                "epsilon": epsilon,
                "mu": shown.mu,
                "trainings": trainings,
                "gaussian": shown.gaussian.epsilon,
                "any_curve": shown.any_curve.epsilon,
                "confidence": shown.gaussian.confidence,
                "seconds": time.process_time() - start,
            }
            made = [*made, row]
            write_json(save, {**_read(save), "worst_cases": made})
            print(shown, flush=True)


def fewer(data: str, save: Path, unit: str, sizes: Sequence[int] = SIZES) -> None:
    """Train heads on random patients or records, by size, the same ones for all epsilons."""
    column, pixels = ("patient", 128) if unit == "patients" else (None, None)
    train, test = load_pair(data, group_column=column, image_size=pixels)
    extractor = features.build("efficientnet-lite0")
    x, x_test = extractor.compute(train, "train"), extractor.compute(test, "test")
    names, code = np.unique(np.arange(len(train)) if column is None else train.groups, return_inverse=True)
    labels, classes, rows = train.labels.numpy(), range(train.num_classes), []
    for size in sorted({min(size, len(names)) for size in sizes}):
        values: dict[str, list[float]] = {str(epsilon): [] for epsilon in EPSILONS}
        for seed in range(5):
            own = np.isin(code, np.random.default_rng(seed).permutation(len(names))[:size])
            for epsilon in EPSILONS:
                head = DPHead(epsilon, DELTA, classes=classes, random_state=seed)
                with warnings.catch_warnings():  # that there are few is what is measured
                    warnings.simplefilter("ignore", UserWarning)
                    head.fit(x[own], labels[own], code[own])
                values[str(epsilon)].append(_score(head.predict_proba(x_test), test))
        rows.append({unit: size, "values": values})
        print(rows[-1], flush=True)
        found = {"data": data, "fingerprint": train.fingerprint, "rows": rows}
        write_json(save, {**_read(save), f"fewer_{unit}": found})


def _score(probabilities: Any, test: ImageSet) -> float:
    """Return the AUROC of two classes, the accuracy of more."""
    labels = test.labels.numpy()
    if test.num_classes == 2:
        return float(roc_auc_score(labels, probabilities[:, 1]))
    return float((probabilities.argmax(axis=1) == labels).mean())


def compare(save: Path, results: Path) -> None:
    """Copy the accuracies of whole networks on the same data sets from the results of the reproduction."""
    networks = []
    for data in sorted({study.data for study in STUDIES}):
        file = results / f"{data}-table.json"
        if not file.is_file():
            continue
        table = json.loads(file.read_text())
        scales = {made["preset"]: made["data"][0] for made in table["made"]}
        best = {}
        for row in table["rows"]:
            if row["preset"] in PRESETS and row["paper"] and row["measured"]:
                rank = PRESETS.index(row["preset"])
                if row["key"] not in best or rank < PRESETS.index(best[row["key"]]["preset"]):
                    best[row["key"]] = row
        for key, row in best.items():
            scale, private = scales[row["preset"]], row["strategy"] == "dpsgd"
            length = training_length(
                epochs=row["epochs"], batch_size=scale["dpsgd_batch_size"], records=scale["a_quarter"]
            )
            proven = dpsgd_guarantee(noise_multiplier=Dpsgd().noise_multiplier, length=length, delta=DELTA)
            networks.append(
                {
                    "data": data,
                    "key": key,
                    "name": row["name"],
                    "preset": row["preset"],
                    "training_images": scale["a_quarter"],
                    "epochs": row["epochs"],
                    "test_accuracy": row["measured"]["test_accuracy"]["mean"],
                    "seeds": row["measured"]["test_accuracy"]["seeds"],
                    "epsilon": proven.epsilon if private else None,
                    "source": file.name,
                }
            )
    write_json(save, {**_read(save), "networks": networks})


def _read(save: Path) -> dict[str, Any]:
    return json.loads(save.read_text()) if save.exists() else {"schema": 1, "delta": DELTA, "rows": []}


def _row(found: dict[str, Any], study: Study) -> dict[str, Any] | None:
    return next(
        (row for row in found["rows"] if (row["data"], row["extractor"]) == (study.data, study.extractor)), None
    )


def _save(save: Path, row: dict[str, Any]) -> None:
    found = _read(save)
    order = [study.name for study in STUDIES]
    rows = [old for old in found["rows"] if (old["data"], old["extractor"]) != (row["data"], row["extractor"])]
    rows = sorted([*rows, row], key=lambda one: order.index(f"{one['data']} {one['extractor']}"))
    write_json(save, {**found, "environment": environment(), "rows": rows})


if __name__ == "__main__":
    main()
