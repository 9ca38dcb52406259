"""A hospital's case: find pneumonia on chest X-rays of children, and protect each patient.

A small network trained in the usual way, stopped early, and trained with residual perturbation is compared with
private heads on public features at patient-level epsilon 8, 3 and 1. Each is tested on patients who were not trained
on, audited per patient, and held against two policies. The page and its figure are made from what was measured:

    python examples/case_study.py --data xray --out runs/case-study --save docs/results/case-study.json
    python examples/case_study.py --save docs/results/case-study.json --page docs/case-study.md

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
import pandas as pd
import torch
from sklearn.metrics import roc_auc_score
from torch import nn
from torch.nn import functional as F

import resperturb as rp
from resperturb import features

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--data", default="xray")
parser.add_argument("--size", type=int, default=128)
parser.add_argument("--limit", type=int, help="largest number of images of each part")
parser.add_argument("--epochs", type=int, default=12)
parser.add_argument("--early", type=int, default=4, help="the epochs of the network that is stopped early")
parser.add_argument("--models", type=int, default=10, help="networks of each kind that are trained for the audit")
parser.add_argument("--head-models", type=int, default=256, help="the same for heads, which take a second each")
parser.add_argument("--only", default="", help="make the models whose names contain this")
parser.add_argument("--features", default="efficientnet-lite0")
parser.add_argument("--reduction", help="of the features, such as none; the default is the extractor's own")
parser.add_argument("--out", type=Path, default=Path("runs/case-study"))
parser.add_argument("--save", type=Path, required=True, help="the JSON file that the page is made from")
parser.add_argument("--page", type=Path, help="write the page and its figure from the JSON file, and train nothing")
options = parser.parse_args()

# Both limit the attack AUC per patient; the first also demands a proof.
POLICIES = {
    "with a proof": "limits: {auc: 0.6, epsilon_proven: 8}\nevidence: {shadows: 8, records: 200}\n",
    "attacks only": "limits: {auc: 0.6}\nevidence: {shadows: 8, records: 200}\n",
}
HEADS = {"head-inf": math.inf, "head-8": 8.0, "head-3": 3.0, "head-1": 1.0}
MODELS = {
    "network": "Small residual network",
    "early": "The same, stopped early",
    "noise": "The same, residual perturbation",
    "head-inf": "Head on public features, no noise",
    "head-8": "Private head, epsilon 8",
    "head-3": "Private head, epsilon 3",
    "head-1": "Private head, epsilon 1",
}
GAMMA = 0.5


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


class Case:
    """The X-rays, their features, and every model trained on them."""

    def __init__(self):
        self.train, self.test = rp.data.load_pair(
            options.data, group_column="patient", image_size=options.size, limit=options.limit
        )
        self.labels, self.patients = self.train.labels.numpy(), self.train.groups
        self.pixels = [part.images[torch.arange(len(part))].float() / 255 - 0.5 for part in (self.train, self.test)]
        self.extractor = features.build(options.features, reduction=options.reduction)
        started = time.process_time()
        parts = (self.train, "train"), (self.test, "test")
        self.rows = [self.extractor.compute(part, name) for part, name in parts]
        self.feature_seconds = time.process_time() - started

    def train_network(self, epochs, gamma=0.0):
        def train(indices, seed):
            torch.manual_seed(seed)
            model = network()
            if gamma:
                model = rp.perturb(model, rp.Additive(gamma=gamma))
            optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
            batches = max(1, len(indices) // 32)
            schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=epochs * batches)
            pixels, labels = self.pixels[0], self.train.labels
            model.train()
            for _ in range(epochs):
                for batch in torch.as_tensor(indices)[torch.randperm(len(indices))].tensor_split(batches):
                    shift = torch.randint(-6, 7, (2,)).tolist()
                    optimizer.zero_grad()
                    F.cross_entropy(model(pixels[batch].roll(shift, (2, 3))), labels[batch]).backward()
                    optimizer.step()
                    schedule.step()
            return model.eval(), lambda asked: (pixels[part] for part in torch.as_tensor(asked).split(256))

        return train

    def head(self, epsilon, indices):
        head = rp.DPHead(epsilon, classes=[0, 1], unit="patient")
        return head.fit(self.rows[0][indices], self.labels[indices], self.patients[indices])

    def train_head(self, epsilon):
        def train(indices, seed):
            head = self.head(epsilon, indices)
            return lambda asked: head.predict_proba(self.rows[0][asked])

        return train

    def trainer(self, name):
        if name in HEADS:
            return self.train_head(HEADS[name])
        return self.train_network(options.early if name == "early" else options.epochs, GAMMA * (name == "noise"))

    def test_scores(self, model):
        """Return probabilities of pneumonia on the test images; of a noisy network the mean over 16 draws."""
        if isinstance(model, rp.DPHead):
            return model.predict_proba(self.rows[1])[:, 1]
        draws = 16 if rp.strategy_of(model) is not None else 1
        with torch.no_grad():
            return np.mean([model(self.pixels[1]).softmax(1)[:, 1].numpy() for _ in range(draws)], axis=0)

    def over_patients(self, *models):
        """Return the mean AUROC over seeds, or the difference of the second model to the first.

        Args:
            models: The test scores of a model, one row per seed.

        Returns:
            The number, and its 95% interval from a bootstrap over the test patients.
        """
        truth, random = self.test.labels.numpy(), np.random.default_rng(0)
        of_patient = [np.flatnonzero(self.test.groups == patient) for patient in np.unique(self.test.groups)]

        def found(rows):
            areas = [np.mean([roc_auc_score(truth[rows], scores[rows]) for scores in model]) for model in models]
            return areas[-1] - (areas[0] if len(areas) > 1 else 0)

        again = [
            found(np.concatenate([of_patient[k] for k in random.integers(0, len(of_patient), len(of_patient))]))
            for _ in range(1000)
        ]
        return float(found(slice(None))), [float(end) for end in np.quantile(again, (0.025, 0.975))]

    def make(self, name):
        """Train one model on all training patients, test it, audit its recipe, and run the gate."""
        epsilon = HEADS.get(name)
        every, scores, seconds, model = np.arange(len(self.labels)), [], [], None
        # Networks take a minute each, and a head without noise is always the same.
        for seed in range(5 if epsilon is not None and math.isfinite(epsilon) else 1):
            start = time.process_time()
            model = self.trainer(name)(every, seed)[0] if epsilon is None else self.head(epsilon, every)
            seconds.append(time.process_time() - start)
            scores.append(self.test_scores(model))
        auroc, interval = self.over_patients(scores)
        folder = options.out / name
        np.save(folder.with_suffix(".npy"), scores)
        plain = options.out / "head-inf.npy"
        difference = self.over_patients(np.load(plain), scores) if epsilon is not None and plain.exists() else None
        guarantee = model.guarantee() if epsilon is not None and math.isfinite(epsilon) else None
        models = options.models if epsilon is None else options.head_models
        started = time.process_time()
        found = rp.audit(
            self.trainer(name),
            labels=self.labels,
            groups=pd.Series(self.patients, name="patient"),
            models=models,
            draws=(1, 16),
            jobs=1,
            guarantee=guarantee,
            out=folder,
        )
        found.report(folder / "report.html")
        attacks = [
            {"name": f"{attack.full_name}, {kind}", "auc": metrics.auc, "interval": list(metrics.auc_interval)}
            for attack in found.fixed
            for kind, metrics in attack.metrics.items()
        ]
        per_patient = [attack for attack in attacks if attack["name"].endswith(", group")]
        return {
            "name": name,
            "auroc": auroc,
            "interval": interval,
            "auroc_seeds": [float(roc_auc_score(self.test.labels.numpy(), one)) for one in scores],
            "difference": None if name == "head-inf" or difference is None else difference,
            "seconds": float(np.mean(seconds)),
            "audit_seconds": time.process_time() - started,
            "epsilon": None if guarantee is None else guarantee.epsilon,
            "largest_auc": None if guarantee is None else guarantee.max_auc,
            "assumptions": [] if guarantee is None else [one.statement for one in guarantee.assumptions],
            "models": models,
            "fixed_attacks": len(found.fixed),
            "attacks": attacks,
            "strongest": max(per_patient, key=lambda attack: attack["auc"]),
            "verdict": found.verdict,
            "epsilon_shown": found.epsilon_lower.epsilon,
            "decisions": {policy: gate(folder, policy) for policy in POLICIES},
        }

    def facts(self):
        """Return the description of the data for the page."""
        return {
            "training_images": len(self.train),
            "training_patients": len(np.unique(self.patients)),
            "test_images": len(self.test),
            "test_patients": len(np.unique(self.test.groups)),
            "size": options.size,
            "features": self.extractor.describe().__dict__,
            "network": {"epochs": options.epochs, "early": options.early, "gamma": GAMMA},
            "policies": POLICIES,
        }


def gate(folder, policy):
    file = options.out / f"{policy}.yaml"
    file.write_text(POLICIES[policy])
    command = [sys.executable, "-m", "resperturb", "gate", str(folder), "--policy", str(file), "--json"]
    decision = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)
    return {key: decision[key] for key in ("outcome", "status", "reasons")}


def measure():
    """Make the models that are missing in the JSON file."""
    study = json.loads(options.save.read_text()) if options.save.exists() else {"models": []}
    missing = [name for name in MODELS if options.only in name and name not in {m["name"] for m in study["models"]}]
    if not missing:
        return
    case = Case()
    options.out.mkdir(parents=True, exist_ok=True)
    study = {**study, **case.facts()}
    study["feature_seconds"] = max(study.get("feature_seconds", 0), case.feature_seconds)  # later they are only read
    for name in missing:
        made = case.make(name)
        study["models"] = sorted([*study["models"], made], key=lambda model: list(MODELS).index(model["name"]))
        options.save.write_text(json.dumps(study, indent=2) + "\n")
        print(f"{MODELS[name]}: {json.dumps(made)}", flush=True)


def page(study):
    """Write the page from the results."""
    made = {model["name"]: model for model in study["models"]}
    names = [name for name in MODELS if name in made]
    heads = [made[name] for name in ("head-1", "head-3", "head-8") if name in made]
    network, aims = study["network"], {"head-3": 0.01, "head-1": 0.015}
    works, found, gates, reached = [], [], [], []
    for name in names:
        model, attack = made[name], made[name]["strongest"]
        less = _number(*model["difference"], sign="+") if model["difference"] else ""
        works.append([MODELS[name], _number(model["auroc"], model["interval"]), less, f"{model['seconds']:.0f} s"])
        largest, epsilon = [
            "none" if model[key] is None else f"{model[key]:{form}}"
            for key, form in (("largest_auc", ".3f"), ("epsilon", ".0f"))
        ]
        shown = f"{model['epsilon_shown']:.2f}"
        found.append([MODELS[name], _number(attack["auc"], attack["interval"]), largest, shown, epsilon])
        gates.append([MODELS[name], *(model["decisions"][policy]["status"].capitalize() for policy in POLICIES)])
        if name in aims and model["difference"]:
            loss = -model["difference"][0]
            reached.append(
                f"- At epsilon {epsilon} the loss is {loss:.3f}. The aim, set beforehand, was at most {aims[name]}: "
                f"{'reached' if loss <= aims[name] else 'missed'}."
            )
    best = max(made.values(), key=lambda model: model["auroc"])
    finding = f"The largest test AUROC is that of *{MODELS[best['name']]}*: {best['auroc']:.3f}."
    proof = max(heads, key=lambda model: model["auroc"], default=best)
    if proof is not best:
        finding += f" The best model with a proof, *{MODELS[proof['name']]}*, has {proof['auroc']:.3f}."
    weakest = min(made.values(), key=lambda model: model["strongest"]["auc"])
    strongest = max(made.values(), key=lambda model: model["strongest"]["auc"])
    finding += (
        f" Attacks on a patient have an AUC from {weakest['strongest']['auc']:.3f} (*{MODELS[weakest['name']]}*) to "
        f"{strongest['strongest']['auc']:.3f} (*{MODELS[strongest['name']]}*); guessing has 0.5."
    )
    counts = sorted({model["models"] for model in study["models"]})
    attacks = sorted({model["fixed_attacks"] for model in study["models"]})
    words = {
        **{key: f"{study[key]:,}" for key in study if key.endswith(("images", "patients"))},
        "size": study["size"],
        "epochs": network["epochs"],
        "early": network["early"],
        "gamma": network["gamma"],
        "origin": study["features"]["origin"].rstrip("."),
        "models": " or ".join(str(count) for count in counts),
        "attacks": " or ".join(str(count) for count in attacks),
        "finding": finding,
        "seconds": f"{study['feature_seconds'] + sum(model['seconds'] for model in heads):,.0f}",
        "works": _rows(works),
        "found": _rows(found),
        "gates": _rows(gates),
        "reached": "\n".join(reached),
        "assumed": "\n".join(f"- {statement}" for statement in heads[0]["assumptions"]) if heads else "",
    }
    return Path(__file__).with_name("case_study.md").read_text().format(**words)


def _rows(cells):
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def _number(value, interval, sign=""):
    low, high = interval
    return f"{value:{sign}.3f} ({low:{sign}.3f} to {high:{sign}.3f})"


def draw(study, picture):
    """Draw both scores of each model, with intervals."""
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    mpl.rcParams.update({"svg.hashsalt": "case-study", "font.size": 9, "svg.fonttype": "path"})
    figure, (works, reveals) = plt.subplots(1, 2, figsize=(7.0, 2.8), sharey=True, layout="constrained")
    for height, model in enumerate(study["models"]):
        works.plot(model["interval"], [height] * 2, color="#0072B2")
        works.plot(model["auroc"], height, "o", color="#0072B2")
        reveals.plot(model["strongest"]["interval"], [height] * 2, color="#D55E00")
        reveals.plot(model["strongest"]["auc"], height, "o", color="#D55E00")
        if model["largest_auc"] is not None:
            reveals.plot(model["largest_auc"], height, "|", color="black", markersize=12)
    works.set_yticks(range(len(study["models"])), [MODELS[model["name"]] for model in study["models"]])
    works.invert_yaxis()
    works.set(title="Finds pneumonia: test AUROC")
    reveals.axvline(0.5, linestyle=":", color="grey")
    reveals.set(title="Finds a patient: attack AUC\n(bar: largest possible, proven)")
    figure.savefig(picture, metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    warnings.filterwarnings("default", module="resperturb")
    if options.page is None:
        measure()
    else:
        done = json.loads(options.save.read_text())
        options.page.write_text(page(done))
        (options.page.parent / "images").mkdir(exist_ok=True)
        draw(done, options.page.parent / "images" / "case-study.svg")
