"""What every script shares, in any environment: reading the models' predictions, and writing the results.

Not counted as glue: it is the same for all. The arguments of each script are the file of ``prepare.py``, the number
of the target, and the file to write.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Job:
    """The table, and predictions of target and shadow models; candidates are all rows but the population."""

    def __init__(self) -> None:
        self.path, self.target = Path(sys.argv[1]), int(sys.argv[2])
        with np.load(self.path) as kept:
            self.probabilities, self.members = kept["probabilities"], kept["members"]
            self.labels, self.features = kept["labels"], kept["features"]
        self.shadows = [number for number in range(len(self.members)) if number not in (self.target, self.target ^ 1)]
        self.population = ~self.members.any(axis=0)
        self.candidates = ~self.population
        rows = np.arange(len(self.labels))
        self.confidence = self.probabilities[:, rows, self.labels]  # of the true class: [models, rows]


def finish(scores: NDArray[Any], members: NDArray[Any], **said: float | str | None) -> None:
    """Write the scores of an attack, membership, and further output of the tool."""
    out = Path(sys.argv[3])
    np.savez_compressed(out.with_suffix(".npz"), scores=np.asarray(scores, float), members=np.asarray(members, bool))
    out.write_text(json.dumps(said) + "\n")


def finish_audit(found: Any) -> None:
    """Write the result of an audit by resperturb; the others are measured by the same metrics."""
    attacks = [
        {
            "name": one.full_name,
            "auc": one.auc,
            "tpr": {f"{at.fpr:g}": at.tpr for at in one.metrics["record"].tpr_at_fpr},
        }
        for one in found.fixed
    ]
    bound = found.epsilon_lower
    said = {"attack": found.strongest.full_name, "attacks": attacks, "epsilon": bound.epsilon, "bound": bound.method}
    out = Path(sys.argv[3])
    if found.folder is not None:
        from resperturb.auditing import open_scores

        kept = open_scores(found.folder).pooled(found.strongest.key, found.strongest.kind)
        members = np.repeat([True, False], [len(kept.members), len(kept.nonmembers)])
        scores = np.concatenate([kept.members, kept.nonmembers])
        np.savez_compressed(out.with_suffix(".npz"), scores=scores, members=members)
    out.write_text(json.dumps(said) + "\n")
