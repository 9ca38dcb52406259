"""What is read off trained models: accuracies, the three attacks, and their spread over seeds."""

import json
import math
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resperturb.audits import Settings, attack_by_shadow, audit_run, load_scores, measures, roc_points, save_outcome
from resperturb.errors import ResperturbError
from resperturb.files import write_json
from resperturb.paper.reproduce.declarations import DATA_TITLES, PAPER_IDC_TRAINING_IMAGES, Size
from resperturb.paper.reproduce.presets import STAND_IN, Preset, reduction
from resperturb.training import DataConfig, Run, fingerprint, load_inputs

# Of what is kept in a run. To be raised with every change of what an attack or the audit finds.
ATTACK_SCHEMA = 2
AUDIT_SCHEMA = 2
ROC_POINTS = 120


@dataclass(frozen=True)
class Spread:
    """A number over seeds: its mean and how far a single measurement of it is off.

    ``error`` is the standard deviation over seeds, or with one seed the sampling error of that measurement.
    """

    values: tuple[float, ...]
    error: float

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return statistics.fmean(self.values)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        several = len(self.values) > 1
        return {
            "mean": self.mean,
            "error": self.error,
            "error_is": "standard deviation over seeds" if several else "sampling error of one training",
            "values": list(self.values),
        }


def spread(values: list[float], sampling_error: float) -> Spread:
    """Summarise what several seeds gave.

    >>> spread([0.5, 0.7], 0.01).mean, round(spread([0.5, 0.7], 0.01).error, 3), spread([0.5], 0.01).error
    (0.6, 0.141, 0.01)
    """
    return Spread(tuple(values), statistics.stdev(values) if len(values) > 1 else sampling_error)


def measure_attack(name: str, target: Run, shadow: Run) -> dict[str, Any]:
    """Attack the target with what the shadow teaches, once: the outcome is kept in the target's run.

    ``{"why": ...}`` stands for an attack that could not be made, as with a shadow that learned nothing.
    """
    key = f"reproduce-{name}"
    asked = {"schema": ATTACK_SCHEMA, "shadow": shadow.config.digest}
    kept = _kept(target.path / "attacks" / f"{key}.json", **asked)
    if kept is not None:
        try:
            return {**kept, "roc": _roc(target, key)}
        except ResperturbError:
            pass  # its scores are damaged: attack again
    try:
        scores, learning_rate = attack_by_shadow(target, shadow)
    except ResperturbError as error:
        return {"why": str(error)}
    summary = {**asked, "attack": name, "attack_learning_rate": learning_rate, **measures(scores)}
    save_outcome(target.path, key, scores, summary)
    return {**summary, "roc": _roc(target, key)}


def measure_audit(target: Run, preset: Preset) -> dict[str, Any]:
    """Audit the target, once, and keep what the strongest attack on its records found; the shadows are trained."""
    path = target.path / "reproduce-audit.json"
    shadows = preset.shadows_of(target.config.method.private)
    asked = {
        "schema": AUDIT_SCHEMA,
        "shadows": shadows,
        "draws": list(preset.draws),
        "resamples": preset.resamples,
    }
    kept = _kept(path, **asked)
    if kept is not None:
        return kept
    settings = Settings(shadows=shadows, jobs=1, draws=preset.draws, resamples=preset.resamples)
    try:
        found = audit_run(target, settings)
    except ResperturbError as error:
        return {"why": str(error)}
    strongest = max(found["attacks"], key=lambda entry: float(entry["by_kind"]["record"]["auc"]))
    record = strongest["by_kind"]["record"]
    low = record["tpr_at_fpr"].get("0.01", {})
    summary = {
        **asked,
        "attacks": len(found["attacks"]),
        "strongest": f"{strongest['attack']}, {strongest['view']}",
        "auc": record["auc"],
        "auc_interval": record["auc_interval"],
        "tpr_at_1_percent_fpr": low.get("tpr"),
        "hindsight": "the best of all attacks of the audit, found in hindsight, so its AUC is a little too high",
        "epsilon_lower": {
            key: found["epsilon_lower"][key] for key in ("epsilon", "attack", "confidence", "delta", "design")
        }
        | {"refusal": found["epsilon_lower"].get("refusal")},
        "epsilon_upper": str(found["epsilon_upper"]["epsilon"]),
        "verdict": found["verdict"],
    }
    write_json(path, summary)
    return summary


def kept_audit(target: Run) -> dict[str, Any] | None:
    """The audit that was made of a target, if one was."""
    return _kept(target.path / "reproduce-audit.json", schema=AUDIT_SCHEMA)


def describe_data(name: str, size: Size, preset: Preset) -> dict[str, Any]:
    """Say on which images, how many of them, and how far that is from the paper."""
    scale = preset.scale(name, size)
    inputs = load_inputs(DataConfig(spec=scale.spec, limit=scale.limit))
    if scale.spec == STAND_IN != name:
        shown = f"fashion-sample in place of {DATA_TITLES[name]}"
    elif name == "idc" and len(inputs.train) < PAPER_IDC_TRAINING_IMAGES:
        shown = "IDC subset"
    else:
        shown = DATA_TITLES[name]
    reduced = [reduction(name, size, preset)]
    if shown == "IDC subset":
        reduced.append("a subset of the patches")
    return {
        "name": name,
        "shown": shown,
        "spec": scale.spec,
        "fingerprint": fingerprint(inputs),
        "training_images": len(inputs.train),
        "a_quarter": len(inputs.quarters.target_train),
        "test_images": len(inputs.test),
        "classes": inputs.train.num_classes,
        "groups": None if inputs.train.groups is None else len(set(inputs.train.groups)),
        "epochs": scale.epochs,
        "dpsgd_epochs": scale.dpsgd_epochs,
        "batch_size": scale.batch_size,
        "dpsgd_batch_size": scale.dpsgd_batch_size,
        "reduced": ", ".join(filter(None, reduced)),
    }


def accuracy_error(accuracy: float, images: int) -> float:
    """Give the standard error of an accuracy that was measured on so many images.

    >>> round(accuracy_error(0.5, 10_000), 4)
    0.005
    """
    return math.sqrt(max(accuracy * (1 - accuracy), 1 / (4 * images)) / images)


def auc_error(attack: dict[str, Any]) -> float:
    """Give the standard error of an AUC from its 95% interval."""
    low, high = attack["auc_interval"]
    return float(high - low) / (2 * 1.96)


def _roc(target: Run, key: str) -> dict[str, list[float]]:
    fpr, tpr = roc_points(load_scores(target.path, key), ROC_POINTS)
    return {"fpr": [round(x, 5) for x in fpr], "tpr": [round(x, 5) for x in tpr]}


def _kept(path: Path, **asked: Any) -> dict[str, Any] | None:
    """An outcome that was kept and answers what is asked; a damaged one is as good as none."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    if not isinstance(content, dict):
        return None
    return content if all(content.get(key) == value for key, value in asked.items()) else None
