"""The paper's attackers: a shadow model on a quarter of its own teaches a network what members look like.

The paper's attacker does not know of the perturbation, nor of a private training: its shadow is a standard network,
trained by SGD. An adaptive one gives the shadow the target's own perturbation, ensemble and way of training.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from resperturb.attacks import Query
from resperturb.bounds import AttackMetrics, AttackScores, Comparison, LowerBound, attack_metrics, precision_recall
from resperturb.data.splits import Indices
from resperturb.errors import ResperturbError, UsageError
from resperturb.models import parse_name
from resperturb.training import AskedRun, Inputs, Run, TrainConfig, load_inputs, make_config, method_of
from resperturb_reproduction.attack_network import fit_attack, highest, membership

# The paper's four are not printed in its text; these are ours.
THRESHOLDS = (0.5, 0.6, 0.7, 0.8)


def shadow_config(target: TrainConfig, adaptive: bool) -> TrainConfig:
    """Say how the shadow is trained: like the target, on the shadow's quarter.

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
    """Return what a private target changes to be trained by SGD: what its method brought along goes with it."""
    if not target.method.private:
        return {}
    usual = make_config(data=target.data, model=target.model)
    brought = [name for name, value in target.method.defaults.items() if getattr(target, name) == value]
    return {"method": method_of("sgd"), **{name: getattr(usual, name) for name in brought}}


@dataclass(frozen=True, eq=False)
class LearnedAttack:
    """The scores of the attack network on a target, its learning rate, and the records that it scored.

    Attributes:
        scores: Its probabilities of membership.
        learning_rate: The rate at which it learned.
        labels: Label of every record, members first.
        groups: Group of every record; None without groups.
    """

    scores: AttackScores
    learning_rate: float
    labels: np.ndarray[Any, np.dtype[np.int64]]
    groups: np.ndarray[Any, Any] | None

    def metrics(self) -> AttackMetrics:
        """Measure it; the attacker says *member* from a probability of 0.5 on."""
        count = self.scores.members.size
        return attack_metrics(
            self.scores.members,
            self.scores.nonmembers,
            threshold=0.5,
            member_groups=None if self.groups is None else self.groups[:count],
            nonmember_groups=None if self.groups is None else self.groups[count:],
        )

    def lower_bound(self, delta: float, confidence: float = 0.95) -> LowerBound:
        """Bound epsilon as an audit does: by pairs of records or groups, since all scores come from one model."""
        count = len(self.labels)
        compared = Comparison(
            neighbours="swap",
            chosen=np.ones(count, dtype=bool),
            members=np.arange(count) < self.scores.members.size,
            labels=self.labels,
            units=np.arange(count) if self.groups is None else np.unique(self.groups, return_inverse=True)[1],
            delta=delta,
            confidence=confidence,
            attacks=1,
        )
        return compared.bound(np.concatenate([self.scores.members, self.scores.nonmembers]), "the paper's attack")

    def thresholds(self) -> list[dict[str, float | None]]:
        """Return precision (None where nothing is accepted) and recall at every threshold."""
        found = precision_recall(self.scores.members, self.scores.nonmembers, THRESHOLDS)
        return [
            {"threshold": threshold, "precision": None if np.isnan(precision) else precision, "recall": recall}
            for threshold, (precision, recall) in zip(THRESHOLDS, found, strict=True)
        ]


def shadow_attack(target: Run, shadow: Run, seed: int = 0) -> LearnedAttack:
    """Attack the target with what the shadow teaches.

    Args:
        target: The run under attack.
        shadow: A finished run of :func:`shadow_config`.
        seed: Seed of the attack network.

    Returns:
        The scores, and what they show.

    Raises:
        UsageError: It is not known who was left out of the target.
        ResperturbError: The shadow or the attack network did not learn.
    """
    data = target.config.data
    if data.part == "all":
        raise UsageError(
            f"{target.path} was trained on all of its images, so none is known to be left out; train a target for "
            "the attack with --part target_train."
        )
    check_shadow(target, shadow)
    ins, outs = _features(shadow)
    network, learning_rate = fit_attack(ins, outs, seed=seed)
    members, nonmembers = (membership(network, features) for features in _features(target))
    inputs = load_inputs(data)
    rows = np.concatenate([inputs.member_indices, non_members(inputs)])
    groups = inputs.train.groups
    return LearnedAttack(
        AttackScores(members, nonmembers),
        learning_rate,
        inputs.train.labels.numpy()[rows],
        None if groups is None else groups[rows],
    )


def non_members(inputs: Inputs) -> Indices:
    """Find the images of the same half that a model was not trained on."""
    if inputs.data.part == "shadow_train":
        return inputs.quarters.shadow_out
    return np.setdiff1d(inputs.candidates, inputs.member_indices)


def check_shadow(target: Run, shadow: Run) -> None:
    """Refuse a shadow that has not learned: an attack with it would report privacy that is not there."""
    chance = 1 / len(target.result.classes)
    learned, wanted = (run.result.test_accuracy - chance for run in (shadow, target))
    luck = 2 * (chance * (1 - chance) / target.result.test_records) ** 0.5
    if wanted > luck and learned < wanted / 2:
        raise ResperturbError(
            f"the shadow model {shadow.path} did not train: its test accuracy is {learned + chance:.3f}, the "
            f"target's {wanted + chance:.3f}, chance {chance:.3f}. An attack with it would look harmless whatever "
            "the target leaks; train the target for longer."
        )


def _features(run: Run) -> tuple[Tensor, Tensor]:
    """Return what the attack network sees of members and of non-members of a run, by one draw of the noise."""
    inputs, data = load_inputs(run.config.data), run.config.data
    members, nonmembers = inputs.member_indices, non_members(inputs)
    [logs] = AskedRun(run, data, 0).outputs(np.concatenate([members, nonmembers]), Query("served"))
    found = torch.from_numpy(highest(logs))
    return found[: len(members)], found[len(members) :]
