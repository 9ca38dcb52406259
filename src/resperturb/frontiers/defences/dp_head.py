"""A DP head: a linear classifier on frozen public features, with a guarantee. The strengths are its epsilon."""

from collections.abc import Mapping
from typing import Any

from resperturb.frontiers.defence import Defence, Level, register_defence
from resperturb.training.method import methods

# What a recipe says of its network and of how that is trained, at the values that a head needs.
FIELDS: dict[str, Any] = {
    "model_args": {},
    "weights": None,
    "norm": "batch",
    "skip": True,
    "dropout": 0.0,
    "optimizer": "sgd",
    "momentum": 0.9,
    "warmup_epochs": 0,
    "label_smoothing": 0.0,
    "loss": None,
    "class_weights": None,
    "augment": "none",
    "precision": "32-true",
}


def dp_head(level: Level, recipe: Mapping[str, Any]) -> Mapping[str, Any]:
    """Train a head on features of the images instead of the network."""
    return {**FIELDS, **methods["dp-head"].defaults, "method": {"name": "dp-head", "target_epsilon": level}}


register_defence("dp-head", Defence("DP head, epsilon", (1.0, 3.0, 8.0), dp_head, formal=True, canary="blank"))
