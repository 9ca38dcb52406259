"""What can be proven about a model, and what the proof assumes.

``additive`` and ``multiplicative`` hold the paper's Theorems 1 and 2 beside the bounds that really hold, ``dpsgd``
the accounting of DP-SGD, ``composition`` several of these together. They rest on ``gaussian`` (exact Gaussian
differential privacy) and ``accounting``, and answer with a ``Guarantee``.
"""

from resperturb.privacy.additive import additive_guarantee, calibrate_additive
from resperturb.privacy.composition import compose, select_best
from resperturb.privacy.dpsgd import calibrate_dpsgd, dpsgd_guarantee
from resperturb.privacy.gaussian import rdp_rho
from resperturb.privacy.guarantee import WEAK_UP_TO, Assumption, Guarantee, nothing_proven
from resperturb.privacy.length import TrainingLength, training_length
from resperturb.privacy.multiplicative import (
    NoisyQuery,
    calibrate_multiplicative,
    multiplicative_guarantee,
    queries_afforded,
)

__all__ = [
    "WEAK_UP_TO",
    "Assumption",
    "Guarantee",
    "NoisyQuery",
    "TrainingLength",
    "additive_guarantee",
    "calibrate_additive",
    "calibrate_dpsgd",
    "calibrate_multiplicative",
    "compose",
    "dpsgd_guarantee",
    "multiplicative_guarantee",
    "nothing_proven",
    "queries_afforded",
    "rdp_rho",
    "select_best",
    "training_length",
]
