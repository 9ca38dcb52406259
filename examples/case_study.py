"""A hospital's case: find pneumonia on chest X-rays of children, and protect each patient.

A small network trained in the usual way, stopped early, and trained with residual perturbation is compared with
private heads on public features at patient-level epsilon 8, 3 and 1. Each is tested on patients who were not trained
on, audited per patient, and held against a policy. The page docs/case-study.md is made from what this script writes.

    python examples/case_study.py --data xray --out runs/case-study --save docs/results/case-study.json

The X-rays are those of Kermany, Zhang and Goldbaum 2018 (CC BY 4.0), as parquet files with the columns image, label
and patient, a patient being a person and a type of disease. Rerun the command to go on where it stopped.
"""

import argparse
import json
import math
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from torch import nn
from torch.nn import functional as F

import resperturb as rp
from resperturb import features

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--data", default="xray")
parser.add_argument("--size", type=int, default=128)
parser.add_argument("--limit", type=int, help="at most so many images of each part")
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--early", type=int, default=4, help="the epochs of the network that is stopped early")
parser.add_argument("--shadows", type=int, default=16, help="shadow models of each network")
parser.add_argument(
    "--head-shadows", type=int, default=64, help="shadow models of each head, which take a second each"
)
parser.add_argument("--only", default="", help="a part of the names of the models to make")
parser.add_argument("--features", default="efficientnet-lite0")
parser.add_argument("--reduction", help="of the features, such as none; the default is the extractor's own")
parser.add_argument("--out", type=Path, default=Path("runs/case-study"))
parser.add_argument("--save", type=Path, help="the JSON file that the page is made from")
options = parser.parse_args()

POLICY = """\
name: hospital
limits:
  auc: 0.6              # of finding a patient, with the interval
  epsilon_proven: 8     # per patient
evidence: {shadows: 8, records: 200}
"""


class Block(nn.Module):
    """A residual block."""

    def __init__(self, channels):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels))

    def forward(self, x):
        return F.relu(x + self.second(self.first(x)))


def network():
    return nn.Sequential(
        nn.Conv2d(1, 16, 7, stride=4, padding=3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        Block(16), nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(), Block(32),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 2),
    )  # fmt: skip


train_images, test_images = rp.data.load_pair(
    options.data, group_column="patient", image_size=options.size, limit=options.limit
)
labels, patients = train_images.labels.numpy(), train_images.groups
pixels = [part.images[torch.arange(len(part))].float() / 255 - 0.5 for part in (train_images, test_images)]
extractor = features.build(options.features, reduction=options.reduction)
started = time.process_time()
rows = [extractor.compute(part, name) for part, name in ((train_images, "train"), (test_images, "test"))]
feature_seconds = time.process_time() - started


