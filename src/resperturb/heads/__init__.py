"""Differentially private heads on public features: linear classifiers with a guarantee per record or per patient.

``dp_head`` trains one on arrays, and ``DPHead`` is the same as an estimator of scikit-learn. ``gradient`` and
``one_shot`` are the two mechanisms, ``rows`` what both of them may use of the data.
"""

from resperturb.heads.estimator import DPHead, dp_head
from resperturb.heads.gradient import Descent
from resperturb.heads.one_shot import OneShot
from resperturb.heads.release import Release
from resperturb.heads.worst_case import HeadAudit, audit_head

__all__ = ["DPHead", "Descent", "HeadAudit", "OneShot", "Release", "audit_head", "dp_head"]
