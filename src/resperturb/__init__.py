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

_SUBPACKAGES = ("attacks", "auditing", "audits", "data", "engine", "models", "privacy", "report", "training")
_OF_AUDITS = ("AuditResult", "audit", "audit_predictions")  # all other names are of resperturb.perturbation

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
        if name not in __all__:
            raise AttributeError(f"module 'resperturb' has no attribute {name!r}")
        if name in _SUBPACKAGES:
            return importlib.import_module(f"resperturb.{name}")
        return getattr(
            importlib.import_module(f"resperturb.{'audits' if name in _OF_AUDITS else 'perturbation'}"), name
        )


def __dir__() -> list[str]:
    return sorted(__all__)
