"""Defences that change the loss: RelaxLoss, and HAMP with its second half at prediction time."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from resperturb.bounds.arrays import Floats
from resperturb.frontier.defence import Defence, Level, register_defence


def relaxloss(level: Level, recipe: Mapping[str, Any]) -> Mapping[str, Any]:
    """Keep the training loss at a level."""
    return {"loss": {"name": "relaxloss", "alpha": level}}


def hamp(level: Level, recipe: Mapping[str, Any]) -> Mapping[str, Any]:
    """Train with soft labels and a reward for entropy."""
    return {"loss": {"name": "hamp", "gamma": level, "alpha": 0.001}}


def reordered(answers: Floats, random: Floats, seed: int) -> Floats:
    """Replace the values of each answer by those of the answer to a random image, in the order of the answer.

    Args:
        answers: Log-probabilities of the records, ``[rows, C]``.
        random: Log-probabilities of random images, ``[M, C]``; each record gets one of them at random.
        seed: Seed of that choice.

    Returns:
        Answers with the same ranking of the classes and values that do not depend on the record.

    >>> reordered(np.array([[0.1, 0.7, 0.2]]), np.array([[0.5, 0.3, 0.2]]), seed=0).tolist()
    [[0.2, 0.5, 0.3]]
    """
    chosen = np.random.default_rng(seed).integers(len(random), size=len(answers))
    found = np.empty_like(answers)
    np.put_along_axis(found, np.argsort(answers, axis=1, kind="stable"), np.sort(random[chosen], axis=1), axis=1)
    return found


register_defence("relaxloss", Defence("RelaxLoss", (0.3, 1.0, 2.0), relaxloss))
register_defence("hamp", Defence("HAMP", (0.7, 0.95), hamp, serve=reordered))
