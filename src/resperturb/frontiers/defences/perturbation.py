"""Residual perturbation: noise in every residual block, in training and in prediction."""

from collections.abc import Mapping
from typing import Any

from resperturb.frontiers.defence import Defence, Level, register_defence
from resperturb.models.names import parse_name

# The decay with which the paper's rows are met without input noise.
DECAY = 5e-4


def additive(level: Level, recipe: Mapping[str, Any]) -> Mapping[str, Any]:
    """Add noise to residual sums and to the input."""
    return {"perturbation": {"name": "additive", "gamma": level}}


def without_input_noise(level: Level, recipe: Mapping[str, Any]) -> Mapping[str, Any]:
    """Add noise to residual sums alone."""
    return {"perturbation": {"name": "additive", "gamma": level, "input_std": 0.0}}


def with_weight_decay(level: Level, recipe: Mapping[str, Any]) -> Mapping[str, Any]:
    """Add noise to residual sums alone, and decay the weights more."""
    return {**without_input_noise(level, recipe), "weight_decay": DECAY}


def multiplicative(level: Level, recipe: Mapping[str, Any]) -> Mapping[str, Any]:
    """Scale the noise by the shortcut."""
    return {"perturbation": {"name": "multiplicative", "gamma": level}}


def ensemble(level: Level, recipe: Mapping[str, Any]) -> Mapping[str, Any]:
    """Train several noisy networks and average their logits."""
    network = parse_name(str(recipe.get("model", "resnet8"))).ensemble_of(int(level or 1))
    return {**additive(0.5, recipe), "model": str(network)}


register_defence("additive", Defence("additive noise", (0.25, 0.5, 1.0), additive))
register_defence("additive-no-input", Defence("noise in blocks", (0.25, 0.5, 1.0), without_input_noise))
register_defence("additive-decay", Defence("noise in blocks and decay", (0.25, 0.5, 1.0), with_weight_decay))
register_defence("multiplicative", Defence("multiplicative noise", (0.5, 1.0, 2.0), multiplicative))
register_defence("ensemble", Defence("noisy ensemble of", (2, 5), ensemble, canary="near_duplicate"))
