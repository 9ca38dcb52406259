"""The paper's attackers: a shadow model on a quarter of its own teaches a network what members look like.

The paper's attacker does not know of the perturbation, nor of a private training: its shadow model is a standard
network. An adaptive attacker trains the shadow model like the target.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from resperturb.attacks import Query
from resperturb.bounds import AttackMetrics, AttackScores, attack_metrics
from resperturb.errors import ResperturbError
from resperturb.training import AskedRun, Run, TrainConfig, load_inputs
from resperturb_reproduction.attack_network import fit_attack, highest, membership


def shadow_config(config: TrainConfig) -> TrainConfig:
    """Train the same on the shadow's quarter, with another seed."""
    data = config.data.model_copy(update={"part": "shadow_train", "subset_seed": 0, "canaries": None})
    return config.model_copy(update={"data": data, "seed": config.seed + 1})


@dataclass(frozen=True, eq=False)
class LearnedAttack:
    """The attack network's probabilities of membership in the target, their metrics, and its learning rate."""

    scores: AttackScores
    metrics: AttackMetrics
    learning_rate: float


def shadow_attack(target: Run, shadow: Run, seed: int = 0) -> LearnedAttack:
    """Attack the target with what the shadow teaches.

    Args:
        target: The run under attack.
        shadow: A finished run of :func:`shadow_config`.
        seed: Seed of the attack network.

    Returns:
        The scores and their metrics.

    Raises:
        ResperturbError: The shadow or the attack network did not learn.
    """
    check_shadow(target, shadow)
    network, learning_rate = fit_attack(*_features(shadow)[:2], seed=seed)
    ins, outs, groups = _features(target)
    scores = AttackScores(membership(network, ins), membership(network, outs))
    metrics = attack_metrics(
        scores.members,
        scores.nonmembers,
        threshold=0.5,
        member_groups=None if groups is None else groups[: len(ins)],
        nonmember_groups=None if groups is None else groups[len(ins) :],
    )
    return LearnedAttack(scores, metrics, learning_rate)


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


def _features(run: Run) -> tuple[Tensor, Tensor, np.ndarray | None]:
    """Return what the attack network sees of members and of non-members by one draw of the noise, and all groups."""
    inputs, data = load_inputs(run.config.data), run.config.data
    members, quarters = inputs.member_indices, inputs.quarters
    rows = np.concatenate([members, quarters.shadow_out if data.part == "shadow_train" else quarters.target_out])
    [logs] = AskedRun(run, data, 0).outputs(rows, Query("served"))
    found = torch.from_numpy(highest(logs))
    groups = inputs.train.groups
    return found[: len(members)], found[len(members) :], None if groups is None else groups[rows]
