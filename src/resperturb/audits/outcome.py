"""What an attack found: its scores on disk, and the measures read off them."""

import io
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from resperturb.auditing.metrics import auc, auc_interval, balanced_accuracy, precision_recall, roc_curve, tpr_at_fpr
from resperturb.auditing.scores import Scores
from resperturb.errors import ResperturbError
from resperturb.files import write_bytes, write_json

THRESHOLDS = (0.5, 0.6, 0.7, 0.8)


@dataclass(frozen=True, eq=False)
class MembershipScores:
    """One score a record, higher for those taken to be members."""

    members: Scores
    nonmembers: Scores


def measures(scores: MembershipScores, thresholds: tuple[float, ...] = THRESHOLDS) -> dict[str, Any]:
    """Measure an attack whose scores are probabilities of membership.

    ``accuracy`` is that of the paper's attacker, who says *member* from probability one half on.

    >>> found = measures(MembershipScores(np.array([0.9, 0.6]), np.array([0.1, 0.6])))
    >>> found["auc"], found["accuracy"]
    (0.875, 0.75)
    """
    ins, outs = scores.members, scores.nonmembers
    return {
        "auc": auc(ins, outs),
        "auc_interval": list(auc_interval(ins, outs)),
        "accuracy": balanced_accuracy(ins, outs, threshold=0.5),
        "tpr_at_fpr": {f"{point.fpr:g}": point.to_dict() for point in tpr_at_fpr(ins, outs)},
        "thresholds": [
            {"threshold": threshold, "precision": None if np.isnan(precision) else precision, "recall": recall}
            for threshold, (precision, recall) in zip(
                thresholds, precision_recall(ins, outs, thresholds), strict=True
            )
        ],
        "members": int(ins.size),
        "nonmembers": int(outs.size),
    }


def roc_points(scores: MembershipScores, most: int = 400) -> tuple[list[float], list[float]]:
    """Give the ROC curve in at most so many points, its low end kept whole.

    >>> roc_points(MembershipScores(np.array([1.0]), np.array([0.0])))
    ([0.0, 0.0, 1.0], [0.0, 1.0, 1.0])
    """
    curve = roc_curve(scores.members, scores.nonmembers)
    count = len(curve.fpr)
    if count <= most:
        chosen = np.arange(count)
    else:
        spread = np.linspace(0, count - 1, most // 2)
        low_end = np.geomspace(1, count - 1, most // 2)
        chosen = np.unique(np.concatenate([[0], spread, low_end]).round().astype(int))
    return curve.fpr[chosen].tolist(), curve.tpr[chosen].tolist()


def save_outcome(folder: Path, name: str, scores: MembershipScores, summary: dict[str, Any]) -> None:
    """Keep an attack's scores and summary in the folder of a run."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, members=scores.members, nonmembers=scores.nonmembers)
    write_bytes(folder / "attacks" / f"{name}.npz", buffer.getvalue())
    write_json(folder / "attacks" / f"{name}.json", summary)


def load_scores(folder: Path, name: str) -> MembershipScores:
    """Read the scores of an attack back."""
    path = folder / "attacks" / f"{name}.npz"
    try:
        with np.load(path, allow_pickle=False) as file:
            return MembershipScores(file["members"], file["nonmembers"])
    except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ResperturbError(f"{path} cannot be read ({error}); run the attack again.") from error
