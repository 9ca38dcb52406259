"""The loss of the record: members have a smaller one (Yeom, Giacomelli, Fredrikson and Jha, 2018)."""

from resperturb.attacks.evidence import Evidence
from resperturb.attacks.registry import register_attack
from resperturb.attacks.signals import View, log_sigmoid
from resperturb.bounds.scores import Scores

YEOM = "Yeom et al. 2018 (arXiv:1709.01604)"


@register_attack("loss", YEOM, combinations=("mean logit", "mean log-probability"))
def loss(evidence: Evidence, view: View) -> Scores:
    """Score by the log-probability of the label."""
    return log_sigmoid(evidence.target(view)[:, 0])
