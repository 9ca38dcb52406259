"""Audit scikit-learn on a table: how much does a random forest reveal about its patients?

python examples/audit_sklearn.py --shadows 16 --out runs/forest
"""

import argparse

from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier

import resperturb as rp

parser = argparse.ArgumentParser()
parser.add_argument("--shadows", type=int, default=16)
parser.add_argument("--jobs", type=int, help="trainings at a time")
parser.add_argument("--out", default="runs/forest")
options = parser.parse_args()

features, labels = load_breast_cancer(return_X_y=True)  # one row per patient


def train(indices, seed):
    forest = RandomForestClassifier(random_state=seed)
    forest.fit(features[indices], labels[indices])
    return lambda rows: forest.predict_proba(features[rows])


found = rp.audit(train, labels=labels, shadows=options.shadows, jobs=options.jobs, out=options.out)
print(f"{found.strongest.full_name}: AUC {found.strongest.auc:.3f}; {found.epsilon_lower.words}")
print("see", found.report(f"{options.out}/report.html"))
