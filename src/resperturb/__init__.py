"""Residual perturbation: networks that leak less, attacked hard, claimed honestly.

The package is light to import: what a name needs is loaded when the name is first used.
"""

import importlib
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from resperturb.lazy import lazy_names

if TYPE_CHECKING:
    from resperturb import (
        attacks,
        auditing,
        bounds,
        data,
        engine,
        frontiers,
        heads,
        models,
        privacy,
        report,
        training,
    )
    from resperturb.auditing import audit, audit_model, audit_predictions
    from resperturb.bounds import AuditResult
    from resperturb.frontiers import frontier
    from resperturb.heads import DPHead, dp_head
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

_ROOMS = {
    "auditing": ["audit", "audit_model", "audit_predictions"],
    "bounds": ["AuditResult"],
    "frontiers": ["frontier"],
    "heads": ["DPHead", "dp_head"],
    "perturbation": [
        *("Additive", "Multiplicative", "Strategy", "junctions", "load", "noise_off", "perturb", "save"),
        *("seeded_predictions", "strategy_of", "verify_noise"),
    ],
}  # all other names are subpackages

__all__ = [
    "Additive",
    "AuditResult",
    "DPHead",
    "Multiplicative",
    "Strategy",
    "__version__",
    "attacks",
    "audit",
    "audit_model",
    "audit_predictions",
    "auditing",
    "bounds",
    "data",
    "dp_head",
    "engine",
    "frontier",
    "frontiers",
    "heads",
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
        if name == "audits" or (name in __all__ and not any(name in names for names in _ROOMS.values())):
            return importlib.import_module(f"resperturb.{name}")  # the first is an old name, whose own names warn
        return lazy_names(__name__, _ROOMS)(name)


def __dir__() -> list[str]:
    return sorted(__all__)
