"""Ordinary regularisation: what other defences must beat. Early stopping is in every curve, as its checkpoints."""

from collections.abc import Mapping
from typing import Any

from resperturb.frontiers.defence import Defence, Level, register_defence


def none(level: Level, recipe: Mapping[str, Any]) -> Mapping[str, Any]:
    """Change nothing."""
    return {}


def weight_decay(level: Level, recipe: Mapping[str, Any]) -> Mapping[str, Any]:
    """Decay the weights more."""
    return {"weight_decay": level}


def dropout(level: Level, recipe: Mapping[str, Any]) -> Mapping[str, Any]:
    """Drop units of each block."""
    return {"dropout": level}


def label_smoothing(level: Level, recipe: Mapping[str, Any]) -> Mapping[str, Any]:
    """Smooth the labels."""
    return {"label_smoothing": level}


def augmentation(level: Level, recipe: Mapping[str, Any]) -> Mapping[str, Any]:
    """Mirror and shift the images."""
    return {"augment": "crop"}


register_defence("none", Defence("no defence", (None,), none, ordinary=True))
register_defence("weight-decay", Defence("weight decay", (5e-4, 5e-3, 2e-2), weight_decay, ordinary=True))
register_defence("dropout", Defence("dropout", (0.1, 0.3, 0.5), dropout, ordinary=True))
register_defence("label-smoothing", Defence("label smoothing", (0.1, 0.3, 0.6), label_smoothing, ordinary=True))
register_defence("augmentation", Defence("augmentation", (None,), augmentation, ordinary=True))
