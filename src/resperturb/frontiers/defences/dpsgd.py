"""DP-SGD with little noise, whose accuracy comes near to that of heuristics and whose epsilon is large.

The strengths are noise multipliers. The recipe follows the one for high utility of Aerni, Zhang and Tramer 2024
(arXiv:2404.17399): a clipping norm of 1, batches of 64 at a learning rate of 4, no momentum, and averaged weights.
Recipes with smaller batches keep them, at a rate in proportion; those that augment average gradients over 8 copies.
"""

from collections.abc import Mapping
from typing import Any

from resperturb.frontiers.defence import Defence, Level, register_defence

BATCH, RATE, COPIES, AVERAGE = 64, 4.0, 8, 0.999


def dpsgd(level: Level, recipe: Mapping[str, Any]) -> Mapping[str, Any]:
    """Clip each record's gradient and add noise to their sum."""
    batch = min(BATCH, int(recipe.get("batch_size", BATCH)))
    return {
        "method": {
            "name": "dpsgd",
            "noise_multiplier": level,
            "clip": 1.0,
            "ema": AVERAGE,
            "augment_multiplicity": 1 if recipe.get("augment", "none") == "none" else COPIES,
        },
        "norm": "group",
        "schedule": "constant",
        "batch_size": batch,
        "lr": RATE * batch / BATCH,
        "momentum": 0.0,
        "weight_decay": 0.0,
    }


register_defence("dpsgd", Defence("DP-SGD, noise", (0.00625, 0.2, 1.0), dpsgd, formal=True, canary="blank"))
