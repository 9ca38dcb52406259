"""Privacy Meter's repository, which is no package: RMIA and the one-run bound, on the saved predictions.

git clone https://github.com/privacytrustlab/ml_privacy_meter, and its folder on PYTHONPATH

The functions are those of attacks.py at commit a555fce and of audit.py at commit 039335c; they moved since. The kept
result is from a copy of these functions alone, not from a clone.
"""

import logging

from attacks import run_rmia, tune_offline_a
from audit import compute_abstain_attack_results
from shared import Job, finish

job = Job()
signals, population = job.confidence[:, job.candidates].T, job.confidence[:, job.population].T
members = job.members[:, job.candidates].T
offline_a = tune_offline_a(job.target, signals, population, members, logging.getLogger())[0]
scores = run_rmia(job.target, signals, population, members, len(job.shadows) // 2, offline_a)
truth = members[:, job.target]
epsilon = compute_abstain_attack_results(scores, truth)["eps_opt"]
finish(scores, truth, attack="RMIA (offline)", epsilon=float(epsilon), bound="one run, delta 0, best of all guesses")
