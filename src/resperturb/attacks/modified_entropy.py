"""Modified entropy, which knows the label, with one threshold or one per class (Song and Mittal, 2021).

It is small for a confident right answer and large for a confident wrong one. Classes differ in how well they are
fitted, so the paper chooses a threshold for each, where shadow models' own members are best distinguished from
others. As a score: how far below the threshold of its class a record lies, in logarithms.
"""

import numpy as np
from numpy.typing import NDArray

from resperturb.attacks.evidence import ENTROPY_EDGES, Evidence
from resperturb.attacks.registry import register_attack
from resperturb.attacks.signals import View
from resperturb.bounds.arrays import Floats
from resperturb.bounds.scores import Scores

SONG = "Song and Mittal 2021 (arXiv:2003.10595)"


@register_attack("modified-entropy", SONG)
def modified_entropy(evidence: Evidence, view: View) -> Scores:
    """Score by how small the modified entropy is."""
    return -evidence.answers[view.access].average("modified_entropy", view.draws)[: evidence.count]


@register_attack("modified-entropy-by-class", SONG, needs=["shadows"])
def modified_entropy_by_class(evidence: Evidence, view: View) -> Scores:
    """Score by how far the modified entropy lies below the threshold of its class."""
    counts = evidence.known_shadows().entropies[view]
    thresholds = class_thresholds(counts.inside, counts.outside, ENTROPY_EDGES)
    values = -modified_entropy(evidence, view)
    return below_threshold(values, evidence.labels(view), thresholds)


def class_thresholds(inside: NDArray[np.int64], outside: NDArray[np.int64], edges: Floats) -> Floats:
    """Return for each class the edge below which most members and fewest others of shadow models lie.

    ``inside`` and ``outside`` count members and non-members of shadow models between two edges,
    ``[classes, edges + 1]``. A class that lacks either gets the threshold of all classes together.

    >>> class_thresholds(np.array([[5, 1, 0]]), np.array([[1, 0, 5]]), np.array([0.1, 1.0])).tolist()
    [1.0]
    """

    def best(ins: NDArray[np.int64], outs: NDArray[np.int64]) -> float:
        gained = np.cumsum(ins)[:-1] / max(1, int(ins.sum())) - np.cumsum(outs)[:-1] / max(1, int(outs.sum()))
        return float(edges[int(np.argmax(gained))])

    together = best(inside.sum(axis=0), outside.sum(axis=0))
    return np.array(
        [best(i, o) if i.sum() and o.sum() else together for i, o in zip(inside, outside, strict=True)],
        dtype=np.float64,
    )


def below_threshold(values: Floats, labels: NDArray[np.int64], thresholds: Floats) -> Scores:
    """Return ``log threshold - log value`` of each record's class: above 0 exactly where the paper says *member*.

    >>> below_threshold(np.array([0.5, 0.5]), np.array([0, 1]), np.array([1.0, 0.25])).round(2).tolist()
    [0.69, -0.69]
    """
    scores: Scores = np.log(thresholds[labels]) - np.log(np.maximum(values, ENTROPY_EDGES[0] / 2))
    return scores
