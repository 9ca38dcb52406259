"""Differentially private heads on public features: linear classifiers with a guarantee per record or per patient.

``dp_head`` trains one on arrays, and ``DPHead`` is the same as an estimator of scikit-learn. ``gradient`` and
``one_shot`` are the two mechanisms, ``rows`` what both of them may use of the data.
"""

from typing import TYPE_CHECKING

from resperturb.heads.gradient import Descent
from resperturb.heads.one_shot import OneShot
from resperturb.heads.release import Release
from resperturb.lazy import lazy_names

if TYPE_CHECKING:
    from resperturb.heads.estimator import DPHead, dp_head
    from resperturb.heads.worst_case import HeadAudit, audit_head

HEADS: dict[str, type[Descent] | type[OneShot]] = {"gradient": Descent, "one-shot": OneShot}

__all__ = ["DPHead", "Descent", "HeadAudit", "OneShot", "Release", "audit_head", "dp_head"]

# These need scikit-learn, which takes a second to load, and a training of a network does without.
_LATER = {"estimator": ["DPHead", "dp_head"], "worst_case": ["HeadAudit", "audit_head"]}
if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _LATER)
