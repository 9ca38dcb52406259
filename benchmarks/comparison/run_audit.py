"""resperturb on the training itself: it randomises membership, trains 17 models, attacks and bounds.

pip install . in the repository
"""

import tempfile

from shared import Job, finish_audit
from sklearn.ensemble import RandomForestClassifier

import resperturb as rp

job = Job()


def train(indices, seed):
    forest = RandomForestClassifier(max_depth=8, random_state=seed).fit(job.features[indices], job.labels[indices])
    return lambda rows: forest.predict_proba(job.features[rows])


with tempfile.TemporaryDirectory() as folder:
    found = rp.audit(train, labels=job.labels, shadows=16, out=folder, seed=job.target, jobs=1)
    finish_audit(found)
