"""What is known of a value in a method that is read and not run: the tensors it derives from, and how far."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

# How much happened between a tensor and a value that derives from it: reshaping, dropout and scaling do not count
# (PLAIN); normalisation and pooling change little (LIGHT); one weighted layer without an activation is how shortcuts
# change their shape (PROJECTION), seldom several (LINEAR); more is a BRANCH; an elementwise product of two functions
# of it is GATED, a matrix product of two is attention (PRODUCT), until a weighted layer makes a branch of both.
PLAIN, LIGHT, PROJECTION, LINEAR, BRANCH, GATED, PRODUCT = range(7)

Step = Callable[[int], int]


def unchanged(level: int) -> int:
    """The step of what does not count."""
    return level


def lightly_changed(level: int) -> int:
    """The step of a layer that normalises or pools."""
    return max(level, LIGHT)


def weighted(level: int) -> int:
    """The step of one weighted layer.

    >>> weighted(LIGHT) == PROJECTION, weighted(PROJECTION) == LINEAR, weighted(BRANCH) == weighted(PRODUCT) == BRANCH
    (True, True, True)
    """
    return PROJECTION if level < PROJECTION else min(max(level, LINEAR), BRANCH)


def activated(level: int) -> int:
    """The step of an activation: it makes a projection a branch, and leaves a shortcut a shortcut."""
    return level if level < PROJECTION else max(level, BRANCH)


def transformed(level: int) -> int:
    """The step of something with weights that cannot be looked into."""
    return BRANCH


def multiplied(level: int) -> int:
    """The step of a matrix product of tensors."""
    return PRODUCT


@dataclass(frozen=True)
class Path:
    """How a value derives from a tensor: at ``least`` and at ``most`` this far, through submodules of these names.

    A name comes with the identity of the module that has the submodule.
    """

    least: int = PLAIN
    most: int = PLAIN
    names: frozenset[tuple[int, str]] = frozenset()


@dataclass(frozen=True)
class Value:
    """The tensors in a value (by number), the Python objects it may be, its parts, and what iterating it gives.

    ``entries`` are those of a dict whose keys are written out, ``stacked`` the tensors that were stacked to one;
    ``is_unsure`` is an entry of a dict under a key that is not known.
    """

    paths: Mapping[int, Path] = field(default_factory=dict)
    objects: tuple[Any, ...] = ()
    parts: "tuple[Value, ...] | None" = None
    item: "Value | None" = None
    is_sequence: bool = False
    name: str = ""
    entries: "Mapping[Any, Value] | None" = None
    stacked: "tuple[Value, ...] | None" = None
    is_dict: bool = False
    is_unsure: bool = False


NOTHING = Value()


def either(values: Iterable[Value]) -> Value:
    """A value that is one of ``values``, depending on the way that the code takes."""
    values = [value for value in values if value is not NOTHING]
    if len(values) <= 1:
        return values[0] if values else NOTHING
    paths: dict[int, Path] = {}
    for value in values:
        for tensor, path in value.paths.items():
            other = paths.get(tensor, path)
            paths[tensor] = Path(min(path.least, other.least), max(path.most, other.most), path.names | other.names)
    parts = None
    if all(value.parts is not None for value in values) and len({len(value.parts or ()) for value in values}) == 1:
        parts = tuple(either(column) for column in zip(*(value.parts or () for value in values), strict=True))
    items = [value.item for value in values if value.item is not None]
    objects = tuple({id(thing): thing for value in values for thing in value.objects}.values())
    names = {value.name for value in values if value.name}
    return Value(
        paths,
        objects,
        parts,
        either(items) if items else None,
        any(value.is_sequence for value in values),
        names.pop() if len(names) == 1 else "",
        _either_entries(values),
        next((value.stacked for value in values if value.stacked is not None), None),
        any(value.is_dict for value in values),
        any(value.is_unsure for value in values),
    )


def _either_entries(values: list[Value]) -> Mapping[Any, Value] | None:
    entries = [value.entries for value in values if value.entries is not None]
    return {key: either(e[key] for e in entries if key in e) for e in entries for key in e} if entries else None


def mixed(values: Iterable[Value], step: Step = unchanged) -> Value:
    """A value computed from all of ``values``, one ``step`` further than the furthest of them."""
    paths: dict[int, Path] = {}
    for value in values:
        for tensor, path in value.paths.items():
            other = paths.get(tensor, path)
            paths[tensor] = Path(max(path.least, other.least), max(path.most, other.most), path.names | other.names)
    return Value({tensor: replace(p, least=step(p.least), most=step(p.most)) for tensor, p in paths.items()})


def product(left: Value, right: Value) -> Value:
    """Scaling by what is no function of the same tensor leaves a shortcut plain; a gate does not."""
    shared = left.paths.keys() & right.paths.keys()
    paths = mixed([left, right]).paths
    gated = {
        t: replace(p, least=max(p.least, GATED), most=max(p.most, GATED))
        for t, p in paths.items()
        if t in shared and p.most > PLAIN
    }
    return Value({**paths, **gated})
