"""jax-privacy: bounds on epsilon from scores. The user provides shadow models and the attack.

The attack: the target's confidence less that of shadow models trained without the row.

pip install jax-privacy
"""

import numpy as np
from jax_privacy.auditing import CanaryScoreAuditor
from shared import Job, finish

job = Job()
logits = np.log(job.confidence[:, job.candidates] + 1e-3) - np.log(1 - job.confidence[:, job.candidates] + 1e-3)
members = job.members[:, job.candidates]
outside = np.ma.masked_array(logits[job.shadows], members[job.shadows])
scores = logits[job.target] - outside.mean(axis=0).data
truth = members[job.target]
auditor = CanaryScoreAuditor(scores[truth], scores[~truth])
epsilon = auditor.epsilon_one_run(0.05, 1e-5)
finish(scores, truth, attack="one's own (difference to shadow models)", epsilon=epsilon, bound="one_run, Bonferroni")
