"""What is read off trained models: accuracies, and the attacks on them. Each is measured once and kept in the run."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from torch import Tensor, nn

from resperturb.bounds import RECORD, AttackScores, roc_points
from resperturb.data import ImageSet
from resperturb.engine import Engine, local_engine
from resperturb.errors import ResperturbError
from resperturb.files import read_json, write_json
from resperturb.perturbation import noise_off
from resperturb.training import DataConfig, Run, TrainConfig, accuracy, audit_run, load_inputs, predict
from resperturb_reproduction.attack_network import UNITS
from resperturb_reproduction.attackers import shadow_attack
from resperturb_reproduction.reproduce.declarations import DATA_TITLES, PAPER_IDC_TRAINING_IMAGES, Size
from resperturb_reproduction.reproduce.presets import STAND_IN, Preset, reduction
from resperturb_reproduction.reproduce.results import AuditSummary, DataUsed, Roc, Threshold

# Of what is kept in a run. To be raised with every change of what an attack or the audit finds.
ATTACK_SCHEMA = 5
AUDIT_SCHEMA = 4
ROC_POINTS = 120
THRESHOLDS = (0.5, 0.6, 0.7, 0.8)  # ours: the paper does not give its four
AVERAGED_DRAWS = 16

T = TypeVar("T")


@dataclass(frozen=True)
class AttackFound:
    """What the attack with one shadow found, as it is kept in the target's run."""

    schema: int
    shadow: str
    attack_units: str
    attack_learning_rate: float
    auc: float
    auc_interval: tuple[float, float]
    thresholds: tuple[Threshold, ...]
    roc: Roc

    @property
    def auc_error(self) -> float:
        """The standard error of the AUC, from its 95% interval."""
        low, high = self.auc_interval
        return (high - low) / (2 * 1.96)


@dataclass(frozen=True)
class NoiseAccuracies:
    """Accuracies with the noise averaged over draws and switched off."""

    draws: int
    averaged_train_accuracy: float
    averaged_test_accuracy: float
    noiseless_train_accuracy: float
    noiseless_test_accuracy: float


@dataclass(frozen=True)
class _KeptAudit:
    schema: int
    found: AuditSummary


def measure_attack(name: str, target: Run, shadow: Run) -> AttackFound:
    """Attack the target with what the shadow teaches, once: the outcome is kept in the target's run.

    Raises:
        ResperturbError: The attack could not be made, as with a shadow that learned nothing.
    """
    path = target.path / "reproduce" / f"attack-{name}.json"
    kept = _kept(AttackFound, path, lambda k: (k.schema, k.shadow) == (ATTACK_SCHEMA, shadow.config.digest))
    if kept is not None:
        return kept
    attack = shadow_attack(target, shadow)
    fpr, tpr = roc_points(attack.scores.members, attack.scores.nonmembers, ROC_POINTS)
    found = AttackFound(
        schema=ATTACK_SCHEMA,
        shadow=shadow.config.digest,
        attack_units=UNITS,
        attack_learning_rate=attack.learning_rate,
        auc=attack.metrics.auc,
        auc_interval=attack.metrics.auc_interval,
        thresholds=tuple(_at(threshold, attack.scores) for threshold in THRESHOLDS),
        roc=Roc(fpr=tuple(round(x, 5) for x in fpr), tpr=tuple(round(x, 5) for x in tpr)),
    )
    write_json(path, found)
    return found


def _at(threshold: float, scores: AttackScores) -> Threshold:
    hits, alarms = (int((one >= threshold).sum()) for one in (scores.members, scores.nonmembers))
    return Threshold(threshold, hits / (hits + alarms) if hits + alarms else None, hits / scores.members.size)


