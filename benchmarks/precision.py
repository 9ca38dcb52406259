"""Does bf16 change what a training gives? Accuracy, and the AUC of a membership attack by the loss, over seeds.

``python -m benchmarks.precision`` trains ResNet8 on 500 images of the built-in sample, with and without noise, in 32
bits and in bf16, with three seeds each. It resumes, so that it can run beside other things.
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
SETTINGS: dict[str, dict[str, object]] = {
    "no noise": {},
    "additive 0.5": {"perturbation": {"name": "additive", "gamma": 0.5}},
}
RECIPE: dict[str, object] = {
    "data": {"spec": "fashion-sample", "limit": 500},
    "epochs": 40,
    "batch_size": 64,
    "seeded_noise": True,
}
DRAWS = 8


def losses(run: Run, images: ImageSet) -> list[float]:
    """Compute the loss of each image, of predictions averaged over draws."""
    config = run.config
    logits = predict(run.load_model(), images.images, mean=config.mean, std=config.std, draws=DRAWS, seed=1)
    return [float(one) for one in F.cross_entropy(logits, images.labels, reduction="none")]


def measured(setting: str, precision: str, seed: int, runs: Path) -> dict[str, float]:
    """Train once, or take what was trained; give the test accuracy and the AUC."""
    run = train(make_config(**RECIPE, **SETTINGS[setting], precision=precision, seed=seed), runs=runs, draws=DRAWS)
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
        f"{setting}, {precision}": [measured(setting, precision, seed, given.runs) for seed in range(given.seeds)]
        for setting in SETTINGS
        for precision in PRECISIONS
    }
    print("| | test accuracy | loss AUC |\n|---|---|---|")
    for name, values in found.items():
        cells = []
        for what in ("accuracy", "auc"):
            numbers = [one[what] for one in values]
            cells.append(f"{statistics.mean(numbers):.3f} ({min(numbers):.3f} to {max(numbers):.3f})")
        print(f"| {name} | {' | '.join(cells)} |")
    facts = {"recipe": RECIPE, "draws": DRAWS, "environment": environment(), "found": found}
    given.save.write_text(json.dumps(facts, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()
