"""Run the worst-case audit of this package's DP-SGD on MNIST, and compare the bound with the proven epsilon.

    RESPERTURB_DATA=... python benchmarks/worst_case.py --trials 100

It trains a small network on 1,000 images of MNIST by full batches, half of the trainings with a crafted canary.
"""

import argparse
import time

import torch

from resperturb.auditing.worst_case import crafted_canary, crafted_weights, worst_case_audit
from resperturb.data.loading import load_pair
from resperturb.privacy.dpsgd import calibrate_dpsgd
from resperturb.privacy.length import training_length
from resperturb.training.predict import normalize
from resperturb.training.worst_case import DpsgdTrainer, perceptron

MEAN, STD = 0.5, 0.25


def main() -> None:
    """Audit, and print one row of a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--records", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--epsilon", type=float, default=10.0)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--jobs", type=int, default=1)
    chosen = parser.parse_args()
    records = load_pair(chosen.data, limit=chosen.records)[0]
    images, labels = records.images[torch.arange(len(records))], records.labels
    plan = training_length(steps=chosen.steps, batch_size=len(records), records=len(records))
    proven = calibrate_dpsgd(epsilon=chosen.epsilon, delta=1e-5, length=plan)
    torch.manual_seed(0)
    model = perceptron(records.num_classes, records.channels, records.size[0])
    initial = crafted_weights(model, normalize(images, MEAN, STD), labels)
    canary = crafted_canary(lambda batch: model(normalize(batch, MEAN, STD)), images)
    noise = proven.details["noise_multiplier"]
    train = DpsgdTrainer(len(records), chosen.steps, noise, chosen.lr, classes=records.num_classes)
    start = time.monotonic()
    found = worst_case_audit(
        train,
        initial,
        images,
        labels,
        canary,
        proven.epsilon,
        trials=chosen.trials,
        jobs=chosen.jobs,
        on_done=lambda done, count: print(f"{done}/{count} {time.monotonic() - start:.0f} s", flush=True),
    )
    print(f"noise {noise:.3f}, proven {proven.epsilon:.3f}, shown {found.bound.epsilon:.3f}")
    print(f"mu shown {found.bound.mu}, {found.words}")


if __name__ == "__main__":
    main()
