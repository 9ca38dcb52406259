"""The paper's attack: learn from a shadow model what members look like (Salem et al. 2018, adversary 1).

A shadow model is trained on its own quarter. The highest class probabilities of every record of the shadow half,
sorted, are the features; whether the record was trained on is the label. A small network learns to tell them apart,
and is then asked about the target model's answers.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from resperturb.auditing.metrics import auc
from resperturb.auditing.scores import Scores
from resperturb.audits.ask import query_seed
from resperturb.audits.outcome import MembershipScores, measures, save_outcome
from resperturb.errors import ResperturbError, UsageError
from resperturb.models.names import parse_name
from resperturb.perturbation import strategy_to_dict
from resperturb.training.config import TrainConfig
from resperturb.training.inputs import Inputs, load_inputs, out_indices
from resperturb.training.loop import Update, train
from resperturb.training.predict import predict
from resperturb.training.run import Run

TOP = 3
HIDDEN = 64
EPOCHS = 50
# The paper's rate, and what is tried where every start dies at it: on many records that is the rule.
LEARNING_RATES = (0.1, 0.01, 0.001)
BATCH = 128
TRIES = 5
# A learned attack that does worse on its own training records than a plain threshold has not learned.
LEARNING_MARGIN = 0.02


class AttackFailedError(ResperturbError):
    """The attack network did not learn, so what it says means nothing."""


def shadow_config(target: TrainConfig, adaptive: bool) -> TrainConfig:
    """Say how the shadow is trained: as the target, on the shadow's quarter.

    The paper's attacker does not know of the perturbation: its shadow is a standard network. An adaptive one gives
    the shadow the target's own perturbation, and ensemble, and way of training.
    """
    changes: dict[str, Any] = {
        "data": target.data.model_copy(update={"part": "shadow_train", "subset_seed": 0, "canaries": None}),
        "seed": target.seed + 1,
    }
    if not adaptive:
        changes["perturbation"] = strategy_to_dict(None)
        changes["model"] = str(parse_name(target.model).single)
    return target.model_copy(update=changes)


def run_shadow_attack(
    target: Run,
    *,
    adaptive: bool = False,
    draws: int = 1,
    seed: int = 0,
    on_update: Callable[[Update], None] = lambda update: None,
) -> dict[str, Any]:
    """Train the shadow if it is not there yet, attack the target, keep the outcome in its run, and return it."""
    check_attackable(target)
    shadow = train(shadow_config(target.config, adaptive), runs=shadow_folder(target), on_update=on_update)
    scores, learning_rate = attack_by_shadow(target, shadow, draws, seed)
    name = ("shadow-adaptive" if adaptive else "shadow") + (f"-{draws}-draws" if draws > 1 else "")
    summary = {
        "attack": name,
        "reference": "Salem et al. 2018 (arXiv:1806.01246), adversary 1",
        "adaptive": adaptive,
        "draws": draws,
        "seed": seed,
        "attack_learning_rate": learning_rate,
        "shadow": {
            "hash": shadow.config.digest,
            "train_accuracy": shadow.result.train_accuracy,
            "test_accuracy": shadow.result.test_accuracy,
        },
        "target": target.result.accuracies(),
        **measures(scores),
    }
    save_outcome(target.path, name, scores, summary)
    return summary


def shadow_attack(target: Run, shadow: Run, draws: int = 1, seed: int = 0) -> MembershipScores:
    """Attack the target with what the shadow teaches; ``draws`` noise draws are averaged for every answer."""
    return attack_by_shadow(target, shadow, draws, seed)[0]


def attack_by_shadow(target: Run, shadow: Run, draws: int = 1, seed: int = 0) -> tuple[MembershipScores, float]:
    """Attack like :func:`shadow_attack`, and say too at which learning rate the attack network learned."""
    check_attackable(target)
    check_shadow(target, shadow)
    inputs = load_inputs(target.config.data)
    attack, learning_rate = fit_attack(*_half_features(shadow, inputs, draws), seed=seed)
    members, nonmembers = _half_features(target, inputs, draws)
    return MembershipScores(membership(attack, members), membership(attack, nonmembers)), learning_rate


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


def top_probabilities(logits: Tensor) -> Tensor:
    """Keep the three highest class probabilities (two of a binary task), sorted.

    >>> top_probabilities(torch.tensor([[0.0, 1000.0, 0.0, 0.0]])).tolist()
    [[1.0, 0.0, 0.0]]
    """
    probabilities = logits.double().softmax(dim=1)
    return probabilities.topk(min(TOP, logits.shape[1]), dim=1).values.float()


def _half_features(run: Run, inputs: Inputs, draws: int) -> tuple[Tensor, Tensor]:
    """Features of the members and the non-members of a run."""
    part = run.config.data.part
    model = run.load_model()
    images = (
        inputs.train.select(inputs.member_indices(part)).images,
        inputs.train.select(out_indices(inputs, part)).images,
    )
    mean, std = run.config.mean, run.config.std
    members, nonmembers = (
        top_probabilities(predict(model, batch, mean=mean, std=std, draws=draws, seed=query_seed(run, index)))
        for index, batch in enumerate(images)
    )
    return members, nonmembers


def fit_attack(members: Tensor, nonmembers: Tensor, seed: int) -> tuple[nn.Module, float]:
    """Train the attack network until it knows at least what a threshold sees; return it with its learning rate.

    At the paper's rate many a start ends with dead neurons and the same answer for everybody. Then others are tried,
    and after them smaller rates: the same answer for everybody would look like privacy.
    """
    features = torch.cat([members, nonmembers])
    labels = torch.cat([torch.ones(len(members)), torch.zeros(len(nonmembers))]).long()
    by_threshold = auc(members[:, 0].double().numpy(), nonmembers[:, 0].double().numpy())
    best = 0.0
    for learning_rate in LEARNING_RATES:
        for attempt in range(TRIES):
            network = _fit_once(features, labels, learning_rate, seed + attempt)
            answers = membership(network, members), membership(network, nonmembers)
            learned = auc(*answers)
            if learned >= by_threshold - LEARNING_MARGIN and np.ptp(np.concatenate(answers)) > 0:
                return network, learning_rate
            best = max(best, learned)
    raise AttackFailedError(
        f"the attack network did not learn in {TRIES} tries at each of the learning rates "
        f"{', '.join(f'{rate:g}' for rate in LEARNING_RATES)}: its AUC on the shadow's own records is {best:.3f}, a "
        f"plain threshold's is {by_threshold:.3f}. Its verdict would be worthless; use another --attack-seed."
    )


def _fit_once(features: Tensor, labels: Tensor, learning_rate: float, seed: int) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        hidden = nn.Linear(features.shape[1], HIDDEN)
        network = nn.Sequential(hidden, nn.ReLU(), nn.Linear(HIDDEN, 2))
    optimizer = torch.optim.Adam(network.parameters(), lr=learning_rate)
    for _ in range(EPOCHS):
        for batch in torch.split(torch.randperm(len(labels), generator=generator), BATCH):
            loss = F.cross_entropy(network(features[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        if bool((hidden(features) <= 0).all()):
            break  # every neuron is dead, and no gradient will wake one again
    return network


@torch.no_grad()
def membership(network: nn.Module, features: Tensor) -> Scores:
    """Give the probability of membership that the attack network sees in each row of features."""
    probabilities = network(features).double().softmax(dim=1)[:, 1]
    return probabilities.numpy()  # type: ignore[no-any-return]


def shadow_folder(target: Run) -> Path:
    """Where the shadows of a target are kept: beside it, out of the way of ``runs/*``."""
    return target.path.parent / ".shadows"
