"""How much heads reveal, next to what is proven: the attacks of docs/guarantee.md.

    RESPERTURB_DATA=... nice python -m benchmarks.head_attacks --out runs/heads --save docs/results/head-attacks.json

Two parts. *Leave one out*: heads are trained on random halves of the patients, and each of them is attacked by online
LiRA with all others, its opposite aside. *Worst case*: a head is trained thousands of times with and without a
crafted record. Rerun the command to go on where it stopped.
"""

import argparse
import json
import math
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtr

from resperturb import features
from resperturb.attacks.lira import lira_online
from resperturb.attacks.moments import Moments
from resperturb.bounds.arrays import Bools, Floats, Ints
from resperturb.bounds.metrics import auc
from resperturb.bounds.targets import mean_estimate
from resperturb.data.canaries import fair_coins
from resperturb.data.loading import load_pair
from resperturb.environment import environment
from resperturb.files import write_json
from resperturb.heads import Descent, DPHead, OneShot, audit_head
from resperturb.privacy.dp_head import head_mu

EPSILONS = (math.inf, 8.0, 3.0, 1.0)
DELTA = 1e-5
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
    """Measure what is not in the file yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="xray")
    parser.add_argument("--group", default="patient")
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--features", default="efficientnet-lite0")
    parser.add_argument("--models", type=int, default=256)
    parser.add_argument("--out", type=Path, required=True, help="folder of the heads' answers")
    parser.add_argument("--save", type=Path, required=True)
    parser.add_argument("--only", choices=("worst-case", "leave-one-out"))
    options = parser.parse_args()
    if options.only != "leave-one-out":
        worst_cases(options.save)
    if options.only != "worst-case":
        train, test = load_pair(options.data, group_column=options.group, image_size=options.size)
        extractor = features.build(options.features)
        rows = [extractor.compute(part, name) for part, name in ((train, "train"), (test, "test"))]  # type: ignore[arg-type]
        assert train.groups is not None
        units = np.unique(train.groups, return_inverse=True)[1].astype(np.int64)
        study = LeaveOneOut(rows[0], train.labels.numpy(), units, options.models, options.out)
        found = _read(options.save)
        found["data"] = {"name": options.data, "features": options.features, "fingerprint": train.fingerprint}
        done = {(row["epsilon"], row["models"]) for row in found.get("leave_one_out", [])}
        for epsilon in EPSILONS:
            if (plain(epsilon), options.models) not in done:
                row = study.measure(epsilon, rows[1], test.labels.numpy())
                found["leave_one_out"] = [*found.get("leave_one_out", []), row]
                _save(options.save, found)
                print(json.dumps(row), flush=True)


def worst_cases(save: Path) -> None:
    """Train heads on crafted pairs, as many as are missing in the file."""
    found = _read(save)
    done = {(row["head"], row["epsilon"], row["trainings"]) for row in found.get("worst_case", [])}
    for name, settings, epsilon, trainings in CRAFTED:
        if (name, epsilon, trainings) in done:
            continue
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
        found["worst_case"] = [*found.get("worst_case", []), row]
        _save(save, found)
        print(shown, flush=True)


class LeaveOneOut:
    """Heads on random halves of the units; models 2j and 2j + 1 are trained on opposite ones.

    Args:
        x: The features of all rows.
        labels: The class of each row.
        units: The unit of each row.
        models: The number of heads.
        folder: Where their answers are kept.
    """

    def __init__(self, x: Any, labels: Ints, units: Ints, models: int, folder: Path) -> None:
        self.x, self.labels, self.units, self.models, self.folder = x, labels, units, models, folder
        count = int(units.max()) + 1
        self.members = np.stack([fair_coins(count, seed) for seed in range(models)])  # [K, units]
        self.classes = int(labels.max()) + 1

    def measure(self, epsilon: float, x_test: Any, y_test: Ints) -> dict[str, Any]:
        """Train the heads of one epsilon, and attack each by all others."""
        confidence, areas, seconds = self.answers(epsilon, x_test, y_test)
        inside = self.members[:, self.units]
        scores = attacked(confidence, inside)
        by_record = [auc(score[own], score[~own]) for score, own in zip(scores, inside, strict=True)]
        summed = np.stack([np.bincount(self.units, score) for score in scores])
        by_unit = [auc(score[own], score[~own]) for score, own in zip(summed, self.members, strict=True)]
        rates = [_tpr(score, own) for score, own in zip(summed, self.members, strict=True)]
        mu = head_mu(epsilon, DELTA)
        return {
            "epsilon": plain(epsilon),
            "models": self.models,
            "units_per_model": float(self.members.sum(axis=1).mean()),
            "test_auroc": float(np.mean(areas)),
            **{name: _mean(values) for name, values in (("record", by_record), ("unit", by_unit), ("tpr", rates))},
            "largest_auc": float(ndtr(mu / math.sqrt(2))),
            "seconds": seconds,
        }

    def answers(self, epsilon: float, x_test: Any, y_test: Ints) -> tuple[Floats, Floats, float]:
        """Return each head's logit of the true class for every row, its test AUROC, and the seconds of training."""
        confidence, areas = np.full((self.models, len(self.x)), np.nan), np.full(self.models, np.nan)
        file, seconds, first = self.folder / f"{epsilon:g}-{self.models}.npz", 0.0, 0
        if file.exists():
            with np.load(file) as kept:
                confidence, areas, seconds = kept["confidence"], kept["areas"], float(kept["seconds"])
            first = int(np.isfinite(areas).sum())
        self.folder.mkdir(parents=True, exist_ok=True)
        sign = np.where(self.labels == 1, 1, -1)
        for number in range(first, self.models):
            start = time.process_time()
            own = self.members[number, self.units]
            head = DPHead(epsilon, DELTA, classes=range(self.classes), unit="patient")  # its noise nobody keeps
            head.fit(self.x[own], self.labels[own], self.units[own])
            seconds += time.process_time() - start
            confidence[number] = sign * head.decision_function(self.x)
            scores = head.decision_function(x_test)
            areas[number] = auc(scores[y_test == 1], scores[y_test == 0])
            if number % 32 == 31 or number == self.models - 1:
                np.savez(file, confidence=confidence, areas=areas, seconds=seconds)
        return confidence, areas, seconds


