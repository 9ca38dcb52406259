"""Compute what can be proven about a model, and state what the proof assumes.

``additive`` has the exact bound of input noise, ``dpsgd`` the accounting of DP-SGD, ``dp_head`` that of a DP
head, ``composition`` several of these together. They rest on ``gaussian`` (exact Gaussian differential privacy) and
``accounting``, and return a ``Guarantee``.
"""

from typing import TYPE_CHECKING

from resperturb.lazy import lazy_names
from resperturb.privacy.accounting import tail_delta
from resperturb.privacy.gaussian import epsilon_for_delta
from resperturb.privacy.guarantee import WEAK_UP_TO, Assumption, Guarantee, nothing_proven

if TYPE_CHECKING:
    from resperturb.privacy.additive import additive_guarantee, calibrate_additive
    from resperturb.privacy.composition import compose
    from resperturb.privacy.dpsgd import calibrate_dpsgd, dpsgd_guarantee
    from resperturb.privacy.length import TrainingLength, training_length

__all__ = [
    "WEAK_UP_TO",
    "Assumption",
    "Guarantee",
    "TrainingLength",
    "additive_guarantee",
    "calibrate_additive",
    "calibrate_dpsgd",
    "compose",
    "dpsgd_guarantee",
    "epsilon_for_delta",
    "nothing_proven",
    "tail_delta",
    "training_length",
]

# Results of audits need guarantees alone.
_ROOMS = {
    "additive": ["additive_guarantee", "calibrate_additive"],
    "composition": ["compose"],
    "dpsgd": ["calibrate_dpsgd", "dpsgd_guarantee"],
    "length": ["TrainingLength", "training_length"],
}
if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _ROOMS)
