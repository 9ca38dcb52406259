"""Audit a model that is already trained: how much does a random forest reveal about its patients?

python examples/audit_model.py --shadows 16 --out runs/this-forest
"""

import argparse

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier

import resperturb as rp

parser = argparse.ArgumentParser()
parser.add_argument("--shadows", type=int, default=16, help="0: without shadow models")
parser.add_argument("--jobs", type=int, help="trainings at a time")
parser.add_argument("--out", default="runs/this-forest")
options = parser.parse_args()

features, labels = load_breast_cancer(return_X_y=True)  # one row per patient
training, held_out = np.array_split(np.random.default_rng(0).permutation(len(labels)), 2)


def train(indices, seed):
    forest = RandomForestClassifier(random_state=seed).fit(features[indices], labels[indices])
    return lambda rows: forest.predict_proba(features[rows])


mine = train(training, 1234)  # the model that you have
found = rp.audit_model(
    mine, members=training, nonmembers=held_out, labels=labels, features=features,
    recipe=train if options.shadows else None, shadows=options.shadows, jobs=options.jobs, out=options.out,
)  # fmt: skip
print(found.sentence, *found.caveats, sep="\n")
print("see", found.report(f"{options.out}/report.html"))
