"""The attack network of Salem et al. (2018), adversary 1: what do members look like among the highest probabilities?

The highest class probabilities of a record, sorted, are the features; whether the record was trained on is the label.
A small network learns to tell them apart from a shadow model's answers: 64 tanh units, as in the authors' released
code, or none, which is softmax regression. With ReLU units Adam at the published rate of 0.1 often leaves every unit
inactive on every record after 20 to 40 steps. They have no gradient then, and every record gets the same score.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from resperturb.attacks import AttackFailedError
from resperturb.bounds import auc

Floats = np.ndarray[Any, np.dtype[np.float64]]
Singles = np.ndarray[Any, np.dtype[np.float32]]

TOP = 3
HIDDEN = 64
Units = Literal["tanh", "none"]
UNITS: Units = "tanh"
EPOCHS = 50
# The published rate, and what is tried where no start learns at it.
LEARNING_RATES = (0.1, 0.01, 0.001)
BATCH = 128
TRIES = 5
# A learned attack that does worse on its own training records than a plain threshold has not learned.
LEARNING_MARGIN = 0.02


def highest(log_probabilities: Floats) -> Singles:
    """Keep the three highest class probabilities (two of a binary task), sorted.

    >>> highest(np.log([[0.125, 0.625, 0.0625, 0.1875]])).tolist()
    [[0.625, 0.1875, 0.125]]
    """
    return -np.sort(-np.exp(log_probabilities), axis=1)[:, :TOP].astype(np.float32)


@contextmanager
def _one_thread() -> Iterator[None]:
    """The network is so small that several threads mostly wait for each other, on busy cores ten times as long."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@_one_thread()
def fit_attack(members: Tensor, nonmembers: Tensor, seed: int, units: Units = UNITS) -> tuple[nn.Module, float]:
    """Train the attack network until it knows at least what a threshold sees; return it with its learning rate.

    A start that gives every record the same score, which would look like privacy, is followed by other starts, and
    these by smaller rates.
    """
    features = torch.cat([members, nonmembers])
    labels = torch.cat([torch.ones(len(members)), torch.zeros(len(nonmembers))]).long()
    by_threshold = auc(members[:, 0].double().numpy(), nonmembers[:, 0].double().numpy())
    best = 0.0
    for learning_rate in LEARNING_RATES:
        for attempt in range(TRIES):
            network = _fit_once(features, labels, learning_rate, units, seed + attempt)
            answers = membership(network, members), membership(network, nonmembers)
            learned = auc(*answers)
            if learned >= by_threshold - LEARNING_MARGIN and np.ptp(np.concatenate(answers)) > 0:
                return network, learning_rate
            best = max(best, learned)
    raise AttackFailedError(
        f"the attack network did not learn in {TRIES} tries at each of the learning rates "
        f"{', '.join(f'{rate:g}' for rate in LEARNING_RATES)}: its AUC on the shadow's own records is {best:.3f}, a "
        f"plain threshold's is {by_threshold:.3f}. Its verdict would be worthless; nothing is known from it."
    )


def _fit_once(features: Tensor, labels: Tensor, learning_rate: float, units: Units, seed: int) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        inputs = features.shape[1]
        network = nn.Sequential(nn.Linear(inputs, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 2))
        if units == "none":
            network = nn.Sequential(nn.Linear(inputs, 2))
    optimizer = torch.optim.Adam(network.parameters(), lr=learning_rate)
    for _ in range(EPOCHS):
        for batch in torch.split(torch.randperm(len(labels), generator=generator), BATCH):
            loss = F.cross_entropy(network(features[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return network


@torch.no_grad()
def membership(network: nn.Module, features: Tensor) -> Floats:
    """Give the probability of membership that the attack network sees in each row of features."""
    probabilities = network(features).double().softmax(dim=1)[:, 1]
    return probabilities.numpy()  # type: ignore[no-any-return]
