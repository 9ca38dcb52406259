"""The paper's attack on a run: a shadow model teaches an attack network what members look like."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from resperturb.audits.ask import answer_path, keep_arrays, kept_arrays, model_here, query_seed
from resperturb.audits.result import SCORES_FOLDER, keep_attack, read_attack
from resperturb.audits.shadow_network import (
    LEARNING_RATES,
    REFERENCE,
    TRIES,
    AttackFailedError,
    fit_attack,
    membership,
    top_probabilities,
)
from resperturb.bounds.attack_metrics import AttackMetrics, attack_metrics
from resperturb.bounds.audit_result import RECORD, AttackResult, AttackScores
from resperturb.bounds.comparison import Comparison
from resperturb.bounds.metrics import precision_recall
from resperturb.bounds.result import LowerBound
from resperturb.errors import ResperturbError, UsageError
from resperturb.models.names import parse_name
from resperturb.models.source import source_of
from resperturb.sealed import Array
from resperturb.training.config import TrainConfig
from resperturb.training.inputs import load_inputs, out_indices
from resperturb.training.loop import Update, train
from resperturb.training.method import method_of
from resperturb.training.predict import predict, require_noise
from resperturb.training.run import Run

_logger = logging.getLogger(__name__)

__all__ = ["AttackFailedError", "run_shadow_attack", "shadow_attack", "shadow_config"]

# The paper's four are not printed in its text; these are ours.
THRESHOLDS = (0.5, 0.6, 0.7, 0.8)


def shadow_config(target: TrainConfig, adaptive: bool) -> TrainConfig:
    """Say how the shadow is trained: as the target, on the shadow's quarter.

    The paper's attacker does not know of the perturbation, nor of a private training: its shadow is a standard
    network, trained by SGD. An adaptive one gives the shadow the target's own perturbation, and ensemble, and way of
    training.

    Args:
        target: The configuration of the target.
        adaptive: Whether the attacker knows the target's perturbation and its private training.

    Returns:
        The configuration of the shadow.
    """
    changes: dict[str, Any] = {
        "data": target.data.model_copy(update={"part": "shadow_train", "subset_seed": 0, "canaries": None}),
        "seed": target.seed + 1,
    }
    if not adaptive:
        changes["perturbation"] = None
        changes["model"] = str(parse_name(target.model).single)
        changes |= _standard_training(target)
    return target.model_copy(update=changes)


def _standard_training(target: TrainConfig) -> dict[str, Any]:
    """What a private target changes to be trained by SGD: what its method brought along goes with it."""
    if not target.method.private:
        return {}
    recipe = source_of(target.network).recipe
    brought = [name for name, value in target.method.defaults.items() if getattr(target, name) == value]
    standard = {name: recipe.get(name, TrainConfig.model_fields[name].default) for name in brought}
    return {"method": method_of("sgd"), **standard}


def learned_shadow_configs(target: TrainConfig) -> list[TrainConfig]:
    """Say how the shadows of the paper's attack are trained: not adaptive and adaptive, if that differs.

    Args:
        target: The configuration of the target.

    Returns:
        One or two configurations; none for a target of all images, which that attack cannot be made on.
    """
    if target.data.part in ("all", "half"):
        return []
    both = (shadow_config(target, adaptive) for adaptive in (False, True))
    return list({config.digest: config for config in both}.values())


def run_shadow_attack(
    target: Run,
    *,
    adaptive: bool = False,
    draws: int = 1,
    seed: int = 0,
    on_update: Callable[[Update], None] = lambda update: None,
) -> AttackResult:
    """Train the shadow if it is not there yet, attack the target, keep the attack in its run, and return it.

    An attack that was made before on the same weights, with the same seed, is not made again; nor is one that failed.

    Args:
        target: The run to attack.
        adaptive: Whether the shadow has the target's perturbation.
        draws: How many draws of the noise are averaged for every answer.
        seed: Of the attack network.
        on_update: Told of the shadow's training.

    Returns:
        What it found, with precision and recall at :data:`THRESHOLDS` among its details.

    Raises:
        AttackFailedError: The attack network did not learn.
    """
    check_attackable(target)
    name = "shadow-adaptive" if adaptive else "shadow"
    asked = AttackResult(
        name=name,
        reference=REFERENCE,
        access="served",
        draws=draws,
        combination="mean logit" if draws > 1 else None,
        fixed=True,
        metrics={},
    )
    kept = _kept(target, asked)
    if kept is not None and kept.details.get("seed") == seed:
        return kept
    failed = answer_path(target, repr(("failed", asked.key, seed, LEARNING_RATES, TRIES)))
    if (why := kept_arrays(target, failed, _why)) is not None:
        raise AttackFailedError(why)
    shadow = train(shadow_config(target.config, adaptive), runs=shadow_folder(target), on_update=on_update)
    try:
        attack = shadow_attack(target, shadow, draws, seed)
    except AttackFailedError as error:
        keep_arrays(target, failed, {"why": np.array(str(error))})
        raise
    result = replace(
        asked,
        metrics={RECORD: attack.metrics()},
        details={
            "seed": seed,
            "attack_learning_rate": attack.learning_rate,
            "shadow": {"run": shadow.config.digest, **shadow.result.accuracies()},
            "thresholds": attack.thresholds(),
        },
    )
    keep_attack(target.path, result, attack.scores, target.digests)
    return result


def _kept(target: Run, asked: AttackResult) -> AttackResult | None:
    """The same attack on the same weights, if it was made before; one that cannot be believed is made again."""
    path = target.path / SCORES_FOLDER / f"{asked.key}.json"
    try:
        return read_attack(path, target.digests).result if path.exists() else None
    except ResperturbError as error:
        _logger.warning("%s It is made again.", error)
        return None


def _why(arrays: dict[str, Array]) -> str:
    if "why" not in arrays or arrays["why"].dtype.kind != "U":
        raise ResperturbError("it does not say why an attack failed")
    return str(arrays["why"])


@dataclass(frozen=True, eq=False)
class LearnedAttack:
    """The scores of the attack network, its learning rate, and the groups of the records it was asked about."""

    scores: AttackScores
    learning_rate: float
    member_groups: Any | None
    nonmember_groups: Any | None

    def metrics(self) -> AttackMetrics:
        """Measure it; the attacker says *member* from probability one half on."""
        return attack_metrics(
            self.scores.members,
            self.scores.nonmembers,
            threshold=0.5,
            member_groups=self.member_groups,
            nonmember_groups=self.nonmember_groups,
        )

    def lower_bound(self, target: Run, delta: float, confidence: float = 0.95) -> LowerBound:
        """Bound epsilon as an audit does: by pairs of records or groups, since all scores come from one model."""
        data = target.config.data
        inputs = load_inputs(data)
        asked = np.concatenate([inputs.member_indices(data.part), out_indices(inputs, data.part)])
        groups = inputs.train.groups
        members = np.arange(len(asked)) < self.scores.members.size
        design = Comparison(
            neighbours="swap",
            chosen=np.ones(len(asked), dtype=bool),
            members=members,
            labels=inputs.train.labels.numpy()[asked],
            units=np.arange(len(asked)) if groups is None else np.unique(groups[asked], return_inverse=True)[1],
            delta=delta,
            confidence=confidence,
            attacks=1,
        )
        return design.bound(np.concatenate([self.scores.members, self.scores.nonmembers]), "the paper's attack")

    def thresholds(self) -> list[dict[str, float | None]]:
        """Precision (None where nothing is accepted) and recall at every threshold."""
        found = precision_recall(self.scores.members, self.scores.nonmembers, THRESHOLDS)
        return [
            {"threshold": threshold, "precision": None if np.isnan(precision) else precision, "recall": recall}
            for threshold, (precision, recall) in zip(THRESHOLDS, found, strict=True)
        ]


def shadow_attack(target: Run, shadow: Run, draws: int = 1, seed: int = 0) -> LearnedAttack:
    """Attack the target with what the shadow teaches.

    Args:
        target: The run under attack.
        shadow: A finished run of :func:`shadow_config`.
        draws: Draws of the noise that are averaged for every answer.
        seed: Of the attack network.

    Returns:
        The scores, and what they show.
    """
    check_attackable(target)
    check_shadow(target, shadow)
    inputs = load_inputs(target.config.data)
    attack, learning_rate = fit_attack(*features_of(shadow, draws), seed=seed)
    members, nonmembers = features_of(target, draws)
    part, groups = target.config.data.part, inputs.train.groups
    return LearnedAttack(
        AttackScores(membership(attack, members), membership(attack, nonmembers)),
        learning_rate,
        None if groups is None else groups[inputs.member_indices(part)],
        None if groups is None else groups[out_indices(inputs, part)],
    )


def check_attackable(target: Run) -> None:
    """Refuse a target of which it is not known who was in and who was out."""
    if target.config.data.part == "all":
        raise UsageError(
            f"{target.path} was trained on all of its images, so there is nobody of whom it is known that they were "
            "left out; train a target for the attack with --part target_train."
        )


def check_shadow(target: Run, shadow: Run) -> None:
    """Refuse a shadow that has not learned: an attack with it would report privacy that is not there."""
    chance = 1 / len(target.result.classes)
    learned, wanted = (run.result.test_accuracy - chance for run in (shadow, target))
    luck = 2 * (chance * (1 - chance) / target.result.test_records) ** 0.5
    if wanted > luck and learned < wanted / 2:
        raise ResperturbError(
            f"the shadow model {shadow.path} did not train: its test accuracy is {learned + chance:.3f}, the "
            f"target's {wanted + chance:.3f}, chance {chance:.3f}. An attack with it would "
            "look harmless whatever the target leaks. It was trained as the target was: train the target for longer, "
            "or attack it without shadows (resperturb audit --one-run)."
        )


def features_of(run: Run, draws: int) -> tuple[Tensor, Tensor]:
    """Return what the attack network sees of the members and the non-members of a run, and keep it with the run.

    Args:
        run: A run on one of the quarters.
        draws: How many draws of the noise are averaged for every answer, if there is any.
    """
    path = _features_path(run, draws)
    kept = kept_arrays(run, path, _features)
    if kept is None:
        inputs, part, model = load_inputs(run.config.data), run.config.data.part, model_here(run)
        kept = {}
        if run.config.is_noisy:
            require_noise(model, inputs.train.images, run.config.mean, run.config.std)
        rows = {"members": inputs.member_indices(part), "nonmembers": out_indices(inputs, part)}
        for index, (name, chosen) in enumerate(rows.items()):
            logits = predict(
                model,
                inputs.train.select(chosen).images,
                mean=run.config.mean,
                std=run.config.std,
                draws=draws if run.config.is_noisy else 1,
                seed=query_seed(run, index),
            )
            kept[name] = top_probabilities(logits).numpy()
        keep_arrays(run, path, kept)
    return torch.from_numpy(kept["members"]), torch.from_numpy(kept["nonmembers"])


def _features(arrays: dict[str, Array]) -> dict[str, Array]:
    for name in ("members", "nonmembers"):
        if name not in arrays or arrays[name].ndim != 2 or arrays[name].dtype.kind != "f":
            raise ResperturbError(f"its {name} are no probabilities")
    return arrays


def has_features(run: Run, draws: int) -> bool:
    """Whether :func:`features_of` are kept already."""
    return _features_path(run, draws).exists()


def _features_path(run: Run, draws: int) -> Path:
    return answer_path(run, repr(("features", draws if run.config.is_noisy else 1)))


def shadow_folder(target: Run) -> Path:
    """Where the shadows of a target are kept: beside it, out of the way of ``runs/*``."""
    return target.path.parent / ".shadows"
