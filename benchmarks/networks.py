"""Measure what the noise costs networks of other libraries, whose junctions ``perturb`` finds in their source.

    python -m benchmarks.networks --save docs/results/speed-networks.json

takes about a quarter of an hour on two quiet cores. A loop by hand and our trainer are compared with the fastest loop
by hand without noise, by medians over paired rounds, as in ``make bench``.
"""

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path

from benchmarks.bench import RATIOS, Workload, run_bench, verdict

WAYS = (
    "plain_eager",
    "plain_channels_last",
    "plain_compiled",
    "additive_by_hand_channels_last",
    "additive_by_hand_compiled",
    "multiplicative_by_hand_channels_last",
    "multiplicative_by_hand_compiled",
    "trainer",
    "additive",
    "multiplicative",
)
NETWORKS = (  # with pixels per side and images per batch
    ("torchvision:resnet18", 64, 64),
    ("torchvision:resnet18", 224, 16),
    ("timm:vit_tiny_patch16_224", 224, 16),
)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--save", type=Path, help="write the result here as JSON")
    given = parser.parse_args(arguments)
    settings = [Workload(name, batch, size, threads=os.cpu_count() or 1, ways=WAYS) for name, size, batch in NETWORKS]
    result = run_bench(settings, rounds=given.rounds, minutes=given.minutes, growth=False, on_update=print)
    if given.save is not None:
        given.save.write_text(json.dumps(result, indent=2) + "\n")
    for network in result["networks"]:
        print(f"{network['model']}, {network['image_size']} pixels, batches of {network['batch_size']}")
        for name, ratio in network["ratios"].items():
            target, interval = RATIOS[name].target, network["intervals"][name]
            judged = "" if target is None else f"{target:.2f} {verdict(interval, target)}"
            memory = network["memory_ratios"][name]
            print(f"  {RATIOS[name].label}: {ratio:.3f} {interval} {judged}, memory {memory:.2f}")


if __name__ == "__main__":
    main()
