"""Things that can be added by one file: each registers under a name, in this package or in another.

A registry imports the modules of its own package when it is first asked, and what other installed packages offer
under its entry point group. Importing a module registers what it defines.
"""

import difflib
import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path
from threading import RLock
from typing import Any, Generic, TypeVar, cast

from resperturb.errors import UsageError

T = TypeVar("T")
S = TypeVar("S")


class Registry(Generic[T]):
    """Things of one kind by name.

    Args:
        kind: What they are, for error messages: ``"training method"``.
        group: The entry point group through which other packages add theirs: ``"resperturb.methods"``.
        package: The package whose modules register the built-in ones. Other rooms of this package register theirs in
            a module of the group's name, such as ``training/folders.py`` for ``"resperturb.folders"``.

    >>> shapes = Registry[type]("shape", group="resperturb.doctest")
    >>> @shapes.register("circle")
    ... class Circle: ...
    >>> shapes.names(), shapes["circle"] is Circle, Circle.name
    (('circle',), True, 'circle')
    >>> shapes["square"]
    Traceback (most recent call last):
    ...
    resperturb.errors.UsageError: unknown shape 'square'; known are circle.
    """

    def __init__(self, kind: str, group: str, package: str | None = None) -> None:
        self.kind, self.group, self.package = kind, group, package
        self._found: dict[str, T] = {}
        self._broken: list[str] = []
        self._loaded = False
        self._lock = RLock()

    def register(self, name: str) -> Callable[[S], S]:
        """Return a decorator that registers what it decorates under ``name``; a class then has it as ``name``.

        Raises:
            UsageError: If another object has this name already.
        """

        def add(thing: S) -> S:
            present = self._found.get(name)
            if present is not None and _origin(present) != _origin(thing):
                raise UsageError(
                    f"there is a {self.kind} {name!r} already ({_origin(present)}); give {_origin(thing)} another."
                )
            if isinstance(thing, type):
                cast(Any, thing).name = name
            self._found[name] = cast(T, thing)
            return thing

        return add

    def names(self) -> tuple[str, ...]:
        """Return all names, sorted."""
        self._load()
        return tuple(sorted(self._found))

    def problems(self) -> str:
        """Say what could not be imported, one sentence per module; empty if everything could."""
        self._load()
        return " ".join(self._broken)

    def __contains__(self, name: object) -> bool:
        self._load()
        return name in self._found

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __getitem__(self, name: str) -> T:
        """Return what is registered under ``name``.

        Raises:
            UsageError: If nothing is; the message lists what there is.
        """
        self._load()
        if name not in self._found:
            close = difflib.get_close_matches(str(name), self.names(), n=1)
            hint = f"did you mean {close[0]!r}? Known" if close else "known"
            raise UsageError(
                f"unknown {self.kind} {name!r}; {hint} are {', '.join(self.names())}. {self.problems()}".rstrip()
            )
        return self._found[name]

    def _load(self) -> None:
        with self._lock:
            if self._loaded:
                return
            self._loaded = True  # before the imports, which may ask again
            if self.package is not None:
                package = importlib.import_module(self.package)
                for module in pkgutil.iter_modules(package.__path__):
                    importlib.import_module(f"{self.package}.{module.name}")
            file = f"{self.group.rpartition('.')[2]}.py"
            for path in sorted(Path(__file__).parent.glob(f"*/{file}")):
                module_name = f"resperturb.{path.parent.name}.{path.stem}"
                self._try(module_name, partial(importlib.import_module, module_name))
            for entry in installed_entries(tuple(sys.path)).select(group=self.group):
                self._try(entry.value, entry.load)

    def _try(self, module: str, load: Callable[[], Any]) -> None:
        try:
            load()
        except Exception as error:  # one broken module, or a missing extra, must not take the others with it
            self._broken.append(f"{module} cannot be imported ({error}).")


@cache
def installed_entries(path: tuple[str, ...]) -> EntryPoints:
    """Read the entry points of all packages on a path, once: for 150 packages that takes 20 ms."""
    return cast(EntryPoints, entry_points())  # in Python 3.11 of another type, with the same method


def _origin(thing: object) -> str:
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{named.__module__}.{named.__qualname__}"


def users_function(module: str, name: str, what: object) -> Callable[..., Any]:
    """Import a function of a user's own, from an installed package or from the current folder.

    ``what`` says what it is for, for the message.

    Raises:
        UsageError: There is no such module, or no such function in it.

    >>> users_function("math", "sqrt", "--training")(4.0)
    2.0
    """
    if str(Path.cwd()) not in sys.path:  # the console script does not look there, `python -m` does
        sys.path.append(str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError as error:
        raise UsageError(
            f"the module {module!r} of {what} cannot be imported: {error}. Install it, or give the command in the "
            "folder that it is in."
        ) from error
    if not callable(found):
        raise UsageError(f"{module} has no function {name!r} for {what}.")
    function: Callable[..., Any] = found
    return function
