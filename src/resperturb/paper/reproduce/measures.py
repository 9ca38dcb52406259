"""What is read off trained models: accuracies, and the attacks on them. Each is measured once and kept in the run."""

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from resperturb.audits import Settings, attack_by_shadow, audit_run, load_scores, measures, roc_points, save_outcome
from resperturb.errors import ResperturbError
from resperturb.files import read_json, write_json
from resperturb.paper.reproduce.declarations import DATA_TITLES, PAPER_IDC_TRAINING_IMAGES, Size
from resperturb.paper.reproduce.presets import STAND_IN, Preset, reduction
from resperturb.paper.reproduce.results import AuditSummary, DataUsed, Roc, Threshold
from resperturb.perturbation import noise_off
from resperturb.training import DataConfig, Run, accuracy, fingerprint, load_inputs, predict

# Of what is kept in a run. To be raised with every change of what an attack or the audit finds.
ATTACK_SCHEMA = 2
AUDIT_SCHEMA = 3
ROC_POINTS = 120
AVERAGED_DRAWS = 16

T = TypeVar("T")


@dataclass(frozen=True)
class AttackFound:
    """What the attack with one shadow found, as it is kept in the target's run."""

    schema: int
    shadow: str
    attack_learning_rate: float
    auc: float
    auc_interval: tuple[float, float]
    thresholds: tuple[Threshold, ...]

    @property
    def auc_error(self) -> float:
        """The standard error of the AUC, from its 95% interval."""
        low, high = self.auc_interval
        return (high - low) / (2 * 1.96)


@dataclass(frozen=True)
class Answers:
    """Accuracies with the noise averaged over draws and switched off."""

    draws: int
    averaged_train_accuracy: float
    averaged_test_accuracy: float
    noiseless_train_accuracy: float
    noiseless_test_accuracy: float


@dataclass(frozen=True)
class _KeptAudit:
    schema: int
    resamples: int
    found: AuditSummary


def measure_attack(name: str, target: Run, shadow: Run) -> tuple[AttackFound, Roc]:
    """Attack the target with what the shadow teaches, once: the outcome is kept in the target's run.

    Raises:
        ResperturbError: The attack could not be made, as with a shadow that learned nothing.
    """
    key = f"reproduce-{name}"
    path = target.path / "attacks" / f"{key}.json"
    kept = _kept(AttackFound, path, lambda k: (k.schema, k.shadow) == (ATTACK_SCHEMA, shadow.config.digest))
    if kept is not None:
        try:
            return kept, _roc(target, key)
        except ResperturbError:
            pass  # its scores are damaged: attack again
    scores, learning_rate = attack_by_shadow(target, shadow)
    asked = {"schema": ATTACK_SCHEMA, "shadow": shadow.config.digest, "attack": name}
    save_outcome(target.path, key, scores, {**asked, "attack_learning_rate": learning_rate, **measures(scores)})
    return read_json(AttackFound, path), _roc(target, key)


def measure_audit(target: Run, preset: Preset) -> AuditSummary:
    """Audit the target, once, and keep what the strongest attack on its records found; the shadows are trained.

    Raises:
        ResperturbError: The audit could not be made.
    """
    path = target.path / "reproduce-audit.json"
    shadows = preset.shadows_of(target.config.method.private)
    kept = _kept(
        _KeptAudit,
        path,
        lambda k: (
            (k.schema, k.resamples, k.found.shadows, k.found.draws)
            == (AUDIT_SCHEMA, preset.resamples, shadows, preset.draws)
        ),
    )
    if kept is not None:
        return kept.found
    settings = Settings(shadows=shadows, jobs=1, draws=preset.draws, resamples=preset.resamples)
    found = audit_run(target, settings)
    strongest = max(found["attacks"], key=lambda entry: float(entry["by_kind"]["record"]["auc"]))
    record, lower = strongest["by_kind"]["record"], found["epsilon_lower"]
    summary = AuditSummary(
        attacks=len(found["attacks"]),
        shadows=shadows,
        draws=preset.draws,
        strongest=f"{strongest['attack']}, {strongest['view']}",
        auc=record["auc"],
        auc_interval=tuple(record["auc_interval"]),
        tpr_at_1_percent_fpr=record["tpr_at_fpr"].get("0.01", {}).get("tpr"),
        epsilon_lower=lower["epsilon"],
        confidence=lower["confidence"],
        delta=lower["delta"],
        epsilon_upper=found["epsilon_upper"]["epsilon"],
        verdict=found["verdict"],
        design=lower["design"],
        refusal=lower.get("refusal"),
    )
    write_json(path, _KeptAudit(AUDIT_SCHEMA, preset.resamples, summary))
    return summary


def kept_audit(target: Run) -> AuditSummary | None:
    """The audit that was made of a target, if one was."""
    kept = _kept(_KeptAudit, target.path / "reproduce-audit.json", lambda k: k.schema == AUDIT_SCHEMA)
    return None if kept is None else kept.found


def measure_answers(target: Run) -> Answers:
    """Measure the accuracies with the noise averaged and switched off, once."""
    path = target.path / "reproduce-answers.json"
    kept = _kept(Answers, path, lambda k: k.draws == AVERAGED_DRAWS)
    if kept is not None:
        return kept
    inputs, config = load_inputs(target.config.data), target.config
    model = target.load_model()

    def measured(silent: bool) -> list[float]:
        with noise_off(model) if silent else nullcontext():
            return [
                accuracy(
                    predict(
                        model,
                        images.images,
                        mean=config.mean,
                        std=config.std,
                        draws=1 if silent else AVERAGED_DRAWS,
                        seed=config.seed,
                    ),
                    images.labels,
                )
                for images in (inputs.members(config.data.part), inputs.test)
            ]

    found = Answers(AVERAGED_DRAWS, *measured(silent=False), *measured(silent=True))
    write_json(path, found)
    return found


def describe_data(name: str, size: Size, preset: Preset) -> DataUsed:
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
    return DataUsed(
        name=name,
        shown=shown,
        spec=scale.spec,
        fingerprint=fingerprint(inputs),
        training_images=len(inputs.train),
        a_quarter=len(inputs.quarters.target_train),
        test_images=len(inputs.test),
        classes=inputs.train.num_classes,
        groups=None if inputs.train.groups is None else len(set(inputs.train.groups)),
        epochs=scale.epochs,
        dpsgd_epochs=scale.dpsgd_epochs,
        batch_size=scale.batch_size,
        dpsgd_batch_size=scale.dpsgd_batch_size,
        reduced=", ".join(filter(None, reduced)),
    )


def accuracy_error(value: float, images: int) -> float:
    """Give the standard error of an accuracy that was measured on so many images.

    >>> round(accuracy_error(0.5, 10_000), 4)
    0.005
    """
    return math.sqrt(max(value * (1 - value), 1 / (4 * images)) / images)


def _roc(target: Run, key: str) -> Roc:
    fpr, tpr = roc_points(load_scores(target.path, key), ROC_POINTS)
    return Roc(tuple(round(x, 5) for x in fpr), tuple(round(x, 5) for x in tpr))


def _kept(kind: type[T], path: Path, answers: Callable[[T], bool]) -> T | None:
    """An outcome that was kept and answers what is asked; a damaged one is as good as none."""
    try:
        found = read_json(kind, path)
    except ResperturbError:
        return None
    return found if answers(found) else None
