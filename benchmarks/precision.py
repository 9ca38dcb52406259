"""Measure the time that bf16 saves, and whether it changes accuracy and attack AUC, over seeds.

``python -m benchmarks.precision --steps`` measures only the time of a step, in both precisions, with and without
noise, in turns. Nothing else may run meanwhile.
``python -m benchmarks.precision`` trains ResNet8 in 32 bits and in bf16, with three seeds each: on 500 images of
the built-in sample with and without noise, and on 2,500 images of CIFAR-10 with noise. This takes about ten minutes
of one core, and resumes. The table has the difference of the means and the spread between seeds.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
import torch.nn.functional as F

from resperturb.bounds import auc
from resperturb.data import ImageSet
from resperturb.environment import environment
from resperturb.training import Progress, Steps, make_config, train
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
ROUNDS = 40


def losses(run: Run, images: ImageSet) -> list[float]:
    """Compute the loss of each image, of predictions averaged over draws."""
    config = run.config
    logits = predict(run.load_model(), images.images, mean=config.mean, std=config.std, draws=DRAWS, seed=1)
    return [float(one) for one in F.cross_entropy(logits, images.labels, reduction="none")]


def measured(setting: str, precision: str, seed: int, runs: Path) -> dict[str, float]:
    """Train once, or open the finished run; return the test accuracy and the AUC."""
    config = make_config(**SETTINGS[setting], seeded_noise=True, precision=precision, seed=seed)
    run = train(config, runs=runs, draws=DRAWS)
    inputs = load_inputs(run.config.data)
    members, others = (losses(run, images) for images in (inputs.train, inputs.test))
    return {"accuracy": run.result.test_accuracy, "auc": float(auc([-x for x in members], [-x for x in others]))}


def step_ratios(model: str, threads: int) -> dict[str, float]:
    """Measure steps on random images of 32 by 32 pixels in batches of 128; medians of ratios within a round."""
    torch.set_num_threads(threads)
    pixels = torch.randint(0, 256, (1280, 3, 32, 32), dtype=torch.uint8)
    images = ImageSet(pixels, torch.arange(1280) % 10, tuple("0123456789"), None, "random pixels")
    base = {"data": {"spec": "random"}, "model": model}
    steps = {
        (precision, noisy): Steps(make_config(**base, precision=precision, **(NOISE if noisy else {})), images)
        for precision in PRECISIONS
        for noisy in (False, True)
    }
    rounds: list[dict[tuple[str, bool], float]] = []
    for number in range(ROUNDS):
        rounds.append({})
        for key, of_key in sorted(steps.items(), reverse=bool(number % 2)):
            start = time.perf_counter()
            of_key.take(Progress(step=number % of_key.per_epoch))
            rounds[-1][key] = time.perf_counter() - start

    def ratio(over: tuple[str, bool], under: tuple[str, bool]) -> float:
        return statistics.median(one[over] / one[under] for one in rounds[5:])

    whole, half = PRECISIONS
    return {
        "seconds in 32 bits": statistics.median(one[whole, False] for one in rounds[5:]),
        "bf16 / 32 bits": ratio((half, False), (whole, False)),
        "additive / none, 32 bits": ratio((whole, True), (whole, False)),
        "additive / none, bf16": ratio((half, True), (half, False)),
    }


def main() -> None:
    """Train all, print the table and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs/precision"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--save", type=Path, default=Path("docs/results/precision.json"))
    parser.add_argument("--steps", action="store_true", help="measure the time of a step only")
    given = parser.parse_args()
    kept = json.loads(given.save.read_text()) if given.save.exists() else {}
    if given.steps:
        timed = {
            f"{model}, {threads} threads": step_ratios(model, threads)
            for model in ("resnet8", "resnet20")
            for threads in (1, torch.get_num_threads())
        }
        print(json.dumps(timed, indent=1))
        given.save.write_text(json.dumps({**kept, "steps": timed}, indent=1) + "\n")
        return
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
    given.save.write_text(json.dumps({**kept, **facts}, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()