def measure_audit(target: Run, preset: Preset, jobs: int | None = 1, engine: Engine = local_engine) -> AuditSummary:
    """Audit the target, once, and keep what the strongest attack on its records found; the shadows are trained.

    Raises:
        ResperturbError: The audit could not be made.
    """
    path = target.path / "reproduce" / "audit.json"
    if (kept := kept_audit(target, preset)) is not None:
        return kept
    found = audit_run(target, shadows=preset.shadows, jobs=jobs, draws=preset.draws, engine=engine, quiet=True)
    strongest = max(found.attacks, key=lambda attack: attack.metrics[RECORD].auc)
    record, lower = strongest.metrics[RECORD], found.epsilon_lower
    point = record.at_fpr(0.01)
    summary = AuditSummary(
        attacks=len(found.attacks),
        shadows=preset.shadows,
        draws=preset.draws,
        strongest=strongest.full_name,
        auc=record.auc,
        auc_interval=record.auc_interval,
        tpr_at_1_percent_fpr=None if point is None else point.tpr,
        epsilon_lower=lower.epsilon,
        confidence=lower.confidence,
        delta=lower.delta,
        epsilon_upper=found.tested_guarantee.claimed_epsilon,
        verdict=found.verdict,
        design=f"{lower.neighbours} of a {lower.unit}",
        refusal=lower.unmet[0] if lower.unmet else None,
    )
    write_json(path, _KeptAudit(AUDIT_SCHEMA, summary))
    return summary


def kept_audit(target: Run, preset: Preset | None = None) -> AuditSummary | None:
    """Return the audit that was made of a target: at the settings of a preset, or at any; None if there is none."""
    kept = _kept(_KeptAudit, target.path / "reproduce" / "audit.json", lambda k: k.schema == AUDIT_SCHEMA)
    if kept is None or (
        preset is not None and (kept.found.shadows, kept.found.draws) != (preset.shadows, preset.draws)
    ):
        return None
    return kept.found


def outputs(
    model: nn.Module,
    config: TrainConfig,
    images: ImageSet,
    count: int | None = None,
    draws: int = 1,
    silent: bool = False,
) -> Tensor:
    """Return the logits of the first images: averaged over draws of the noise, or with the noise ``silent``."""
    chosen = images.images if count is None else images.images[:count]
    with noise_off(model) if silent else nullcontext():
        return predict(model, chosen, mean=config.mean, std=config.std, draws=draws, seed=config.seed)


def right(logits: Tensor, images: ImageSet) -> float:
    """Return the accuracy of logits of the first images."""
    return accuracy(logits, images.labels[: len(logits)])


def measure_answers(target: Run) -> NoiseAccuracies:
    """Measure the accuracies with the noise averaged and switched off, once."""
    path = target.path / "reproduce" / "answers.json"
    kept = _kept(NoiseAccuracies, path, lambda k: k.draws == AVERAGED_DRAWS)
    if kept is not None:
        return kept
    inputs, model = load_inputs(target.config.data), target.load_model()

    def measured(draws: int = 1, silent: bool = False) -> list[float]:
        return [
            right(outputs(model, target.config, part, draws=draws, silent=silent), part)
            for part in (inputs.members(), inputs.test)
        ]

    found = NoiseAccuracies(AVERAGED_DRAWS, *measured(AVERAGED_DRAWS), *measured(silent=True))
    write_json(path, found)
    return found


def describe_data(name: str, size: Size, preset: Preset) -> DataUsed:
    """Say on which images, how many of them, and how far that is from the paper."""
    scale = preset.scale(name, size)
    inputs = load_inputs(DataConfig(spec=scale.spec, limit=scale.limit))
    shown, reduced = DATA_TITLES[name], reduction(name, size, preset)
    if scale.spec == STAND_IN:
        shown = f"fashion-sample in place of {shown}"
    elif name.startswith("idc") and len(inputs.train) < PAPER_IDC_TRAINING_IMAGES:
        shown = shown.replace("IDC", "IDC subset")
        reduced = ", ".join(filter(None, (reduced, "a subset of the patches")))
    return DataUsed(
        name=name,
        shown=shown,
        spec=scale.spec,
        fingerprint=inputs.fingerprint,
        training_images=len(inputs.train),
        a_quarter=len(inputs.quarters.target_train),
        test_images=len(inputs.test),
        classes=inputs.train.num_classes,
        groups=None if inputs.train.groups is None else len(set(inputs.train.groups)),
        epochs=scale.epochs,
        dpsgd_epochs=scale.dpsgd_epochs,
        batch_size=scale.batch_size,
        dpsgd_batch_size=scale.dpsgd_batch_size,
        reduced=reduced,
    )


def _kept(kind: type[T], path: Path, answers: Callable[[T], bool]) -> T | None:
    """An outcome that was kept and answers what is asked; a damaged one is as good as none."""
    try:
        found = read_json(kind, path)
    except ResperturbError:
        return None
    return found if answers(found) else None
