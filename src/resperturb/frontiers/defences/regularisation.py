"""Ordinary regularisation: what other defences must beat. Early stopping is in every curve, as its checkpoints."""

from resperturb.frontiers.defence import Change, Defence, Level, register_defence


def ordinary(name: str, title: str, change: Change, strengths: tuple[Level, ...] = (None,)) -> None:
    """Register a regulariser."""
    register_defence(name, Defence(title, strengths, change, ordinary=True))


ordinary("none", "no defence", lambda level, recipe: {})
ordinary("weight-decay", "weight decay", lambda level, recipe: {"weight_decay": level}, (5e-4, 5e-3, 2e-2))
ordinary("dropout", "dropout", lambda level, recipe: {"dropout": level}, (0.1, 0.3, 0.5))
ordinary("label-smoothing", "label smoothing", lambda level, recipe: {"label_smoothing": level}, (0.1, 0.3, 0.6))
ordinary("augmentation", "augmentation", lambda level, recipe: {"augment": "crop"})
