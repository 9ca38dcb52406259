"""Residual perturbation: networks that leak less, attacked hard, claimed honestly.

The package is light to import: what a name needs is loaded when the name is first used.
"""

import importlib
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from resperturb import attacks, auditing, audits, data, engine, models, privacy, report, training
    from resperturb.audits import AuditResult, audit, audit_predictions
    from resperturb.perturbation import (
        Additive,
        Multiplicative,
        Strategy,
        junctions,
        load,
        noise_off,
        perturb,
        save,
        seeded_predictions,
        strategy_of,
        verify_noise,
    )

try:
    __version__ = version("resperturb")
except PackageNotFoundError:  # a source tree that is not installed
    __version__ = "unknown"

_WHERE = {
    "Additive": "resperturb.perturbation",
    "AuditResult": "resperturb.audits",
    "Multiplicative": "resperturb.perturbation",
    "Strategy": "resperturb.perturbation",
    "audit": "resperturb.audits",
    "audit_predictions": "resperturb.audits",
    "junctions": "resperturb.perturbation",
    "load": "resperturb.perturbation",
    "noise_off": "resperturb.perturbation",
    "perturb": "resperturb.perturbation",
    "save": "resperturb.perturbation",
    "seeded_predictions": "resperturb.perturbation",
    "strategy_of": "resperturb.perturbation",
    "verify_noise": "resperturb.perturbation",
}
_SUBPACKAGES = ("attacks", "auditing", "audits", "data", "engine", "models", "privacy", "report", "training")

__all__ = [
    "Additive",
    "AuditResult",
    "Multiplicative",
    "Strategy",
    "__version__",
    "attacks",
    "audit",
    "audit_predictions",
    "auditing",
    "audits",
    "data",
    "engine",
    "junctions",
    "load",
    "models",
    "noise_off",
    "perturb",
    "privacy",
    "report",
    "save",
    "seeded_predictions",
    "strategy_of",
    "training",
    "verify_noise",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in _WHERE:
            return getattr(importlib.import_module(_WHERE[name]), name)
        if name in _SUBPACKAGES:
            return importlib.import_module(f"resperturb.{name}")
        raise AttributeError(f"module 'resperturb' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
