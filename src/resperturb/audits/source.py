"""What a function is made of, so that a change is noticed: its source, that of what it calls, and its constants."""

import hashlib
import inspect
import sysconfig
from argparse import Namespace
from collections.abc import Callable
from dataclasses import is_dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

_PLAIN = (int, float, str, bytes, bool, type(None))
# Whose code is not the user's own: the standard library, installed packages, this one.
_INSTALLED = [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")]
_INSTALLED.append(Path(__file__).resolve().parents[1])


def source_digest(function: Callable[..., Any]) -> str:
    """Hash the source of ``function``, of the functions, classes and modules that it uses, and of its constants.

    Code of installed packages does not count, nor do arrays and other data that it refers to.

    Returns:
        Sixteen hexadecimal digits.

    >>> source_digest(lambda x: x + 1) == source_digest(lambda x: x + 2)
    False
    """
    digest = hashlib.sha256()
    for part in _parts(function, set()):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:16]


def _parts(thing: Any, seen: set[int]) -> list[str]:
    if id(thing) in seen:
        return []
    seen.add(id(thing))
    if inspect.ismethod(thing):
        return _parts(thing.__func__, seen)
    if isinstance(thing, FunctionType):
        found = [_text(thing), repr(_plain(thing.__defaults__)), repr(_plain(thing.__kwdefaults__))]
        names = _names(thing.__code__)
        used = [thing.__globals__[name] for name in names if name in thing.__globals__]
        for cell in thing.__closure__ or ():
            try:
                used.append(cell.cell_contents)
            except ValueError:  # not assigned yet
                continue
        for value in used:
            if isinstance(value, FunctionType | type | ModuleType) and _is_own(value):
                found += _parts(value, seen)
            elif isinstance(value, (*_PLAIN, tuple)) or _is_settings(value):
                found.append(repr(_plain(value)))
        return found
    if isinstance(thing, type):
        inside = [*thing.__bases__, *vars(thing).values()]
        return [_text(thing), *(part for one in inside if _is_own(one) for part in _parts(one, seen))]
    if isinstance(thing, ModuleType):
        return [_text(thing)]
    if hasattr(thing, "func"):  # functools.partial
        return [*_parts(thing.func, seen), repr(_plain(thing.args)), repr(_plain(thing.keywords))]
    return [_text(type(thing))] if callable(thing) else []


def _is_own(thing: Any) -> bool:
    """Whether a function, class or module is the user's own."""
    if not isinstance(thing, FunctionType | type | ModuleType):
        return False
    module = thing if isinstance(thing, ModuleType) else inspect.getmodule(thing)
    file = getattr(module, "__file__", None)
    if file is None:
        return getattr(module, "__name__", "") == "__main__"  # typed at a prompt
    return not any(Path(file).resolve().is_relative_to(folder) for folder in _INSTALLED)


def _is_settings(value: Any) -> bool:
    """Whether it holds settings: a dictionary, dataclass or argparse's namespace of plain values.

    Lists are left out: those that a training uses are mostly of results, and grow.
    """
    fields = value if isinstance(value, dict) else getattr(value, "__dict__", None)
    if not (isinstance(value, dict | Namespace) or is_dataclass(value)) or fields is None:
        return False
    return all(isinstance(item, (*_PLAIN, tuple, list)) or _is_settings(item) for item in fields.values())


def _names(code: CodeType) -> list[str]:
    inner = [name for constant in code.co_consts if isinstance(constant, CodeType) for name in _names(constant)]
    return sorted({*code.co_names, *inner})


def _text(thing: Any) -> str:
    code = getattr(thing, "__code__", None)
    # Two lambdas on one line have the same source, and what was typed at a prompt has none.
    compiled = "" if code is None else f"{code.co_code.hex()} {_plain(code.co_consts)!r}"
    try:
        return inspect.getsource(thing) + compiled
    except (OSError, TypeError):
        return f"{getattr(thing, '__qualname__', type(thing).__qualname__)} {compiled}"


def _plain(value: Any) -> Any:
    """Keep what prints the same in every process."""
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if _is_settings(value) and not isinstance(value, dict):
        return _plain(vars(value))
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in sorted(value.items(), key=lambda item: str(item[0]))}
    if isinstance(value, np.generic):
        return value.item()
    return value if isinstance(value, _PLAIN) else type(value).__qualname__
