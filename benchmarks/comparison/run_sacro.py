"""SACRO-ML: LiRA on shadow models that it trains itself.

pip install sacroml torch

The shadow models are clones of the target, on halves that it draws. SACRO-ML bounds no epsilon.
"""

from sacroml.attacks.likelihood_attack import LIRAAttack
from sacroml.attacks.target import Target
from shared import Job, finish
from sklearn.ensemble import RandomForestClassifier

job = Job()
into, out = job.members[job.target], job.candidates & ~job.members[job.target]
x, y = job.features, job.labels
model = RandomForestClassifier(max_depth=8, random_state=job.target).fit(x[into], y[into])
target = Target(model, dataset_name="digits", X_train=x[into], y_train=y[into], X_test=x[out], y_test=y[out])
attack = LIRAAttack(n_shadow_models=16, mode="online-carlini", fix_variance=True, report_individual=True)
output = attack.attack(target)
found = attack.attack_metrics[0]["individual"]
finish(found["member_prob"], found["member"], attack="LiRA (online, fixed variance)")
