import numpy as np

from resperturb.attacks.evidence import Evidence
from resperturb.attacks.registry import register_attack
from resperturb.attacks.signals import View


@register_attack("calibrated", "Watson et al. 2022 (arXiv:2111.08440)", needs=["shadows"])
def calibrated(evidence: Evidence, view: View) -> np.ndarray:
    """How much surer the target is than models that were not trained on the record."""
    _, without_it = evidence.moments(view)
    return evidence.target(view)[:, 0] - without_it.mean[:, 0]
