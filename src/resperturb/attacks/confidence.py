"""How sure the model is, whatever it says: highest probability and entropy (Salem et al., 2018)."""

from resperturb.attacks.evidence import Evidence
from resperturb.attacks.registry import register_attack
from resperturb.attacks.signals import View
from resperturb.bounds.scores import Scores

SALEM = "Salem et al. 2018 (arXiv:1806.01246)"


@register_attack("confidence", SALEM)
def confidence(evidence: Evidence, view: View) -> Scores:
    """Score by the log-probability of the most probable class."""
    return evidence.answers[view.access].average("top", view.draws)[: evidence.count, 0]


@register_attack("entropy", SALEM)
def entropy(evidence: Evidence, view: View) -> Scores:
    """Score by how small the entropy of the answer is."""
    return -evidence.answers[view.access].average("entropy", view.draws)[: evidence.count]