def train_network(epochs, gamma=0.0):
    def train(indices, seed):
        torch.manual_seed(seed)
        model = network()
        if gamma:
            model = rp.perturb(model, rp.Additive(gamma=gamma))
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
        batches = max(1, len(indices) // 32)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=epochs * batches)
        model.train()
        for _ in range(epochs):
            for batch in torch.as_tensor(indices)[torch.randperm(len(indices))].tensor_split(batches):
                shift = torch.randint(-6, 7, (2,)).tolist()
                optimizer.zero_grad()
                F.cross_entropy(model(pixels[0][batch].roll(shift, (2, 3))), train_images.labels[batch]).backward()
                optimizer.step()
                schedule.step()
        return model.eval(), lambda asked: (pixels[0][part] for part in torch.as_tensor(asked).split(256))

    return train


def train_head(epsilon):
    def train(indices, seed):
        head = private_head(epsilon, indices)
        return lambda asked: head.predict_proba(rows[0][asked])

    return train


def private_head(epsilon, indices):
    return rp.DPHead(epsilon, classes=[0, 1], unit="patient").fit(
        rows[0][indices], labels[indices], patients[indices]
    )


def test_scores(model):
    """Probabilities of pneumonia on the test images; of a noisy network the mean over 16 draws."""
    if isinstance(model, rp.DPHead):
        return model.predict_proba(rows[1])[:, 1]
    draws = 16 if rp.strategy_of(model) is not None else 1
    with torch.no_grad():
        return np.mean([model(pixels[1]).softmax(1)[:, 1].numpy() for _ in range(draws)], axis=0)


def over_patients(scores, resamples=2000):
    """AUROC over the test images, and its 95% interval from a bootstrap over the test patients."""
    truth, random = test_images.labels.numpy(), np.random.default_rng(0)
    of_patient = [np.flatnonzero(test_images.groups == patient) for patient in np.unique(test_images.groups)]
    again = []
    for _ in range(resamples):
        drawn = np.concatenate([of_patient[k] for k in random.integers(0, len(of_patient), len(of_patient))])
        again.append(roc_auc_score(truth[drawn], scores[drawn]))
    return float(roc_auc_score(truth, scores)), [float(end) for end in np.quantile(again, (0.025, 0.975))]


def gate(folder):
    policy = options.out / "policy.yaml"
    policy.write_text(POLICY)
    command = [sys.executable, "-m", "resperturb", "gate", str(folder), "--policy", str(policy), "--json"]
    return json.loads(subprocess.run(command, capture_output=True, text=True).stdout)


MODELS = {
    "network": ("Small residual network", train_network(options.epochs), None),
    "early": (
        f"The same, {options.early} epochs instead of {options.epochs}",
        train_network(options.early),
        None,
    ),
    "noise": ("The same with residual perturbation (gamma 0.5)", train_network(options.epochs, 0.5), None),
    "head-inf": ("Head on public features, no noise", train_head(math.inf), math.inf),
    "head-8": ("Private head, epsilon 8", train_head(8.0), 8.0),
    "head-3": ("Private head, epsilon 3", train_head(3.0), 3.0),
    "head-1": ("Private head, epsilon 1", train_head(1.0), 1.0),
}


def make(name):
    """Train one model on all training patients, test it, audit its recipe, and ask the gate."""
    title, train, epsilon = MODELS[name]
    every = np.arange(len(labels))
    areas, seconds = [], []
    for seed in range(5):
        start = time.process_time()
        if epsilon is None:
            model, _ = train(every, seed)
        else:
            model = private_head(epsilon, every)
        seconds.append(time.process_time() - start)
        scores = test_scores(model)
        areas.append(over_patients(scores, resamples=2000 if seed == 0 else 1))
        if epsilon is None or math.isinf(epsilon):
            break  # networks take minutes, and a head without noise is always the same
    guarantee = model.guarantee() if epsilon is not None and math.isfinite(epsilon) else None
    shadows = options.shadows if epsilon is None else options.head_shadows
    folder = options.out / name
    found = rp.audit(
        train, labels=labels, groups=patients, shadows=shadows, draws=(1, 16), jobs=1, guarantee=guarantee, out=folder
    )
    found.report(folder / "report.html")
    decision = gate(folder)
    fixed = found.fixed
    return {
        "name": name,
        "title": title,
        "auroc": areas[0][0],
        "interval": areas[0][1],
        "auroc_seeds": [area for area, _ in areas],
        "seconds": float(np.mean(seconds)),
        "epsilon": None if guarantee is None else guarantee.epsilon,
        "largest_auc": None if guarantee is None else guarantee.max_auc,
        "shadows": shadows,
        "attacks": [
            {
                "name": attack.full_name,
                **{
                    kind: {"auc": attack.metrics[kind].auc, "interval": list(attack.metrics[kind].auc_interval)}
                    for kind in ("record", "group")
                    if kind in attack.metrics
                },
            }
            for attack in fixed
        ],
        "epsilon_shown": found.epsilon_lower.epsilon,
        "outcome": decision["outcome"],
        "status": decision["status"],
        "reasons": decision["reasons"],
    }


def main():
    warnings.filterwarnings("default", module="resperturb")
    options.out.mkdir(parents=True, exist_ok=True)
    kept = json.loads(options.save.read_text())["models"] if options.save and options.save.exists() else []
    for name in MODELS:
        if options.only in name and name not in {model["name"] for model in kept}:
            kept.append(make(name))
            kept.sort(key=lambda model: list(MODELS).index(model["name"]))
            print(json.dumps(kept[-1], indent=1), flush=True)
            if options.save:
                study = {
                    "models": kept,
                    "training_images": len(train_images),
                    "training_patients": len(np.unique(patients)),
                    "test_images": len(test_images),
                    "test_patients": len(np.unique(test_images.groups)),
                    "size": options.size,
                    "features": extractor.describe().__dict__,
                    "feature_seconds": feature_seconds,
                    "policy": POLICY,
                }
                options.save.write_text(json.dumps(study, indent=2) + "\n")


if __name__ == "__main__":
    main()
