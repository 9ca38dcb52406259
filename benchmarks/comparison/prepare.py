"""Train the models that every tool gets, once, and keep their predictions.

    python benchmarks/comparison/prepare.py runs/comparison/models/models.npz

The table is scikit-learn's handwritten digits: 1,797 rows, 10 classes. A tenth of the rows is left out of all models
(the population). A fair coin per row decides whether a model is trained on it, and the next model is trained on the
other rows, as in Privacy Meter and this library. The partner of the target is set aside, and the other 16 are its
shadow models.
"""

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier

PAIRS, POPULATION = 9, 180


def main() -> None:
    """Train and keep."""
    path = Path(sys.argv[1])
    features, labels = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    population = np.zeros(len(labels), dtype=bool)
    population[rng.permutation(len(labels))[:POPULATION]] = True
    coins = rng.random((PAIRS, len(labels))) < 0.5
    members = np.stack([coins, ~coins], axis=1).reshape(2 * PAIRS, len(labels)) & ~population
    answers = []
    for seed, rows in enumerate(members):
        forest = RandomForestClassifier(max_depth=8, random_state=seed).fit(features[rows], labels[rows])
        answers.append(forest.predict_proba(features))
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, probabilities=answers, members=members, labels=labels, features=features)


if __name__ == "__main__":
    main()
