"""Attack every model of a setting, at every checkpoint, by the attack that was fixed in advance."""

import numpy as np

from resperturb.attacks.registry import ATTACKS
from resperturb.attacks.signals import View
from resperturb.auditing.assess import evidence_of
from resperturb.auditing.design import Design
from resperturb.auditing.fit import Models
from resperturb.bounds.arrays import Floats
from resperturb.bounds.audit_result import RECORD
from resperturb.frontiers.curve import LABELS_AUC, PRIMARY, WEIGHTS_AUC, leaks_of

# Fixed for every study, on the model as it is served, by its mean logit over the most draws.
ATTACK = "rmia-online"


def measured(
    models: Models, design: Design, stage: str, canary: str = ""
) -> tuple[Floats, dict[str, Floats], Floats]:
    """Measure accuracy and leaks of one checkpoint of a setting.

    Args:
        models: The models of the setting and their answers.
        design: A leave-one-out design without models that did not learn.
        stage: The checkpoint; the models themselves if empty.
        canary: The kind of canary that exposes the defence most.

    Returns:
        The accuracy of every target on records that it was not trained on, its leak by endpoint, and the score of
        every candidate under every target, ``[K, n]``.
    """
    candidates, targets = models.candidates, design.targets
    first = models.answers(int(targets[0]), stage)
    served = View("served", first["served"].averages[-1])
    weights = View("weights", 1) if "weights" in first else served
    labels = View("served", served.draws, "votes")
    attacks = {PRIMARY: (ATTACK, served), WEIGHTS_AUC: (ATTACK, weights), LABELS_AUC: ("label-only", labels)}
    scores = {name: np.zeros((len(targets), len(candidates))) for name in attacks}
    accuracy = np.zeros(len(targets))
    is_record = candidates.kinds == RECORD
    for row, (target, evidence) in enumerate(
        evidence_of(models, design, tuple(dict.fromkeys((served, weights))), stage)
    ):
        for name, (attack, view) in attacks.items():
            scores[name][row] = ATTACKS[attack].score(evidence, view)
        # The population is outside of every model.
        outside = np.pad(~design.members[target] & is_record, (0, candidates.population), constant_values=True)
        accuracy[row] = evidence.answers["served"].correct[outside].mean()
    members = design.members[targets]
    leaks = leaks_of(scores[PRIMARY], members, candidates.kinds, candidates.units, canary)
    for name in (WEIGHTS_AUC, LABELS_AUC):
        records = scores[name][:, is_record], members[:, is_record]
        leaks[name] = leaks_of(*records, candidates.kinds[is_record], candidates.units[is_record])[PRIMARY]
    return accuracy, leaks, scores[PRIMARY]
