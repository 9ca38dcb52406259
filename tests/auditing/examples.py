"""A made-up training whose models memorise their rows to a given degree, in microseconds."""

from collections.abc import Callable
from typing import Any

import numpy as np

from resperturb.bounds.arrays import Bools, Floats, Ints


def probabilities(right: Floats, labels: Ints, classes: int = 2) -> Floats:
    """Give every row's label a probability, and share the rest among the other classes."""
    found = np.repeat(((1 - right) / (classes - 1))[:, None], classes, axis=1)
    found[np.arange(len(labels)), labels] = right
    return found


def answers(members: Bools, labels: Ints, leak: float, rng: np.random.Generator) -> Floats:
    """Make up the predictions of K models, ``[K, rows, 2]``, whose confidence in a member is larger by ``leak``."""
    difficulty = rng.normal(1.5, 1.5, members.shape[1])
    confidence = difficulty + leak * members + rng.normal(0, 1, members.shape)
    return np.array([probabilities(1 / (1 + np.exp(-one)), labels) for one in confidence])


def training(labels: Ints, leak: float, accuracy: Callable[[int], float] = lambda seed: 1.0) -> Any:
    """Make a training function; ``accuracy`` scales what the model with a seed has learned."""

    def train(indices: Ints, seed: int) -> Any:
        rng = np.random.default_rng([seed, *indices[:3]])
        difficulty = np.random.default_rng(9).normal(1.5, 1.5, len(labels))
        confidence = difficulty + rng.normal(0, 1, len(labels))
        confidence[indices] += leak
        right = 1 / (1 + np.exp(-confidence * accuracy(seed)))
        return lambda rows: probabilities(right, labels)[rows]

    return train
