"""Residual perturbation: residual networks that leak less, attacked hard, claimed honestly.

The package is light to import: what a name needs is loaded when the name is first used.
"""

import importlib
from typing import Any

_WHERE = {
    "Additive": "resperturb.perturbation",
    "Multiplicative": "resperturb.perturbation",
    "junctions": "resperturb.perturbation",
    "load": "resperturb.perturbation",
    "noise_off": "resperturb.perturbation",
    "perturb": "resperturb.perturbation",
    "save": "resperturb.perturbation",
    "seeded_predictions": "resperturb.perturbation",
    "strategy_of": "resperturb.perturbation",
    "verify_noise": "resperturb.perturbation",
}
_SUBPACKAGES = ("attacks", "auditing", "audits", "data", "models", "privacy", "report", "training")

__all__ = [*_WHERE, *_SUBPACKAGES]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(_WHERE[name]), name)
    if name in _SUBPACKAGES:
        return importlib.import_module(f"resperturb.{name}")
    raise AttributeError(f"module 'resperturb' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
