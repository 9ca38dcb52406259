"""What can be proven about a model, and what the proof assumes.

``additive`` and ``multiplicative`` hold the paper's Theorems 1 and 2 beside the bounds that really hold, ``dpsgd``
the accounting of DP-SGD, ``composition`` several of these together, ``rademacher`` Theorem 3. They rest on
``gaussian`` (exact Gaussian differential privacy) and ``accounting``, and answer with a ``Budget``.
"""

from resperturb.privacy.additive import additive_budget, calibrate_additive
from resperturb.privacy.budget import WEAK_UP_TO, Assumption, Budget
from resperturb.privacy.composition import compose, select_best
from resperturb.privacy.dpsgd import calibrate_dpsgd, dpsgd_budget
from resperturb.privacy.gaussian import rdp_rho
from resperturb.privacy.multiplicative import (
    Answers,
    calibrate_multiplicative,
    multiplicative_budget,
    queries_afforded,
)
from resperturb.privacy.rademacher import noise_ratio, rademacher
from resperturb.privacy.schedule import Schedule, schedule

__all__ = [
    "WEAK_UP_TO",
    "Answers",
    "Assumption",
    "Budget",
    "Schedule",
    "additive_budget",
    "calibrate_additive",
    "calibrate_dpsgd",
    "calibrate_multiplicative",
    "compose",
    "dpsgd_budget",
    "multiplicative_budget",
    "noise_ratio",
    "queries_afforded",
    "rademacher",
    "rdp_rho",
    "schedule",
    "select_best",
]
