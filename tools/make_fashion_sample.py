"""Cut the embedded sample from Fashion-MNIST: 400 training and 200 test images of each of the ten classes.

    python tools/make_fashion_sample.py FOLDER

FOLDER holds train.parquet and test.parquet of Fashion-MNIST, as on the Hugging Face hub (columns image, label). The
same folder always gives the same file, byte for byte.
"""

import argparse
import os
from pathlib import Path

import numpy as np

from resperturb.data import load_pair

PER_CLASS = {"train": 400, "test": 200}
DESTINATION = Path(__file__).parents[1] / "src" / "resperturb" / "data" / "embedded" / "fashion-sample.npz"


def main() -> None:
    """Write the sample."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="folder with train.parquet and test.parquet of Fashion-MNIST")
    rng = np.random.default_rng(0)
    arrays = {}
    for part, images in zip(PER_CLASS, load_pair(parser.parse_args().folder), strict=True):
        labels = images.labels.numpy()
        chosen = [rng.permutation(np.flatnonzero(labels == label))[: PER_CLASS[part]] for label in range(10)]
        order = rng.permutation(np.concatenate(chosen))
        arrays[f"x_{part}"] = images.images.numpy()[order, 0]
        arrays[f"y_{part}"] = labels[order].astype(np.uint8)
    DESTINATION.parent.mkdir(exist_ok=True)
    temporary = DESTINATION.with_suffix(".tmp.npz")
    np.savez_compressed(temporary, allow_pickle=False, **arrays)
    os.replace(temporary, DESTINATION)
    print(f"{DESTINATION}: {DESTINATION.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
