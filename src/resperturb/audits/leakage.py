"""How much an attack finds: for records and each kind of canary, and for those who are most exposed."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resperturb.attacks.lira import separation
from resperturb.attacks.moments import Moments
from resperturb.auditing.metrics import auc, auc_interval, balanced_accuracy, tpr_at_fpr
from resperturb.auditing.scores import Scores
from resperturb.audits.candidates import RECORD, Candidates

CANARIES = "canaries"
# The share of candidates that are looked at as the most exposed, and the fewest of them.
EXPOSED_SHARE, FEWEST_EXPOSED = 0.02, 20


def measured(ins: Scores, outs: Scores, confidence: float, resamples: int) -> dict[str, Any] | None:
    """Measure an attack by the scores of members and non-members; nothing if there are none of either.

    >>> found = measured(np.array([2.0, 3.0]), np.array([1.0, 2.0]), confidence=0.95, resamples=100)
    >>> found["auc"], found["balanced_accuracy"]
    (0.875, 0.75)
    """
    if not (ins.size and outs.size):
        return None
    points = tpr_at_fpr(ins, outs, confidence=confidence, resamples=resamples)
    return {
        "auc": auc(ins, outs),
        "auc_interval": list(auc_interval(ins, outs, confidence=confidence, resamples=resamples)),
        "balanced_accuracy": balanced_accuracy(ins, outs),
        "tpr_at_fpr": {f"{point.fpr:g}": point.to_dict() for point in points},
        "members": int(ins.size),
        "nonmembers": int(outs.size),
    }


def kinds(asked: Candidates) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Give each kind of candidate and who is of it; all canaries together too, where there are several kinds."""
    present = list(dict.fromkeys(asked.kinds.tolist()))
    for kind in present:
        yield kind, asked.kinds == kind
    if len([kind for kind in present if kind != RECORD]) > 1:
        yield CANARIES, asked.kinds != RECORD


def by_kind(
    scores: Scores, members: NDArray[np.bool_], asked: Candidates, confidence: float, resamples: int
) -> dict[str, dict[str, Any]]:
    """Measure an attack on every kind of candidate that has members and non-members."""
    found = {
        kind: measured(scores[chosen & members], scores[chosen & ~members], confidence, resamples)
        for kind, chosen in kinds(asked)
    }
    return {kind: measures for kind, measures in found.items() if measures is not None}


def exposed(
    scores: Scores,
    inside: Moments,
    outside: Moments,
    members: NDArray[np.bool_],
    asked: Candidates,
    confidence: float,
    resamples: int,
) -> dict[str, Any]:
    """Measure an attack on the candidates that shadows tell apart best, and name the worst of them.

    They are chosen by the shadows alone, without a look at the target: what is measured on them is no hindsight.
    """
    distance = separation(inside, outside)
    count = min(len(asked), max(FEWEST_EXPOSED, int(EXPOSED_SHARE * len(asked))))
    order = np.argsort(-distance, kind="stable")
    chosen = np.isin(np.arange(len(asked)), order[:count])
    worst = int(order[0])
    return {
        "chosen": f"the {count} candidates of which shadows with them are surer than those without, by most",
        "metrics": measured(scores[chosen & members], scores[chosen & ~members], confidence, resamples),
        "worst": {
            "candidate": worst,
            "kind": str(asked.kinds[worst]),
            "training_image": int(asked.indices[worst]) if worst < len(asked.indices) else None,
            "separation": float(distance[worst]),
            "member": bool(members[worst]),
            "score": float(scores[worst]),
            "score_rank_from_the_top": int((scores > scores[worst]).sum()) + 1,
        },
    }
