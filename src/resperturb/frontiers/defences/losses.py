"""Defences that change the loss: RelaxLoss, and HAMP with its second half at prediction time."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from resperturb.bounds.arrays import Floats
from resperturb.frontiers.defence import Defence, Level, register_defence

# What a mean over elements divides by, with ten classes.
ELEMENTS = 10


def relaxloss(level: Level, recipe: Mapping[str, Any]) -> Mapping[str, Any]:
    """Keep the training loss at a level."""
    return {"loss": {"name": "relaxloss", "alpha": level}}


def hamp(level: Level, recipe: Mapping[str, Any]) -> Mapping[str, Any]:
    """Train with soft labels and a reward for entropy.

    The loss is a mean over elements, as in the code of its authors, so its gradients are smaller by the number of
    classes. The learning rate makes up for that; without it the network hardly learns.
    """
    rate = ELEMENTS * float(recipe.get("lr", 0.1))
    return {"loss": {"name": "hamp", "gamma": level, "alpha": 0.001}, "lr": rate}


def reordered(answers: Floats, random: Floats) -> Floats:
    """Replace the values of each answer by those of the answer to a random image, in the order of the answer.

    Both are log-probabilities ``[rows, C]``. Classes keep their ranking, and the values do not depend on the record.

    >>> reordered(np.array([[0.1, 0.7, 0.2]]), np.array([[0.5, 0.3, 0.2]])).tolist()
    [[0.2, 0.5, 0.3]]
    """
    found = np.empty_like(answers)
    np.put_along_axis(found, np.argsort(answers, axis=1, kind="stable"), np.sort(random, axis=1), axis=1)
    return found


register_defence("relaxloss", Defence("RelaxLoss", (0.3, 1.0, 2.0), relaxloss))
register_defence("hamp", Defence("HAMP", (0.7, 0.95), hamp, serve=reordered))
