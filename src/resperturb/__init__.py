"""Residual perturbation: residual networks that leak less, attacked hard, claimed honestly.

The package is light to import: what a name needs is loaded when the name is first used.
"""

import importlib
from typing import Any

_WHERE: dict[str, str] = {}
_SUBPACKAGES = ("attacks", "auditing", "data", "models", "privacy", "report", "sde", "training")

__all__ = [*_WHERE, *_SUBPACKAGES]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(_WHERE[name]), name)
    if name in _SUBPACKAGES:
        return importlib.import_module(f"resperturb.{name}")
    raise AttributeError(f"module 'resperturb' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
