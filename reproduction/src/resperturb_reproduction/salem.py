"""The attack of Salem et al. (2018), which the paper used, as an attack of the audit.

It is adaptive: the audit's shadow models are trained as the target is. The attack network is fitted on the three
highest probabilities that they give the candidates.
"""

from typing import Any

import numpy as np

from resperturb.attacks import Evidence, View, register_attack

REFERENCE = "Salem et al. 2018 (arXiv:1806.01246), adversary 1"
# The most rows that the attack network is fitted on, of members and of others each: those of the paper's shadow.
MOST = 12_500


@register_attack("salem", REFERENCE, needs=["each"])
def salem(evidence: Evidence, view: View) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Give the probability of membership that the attack network sees in each candidate.

    Raises:
        AttackFailedError: The network did not learn.
    """
    import torch

    from resperturb_reproduction.attack_network import fit_attack, membership

    assert evidence.each is not None
    tops, inside = evidence.each(view, "top")
    shadows, members = np.exp(tops[:, : evidence.count]), inside[:, : evidence.count]
    rng = np.random.default_rng(0)
    ins, outs = (torch.from_numpy(rng.permutation(shadows[members == side])[:MOST]) for side in (True, False))
    network, _ = fit_attack(ins, outs, seed=0)
    own = np.exp(evidence.answers[view.access].average("top", view.draws)[: evidence.count])
    return membership(network, torch.from_numpy(own.astype(np.float32)))
