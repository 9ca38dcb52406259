"""Attack every model of a setting, at every checkpoint, by the attack that was fixed in advance."""

import numpy as np

from resperturb.attacks.registry import ATTACKS
from resperturb.attacks.signals import View
from resperturb.auditing.assess import evidence_of
from resperturb.auditing.design import Design
from resperturb.auditing.fit import Models
from resperturb.bounds.arrays import Floats
from resperturb.bounds.audit_result import RECORD
from resperturb.frontiers.curve import LABELS_AUC, PRIMARY, WEIGHTS_AUC, Curve, Setting, leaks_of
from resperturb.privacy import Guarantee

# Fixed for every study, on the model as it is served, by its mean logit over the most draws.
ATTACK = "rmia-online"


def curve_of(setting: Setting, models: Models, design: Design, guarantee: Guarantee) -> tuple[Curve, Floats]:
    """Measure accuracy and leaks of a setting at every checkpoint.

    Args:
        setting: The setting.
        models: Its models and their answers.
        design: A leave-one-out design without models that did not learn.
        guarantee: What is proven of the final model.

    Returns:
        The curve, and the score of every candidate under every final model, ``[K, n]``.
    """
    stages = models.stages() or [""]
    found = [_measured(models, design, stage, setting.canary) for stage in stages]
    accuracy, leaks, scores = zip(*found, strict=True)
    claimed = bool(np.isfinite(guarantee.claimed_epsilon))
    common = [name for name in leaks[-1] if all(name in one for one in leaks)]
    curve = Curve(
        **vars(setting),
        targets=design.targets,
        stages=tuple(stage or "final" for stage in stages),
        accuracy=np.array(accuracy),
        leaks={name: np.array([one[name] for one in leaks]) for name in common},
        epsilon=guarantee.epsilon if np.isfinite(guarantee.epsilon) and (setting.formal or claimed) else None,
        claimed=claimed,
    )
    return curve, scores[-1]


def _measured(models: Models, design: Design, stage: str, canary: str) -> tuple[Floats, dict[str, Floats], Floats]:
    """Measure one checkpoint: accuracy of every target on records outside of it, its leaks, and all scores."""
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
