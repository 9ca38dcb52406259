"""Adversarial Robustness Toolbox: an attack model that is fitted on predictions of the shadow models.

pip install adversarial-robustness-toolbox packaging scikit-learn

The kind of attack model with the larger AUC counts. ART bounds no epsilon.
"""

import numpy as np
from art.attacks.inference.membership_inference import MembershipInferenceBlackBox
from art.estimators.classification import BlackBoxClassifier
from shared import Job, finish
from sklearn.metrics import roc_auc_score

job = Job()
use, y = job.candidates, job.labels
classifier = BlackBoxClassifier(lambda x: job.probabilities[job.target], job.features.shape[1:], 10)
into = [(number, use & job.members[number]) for number in job.shadows]
out = [(number, use & ~job.members[number]) for number in job.shadows]
found = {}
for kind in ("rf", "gb"):
    attack = MembershipInferenceBlackBox(classifier, attack_model_type=kind)
    attack.fit(
        y=np.concatenate([y[rows] for _, rows in into]),
        pred=np.concatenate([job.probabilities[number, rows] for number, rows in into]),
        test_y=np.concatenate([y[rows] for _, rows in out]),
        test_pred=np.concatenate([job.probabilities[number, rows] for number, rows in out]),
    )
    scores = attack.infer(None, y[use], pred=job.probabilities[job.target, use], probabilities=True)
    found[kind] = scores[:, 0]
truth = job.members[job.target, use]
best = max(found, key=lambda kind: roc_auc_score(truth, found[kind]))
finish(found[best], truth, attack=f"shadow attack model ({best})")