def attacked(confidence: Floats, inside: Bools) -> Floats:
    """Return the score of each row under each model ``[K, rows]``: online LiRA, by the models outside its pair."""
    values = confidence[:, :, None]
    within, without = (Moments.empty(values.shape[1], 1) for _ in range(2))
    for value, own in zip(values, inside, strict=True):
        within.add(value, own)
        without.add(value, ~own)
    scores = np.empty_like(confidence)
    for target in range(len(values)):
        ins, outs = within.copy(), without.copy()
        for other in (target, target ^ 1):
            ins.remove(values[other], inside[other])
            outs.remove(values[other], ~inside[other])
        scores[target] = lira_online(values[target], ins, outs, "global")
    return scores


def plain(epsilon: float) -> float | str:
    """Return an epsilon as JSON has it."""
    return "inf" if math.isinf(epsilon) else epsilon


def _mean(values: list[float]) -> dict[str, Any]:
    found = mean_estimate(values)
    return {"mean": found.value, "interval": list(found.interval(0.95))}


def _tpr(scores: Floats, members: Bools, fpr: float = 0.01) -> float:
    """The true positive rate at the lowest threshold that at most a share ``fpr`` of the non-members reaches."""
    others = np.sort(scores[~members])[::-1]
    return float((scores[members] > others[int(fpr * len(others))]).mean())


def _read(save: Path) -> dict[str, Any]:
    return json.loads(save.read_text()) if save.exists() else {"schema": 1, "delta": DELTA}


def _save(save: Path, found: dict[str, Any]) -> None:
    write_json(save, {**found, "environment": environment()})


if __name__ == "__main__":
    main()
