"""Does bf16 change what a training gives? Accuracy, and the AUC of a membership attack by the loss, over seeds.

``python -m benchmarks.precision`` trains ResNet8 in 32 bits and in bf16, with three seeds each: on 500 images of the
built-in sample with and without noise, and on 2,500 images of CIFAR-10 with noise. That is about ten minutes of one
core. It resumes, so that it can run next to other things. The table has the difference of the means and the spread
between seeds.
"""

import argparse
import json
import statistics
from pathlib import Path

import torch.nn.functional as F

from resperturb.bounds import auc
from resperturb.data import ImageSet
from resperturb.environment import environment
from resperturb.training import make_config, train
from resperturb.training.inputs import load_inputs
from resperturb.training.predict import predict
from resperturb.training.run import Run

PRECISIONS = ("32-true", "bf16-mixed")
NOISE: dict[str, object] = {"perturbation": {"name": "additive", "gamma": 0.5}}
SAMPLE: dict[str, object] = {"data": {"spec": "fashion-sample", "limit": 500}, "epochs": 40, "batch_size": 64}
CIFAR10: dict[str, object] = {"data": {"spec": "cifar10", "limit": 2500}, "epochs": 30, "batch_size": 128}
SETTINGS: dict[str, dict[str, object]] = {
    "sample, no noise": SAMPLE,
    "sample, additive 0.5": {**SAMPLE, **NOISE},
    "CIFAR-10, additive 0.5": {**CIFAR10, **NOISE},
}
DRAWS = 8


def losses(run: Run, images: ImageSet) -> list[float]:
    """Compute the loss of each image, of predictions averaged over draws."""
    config = run.config
    logits = predict(run.load_model(), images.images, mean=config.mean, std=config.std, draws=DRAWS, seed=1)
    return [float(one) for one in F.cross_entropy(logits, images.labels, reduction="none")]


def measured(setting: str, precision: str, seed: int, runs: Path) -> dict[str, float]:
    """Train once, or take what was trained; give the test accuracy and the AUC."""
    config = make_config(**SETTINGS[setting], seeded_noise=True, precision=precision, seed=seed)
    run = train(config, runs=runs, draws=DRAWS)
    inputs = load_inputs(run.config.data)
    members, others = (losses(run, images) for images in (inputs.train, inputs.test))
    return {"accuracy": run.result.test_accuracy, "auc": float(auc([-x for x in members], [-x for x in others]))}


def main() -> None:
    """Train all, print the table and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs/precision"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--save", type=Path, default=Path("docs/results/precision.json"))
    given = parser.parse_args()
    found = {
        setting: {
            precision: [measured(setting, precision, seed, given.runs) for seed in range(given.seeds)]
            for precision in PRECISIONS
        }
        for setting in SETTINGS
    }
    print("| | 32 bits | bf16 | difference of the means | spread between seeds |\n|---|---|---|---|---|")
    for setting, of_precision in found.items():
        for what in ("accuracy", "auc"):
            whole, half = ([one[what] for one in of_precision[precision]] for precision in PRECISIONS)
            difference = abs(statistics.mean(whole) - statistics.mean(half))
            spread = max(max(values) - min(values) for values in (whole, half))
            means = f"{statistics.mean(whole):.3f} | {statistics.mean(half):.3f}"
            print(f"| {setting}: {what} | {means} | {difference:.3f} | {spread:.3f} |")
    facts = {"settings": SETTINGS, "draws": DRAWS, "environment": environment(), "found": found}
    given.save.write_text(json.dumps(facts, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()
