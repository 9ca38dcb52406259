"""DP-SGD with little noise, whose accuracy comes near to that of heuristics and whose epsilon is large.

The strengths are noise multipliers. The recipe follows the one for high utility of Aerni, Zhang and Tramer 2024
(arXiv:2404.17399): a large learning rate, a clipping norm of 1 and batches of 64.
"""

from collections.abc import Mapping
from typing import Any

from resperturb.frontier.defence import Defence, Level, register_defence


def dpsgd(level: Level, recipe: Mapping[str, Any]) -> Mapping[str, Any]:
    """Clip each record's gradient and add noise to their sum."""
    return {
        "method": {"name": "dpsgd", "noise_multiplier": level, "clip": 1.0},
        "norm": "group",
        "schedule": "constant",
        "batch_size": 64,
        "lr": 4.0,
        "momentum": 0.0,
        "weight_decay": 0.0,
    }


register_defence("dpsgd", Defence("DP-SGD, noise", (0.00625, 0.2, 1.0), dpsgd, canary="blank"))
