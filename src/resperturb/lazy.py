"""Names of a package that are loaded when they are first used, and old names that lead to where they are now."""

import importlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Names = Mapping[str, Sequence[str]]


def lazy_names(package: str, rooms: Names, moved: Names | None = None) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package, whose modules have the names ``rooms``.

    ``moved`` are old names that are in another package now; they work for one more version, with a warning.

    >>> lazy_names("resperturb", {"errors": ["UsageError"]})("UsageError").__name__
    'UsageError'
    """
    places = {name: f"{package}.{room}" for room, names in rooms.items() for name in names}
    new = {name: place for place, names in (moved or {}).items() for name in names}

    def find(name: str) -> Any:
        if name in new:
            warnings.warn(f"import {name} from {new[name]} instead of {package}", DeprecationWarning, stacklevel=2)
        elif name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(new.get(name) or places[name]), name)

    return find
