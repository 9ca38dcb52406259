"""Label-only attack: how often the label is predicted under noise or augmentation (Choquette-Choo et al., 2021).

A model is more robust around the records that it was trained on. The votes are those of the model's own noise or of
augmented queries.
"""

from resperturb.attacks.evidence import Evidence
from resperturb.attacks.registry import register_attack
from resperturb.attacks.signals import View
from resperturb.bounds.scores import Scores

CHOQUETTE = "Choquette-Choo et al. 2021 (arXiv:2007.14321)"


@register_attack("label-only", CHOQUETTE, combinations=("votes",))
def label_only(evidence: Evidence, view: View) -> Scores:
    """Score by the share of answers that are right."""
    shares: Scores = evidence.answers[view.access].correct[: evidence.count, : view.draws].mean(axis=1)
    return shares
