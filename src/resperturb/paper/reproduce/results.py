"""What came out: one JSON for each experiment, and how it stands to what the paper printed.

**The rule of a row.** A measured mean *agrees* with a printed number if they differ by no more than
``TOLERANCE`` + t e sqrt(1 + 1/n), with n seeds and e the error of one measurement: the paper's number is one
measurement too. A row agrees if all numbers that the paper printed of it agree; it is *undecided* where that bound is
wider than ``WIDEST``, which says more about the spread than about the paper. Where settings or data are reduced,
*at reduced settings* goes with it, because neither agreement nor difference then says much about the paper's own.

**The rule of a claim.** That one row is below another *holds* if the difference of the means is larger than t times
its error, *fails* if it is so in the other direction, and is *open* in between.

t is Student's 97.5% quantile, for differences by Welch's degrees of freedom. Where a row was trained only once it is
1.96 and *one seed* is added: the error then knows of the records that were sampled, not of the luck of the training.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resperturb.errors import UsageError
from resperturb.files import write_json
from resperturb.paper.reproduce.declarations import BY_ID, Experiment
from resperturb.paper.reproduce.presets import PRESETS, Preset
from resperturb.training import environment

SCHEMA = 1
TOLERANCE = 0.01
WIDEST = 0.05
NOT_COMPARED = "smoke test only: no comparison"
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


def verdict(paper: dict[str, float | None] | None, measured: dict[str, Any], preset: str, reduced: bool) -> str:
    """Say how a measured row stands to the printed one.

    >>> one = {"mean": 0.6, "error": 0.005, "values": [0.6, 0.6, 0.6]}
    >>> verdict({"auc": 0.61}, {"auc": one}, "paper", False), verdict({"auc": 0.7}, {"auc": one}, "paper", False)
    ('agrees', 'differs: AUC 0.600 against 0.700')
    >>> verdict({"auc": 0.61}, {"auc": {**one, "values": [0.6]}}, "cpu", True)
    'agrees at reduced settings (one seed)'
    >>> verdict({"auc": 0.61}, {"auc": {**one, "error": 0.05}}, "paper", False)
    'undecided: only a difference of more than 0.26 in AUC would have been seen'
    """
    if preset == "quick":
        return NOT_COMPARED
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
    words = _circumstances(reduced, *(measured[key] for key in printed))
    if off:
        return f"differs{words}: {', '.join(off)}"
    tolerances = {PRINTED[key]: tolerance(measured[key]) for key in printed}
    vague = [f"{within:.2f} in {name}" for name, within in tolerances.items() if within > WIDEST]
    if vague:
        return f"undecided{words}: only a difference of more than {', '.join(vague)} would have been seen"
    return f"agrees{words}"


def tolerance(spread: dict[str, Any]) -> float:
    """By how much a printed number may differ from a measured mean and still agree.

    >>> [round(tolerance({"error": 0.01, "values": values}), 4) for values in ([0.5], [0.5, 0.5, 0.5])]
    [0.0377, 0.0597]
    """
    seeds = len(spread["values"])
    return TOLERANCE + _quantile(seeds - 1) * float(spread["error"]) * math.sqrt(1 + 1 / seeds)


def claim_verdict(lower: dict[str, Any] | None, higher: dict[str, Any] | None, reduced: bool) -> str:
    """Say whether the one is below the other.

    >>> low, high = ({"mean": m, "error": 0.01, "values": [m, m, m]} for m in (0.5, 0.7))
    >>> [claim_verdict(*pair, False) for pair in ((low, high), (high, low), (low, low), (low, None))]
    ['holds', 'fails', 'open', 'not measured']
    >>> claim_verdict(low, {**high, "values": [0.7]}, True)
    'holds at reduced settings (one seed)'
    """
    if lower is None or higher is None:
        return "not measured"
    variances = [float(s["error"]) ** 2 / len(s["values"]) for s in (lower, higher)]
    several = [
        (v, len(s["values"]) - 1) for v, s in zip(variances, (lower, higher), strict=True) if len(s["values"]) > 1
    ]
    freedom = sum(variances) ** 2 / sum(v**2 / n for v, n in several) if any(v for v, _ in several) else 0.0
    difference = higher["mean"] - lower["mean"]
    words = _circumstances(reduced, lower, higher)
    if abs(difference) <= _quantile(freedom) * math.sqrt(sum(variances)):
        return "open" + words
    return ("holds" if difference > 0 else "fails") + words


def _quantile(freedom: float) -> float:
    """Student's 97.5% quantile; that of the normal distribution for the sampling error of one training."""
    from scipy.stats import norm, t

    return float(t.ppf(0.975, freedom) if freedom > 0 else norm.ppf(0.975))


def _circumstances(reduced: bool, *spreads: dict[str, Any]) -> str:
    once = any(len(spread["values"]) == 1 for spread in spreads)
    return (" at reduced settings" if reduced else "") + (" (one seed)" if once else "")


def save(folder: Path, result: dict[str, Any]) -> Path:
    """Keep a result; one of a better preset is not overwritten by one of a lesser."""
    path = folder / f"{result['id']}.json"
    refuse_downgrade(folder, result["id"], result["preset"])
    write_json(path, result)
    return path


def has_more(folder: Path, result: dict[str, Any]) -> bool:
    """Whether the result that is there was made at the same settings and has more seeds or audits than this one."""
    present = load(folder, result["id"])
    if present is None or present["preset"] != result["preset"] or _sizes(present) != _sizes(result):
        return False
    return any(ours < theirs for ours, theirs in zip(_evidence(result), _evidence(present), strict=True))


def _sizes(result: dict[str, Any]) -> list[Any]:
    return [data["reduced"] for data in result.get("data", ())]


def _evidence(result: dict[str, Any]) -> tuple[int, int]:
    rows = result.get("rows", ())
    return sum(len(row.get("seeds", ())) for row in rows), sum("auc" in (row.get("audit") or {}) for row in rows)


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
    return content if whole and content.keys() >= {"id", "title", "kind", "notes", "environment"} else None


def load_all(folder: Path) -> dict[str, dict[str, Any]]:
    """Read every result in a folder, by the ID of its experiment."""
    found = {name: load(folder, name) for name in BY_ID}
    return {name: result for name, result in found.items() if result is not None}
