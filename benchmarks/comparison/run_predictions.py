"""resperturb on the saved predictions: every attack, and the bound on epsilon.

pip install . in the repository
"""

from shared import Job, finish_audit

import resperturb as rp

job = Job()
answers, members = job.probabilities, job.members
found = rp.audit_predictions(
    answers[job.target], members[job.target], job.labels, answers[job.shadows], members[job.shadows]
)
finish_audit(found)
