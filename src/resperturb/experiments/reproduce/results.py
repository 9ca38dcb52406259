"""What came out: one JSON for each experiment, and how it stands to what the paper printed.

**The rule of a row.** A measured mean *agrees* with a printed number if they differ by no more than
``TOLERANCE`` + 2 e sqrt(1 + 1/n), with n seeds and e the error of one measurement: the paper's number is one
measurement too. A row agrees if all numbers that the paper printed of it agree. At any preset but ``paper`` the words
*at reduced settings* go with it, because neither agreement nor difference then says much about the paper's own.

**The rule of a claim.** That one row is below another *holds* if the difference of the means is larger than twice its
error, *fails* if it is so in the other direction, and is *open* in between. Where a row was trained only once, *one
seed* is added: the error then knows of the records that were sampled, not of the luck of the training.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resperturb.errors import UsageError
from resperturb.experiments.reproduce.declarations import BY_ID, Experiment
from resperturb.experiments.reproduce.presets import PRESETS, Preset
from resperturb.files import write_json
from resperturb.training.run import environment

SCHEMA = 1
TOLERANCE = 0.01
PRINTED = {"auc": "AUC", "train_accuracy": "training accuracy", "test_accuracy": "test accuracy"}


@dataclass(frozen=True, eq=False)
class Measured:
    """A result as it is kept, and whatever else it takes to draw it."""

    result: dict[str, Any]
    drawable: Any = None


def heading(experiment: Experiment, preset: Preset) -> dict[str, Any]:
    """Say what every result begins with."""
    return {
        "schema": SCHEMA,
        "id": experiment.id,
        "title": experiment.title,
        "place": experiment.place,
        "kind": experiment.kind,
        "preset": preset.name,
        "preset_means": preset.about,
        "notes": list(experiment.notes),
        "environment": environment(),
    }


def verdict(paper: dict[str, float | None] | None, measured: dict[str, Any], preset: str) -> str:
    """Say how a measured row stands to the printed one.

    >>> one = {"mean": 0.6, "error": 0.005, "values": [0.6]}
    >>> verdict({"auc": 0.61}, {"auc": one}, "paper"), verdict({"auc": 0.7}, {"auc": one}, "paper")
    ('agrees', 'differs: AUC 0.600 against 0.700')
    >>> verdict({"auc": 0.61}, {"auc": one}, "cpu")
    'agrees at reduced settings'
    """
    if preset == "quick":
        return "smoke test only: no comparison"
    printed = {key: value for key, value in (paper or {}).items() if value is not None}
    if not printed:
        return "the paper prints no number"
    missing = [PRINTED[key] for key in printed if measured.get(key) is None]
    if missing:
        return f"not measured: {', '.join(missing)}"
    off = [
        f"{PRINTED[key]} {measured[key]['mean']:.3f} against {value:.3f}"
        for key, value in printed.items()
        if abs(measured[key]["mean"] - value) > tolerance(measured[key])
    ]
    words = "" if preset == "paper" else " at reduced settings"
    return f"differs{words}: {', '.join(off)}" if off else f"agrees{words}"


def tolerance(spread: dict[str, Any]) -> float:
    """By how much a printed number may differ from a measured mean and still agree.

    >>> round(tolerance({"error": 0.01, "values": [0.5, 0.5]}), 4)
    0.0345
    """
    return TOLERANCE + 2 * float(spread["error"]) * math.sqrt(1 + 1 / len(spread["values"]))


def claim_verdict(lower: dict[str, Any] | None, higher: dict[str, Any] | None) -> str:
    """Say whether the one is below the other.

    >>> low, high = ({"mean": m, "error": 0.01, "values": [m, m]} for m in (0.5, 0.7))
    >>> claim_verdict(low, high), claim_verdict(high, low), claim_verdict(low, low), claim_verdict(low, None)
    ('holds', 'fails', 'open', 'not measured')
    >>> claim_verdict(low, {**high, "values": [0.7]})
    'holds (one seed)'
    """
    if lower is None or higher is None:
        return "not measured"
    error = math.hypot(*(s["error"] / math.sqrt(len(s["values"])) for s in (lower, higher)))
    difference = higher["mean"] - lower["mean"]
    once = " (one seed)" if 1 in (len(lower["values"]), len(higher["values"])) else ""
    if abs(difference) <= 2 * error:
        return "open" + once
    return ("holds" if difference > 0 else "fails") + once


def save(folder: Path, result: dict[str, Any]) -> Path:
    """Keep a result; one of a better preset is not overwritten by one of a lesser."""
    path = folder / f"{result['id']}.json"
    refuse_downgrade(folder, result["id"], result["preset"])
    write_json(path, result)
    return path


def refuse_downgrade(folder: Path, experiment: str, preset: str) -> None:
    """Refuse to replace a result by one of a lesser preset."""
    present = load(folder, experiment)
    if present is not None and PRESETS[present["preset"]].rank > PRESETS[preset].rank:
        raise UsageError(
            f"{folder / experiment}.json is a result of preset {present['preset']}, which is better than {preset}; "
            "choose another --results folder, or delete it."
        )


def load(folder: Path, experiment: str) -> dict[str, Any] | None:
    """Read a result; None if there is none, or it is damaged or of another version of this program."""
    try:
        content = json.loads((folder / f"{experiment}.json").read_text())
    except (OSError, ValueError):
        return None
    whole = isinstance(content, dict) and content.get("schema") == SCHEMA and content.get("preset") in PRESETS
    return content if whole else None


def load_all(folder: Path) -> dict[str, dict[str, Any]]:
    """Read every result in a folder, by the ID of its experiment."""
    found = {name: load(folder, name) for name in BY_ID}
    return {name: result for name, result in found.items() if result is not None}
