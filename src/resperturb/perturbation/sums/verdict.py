"""Is a sum residual, and which side is the shortcut?"""

import re
from dataclasses import dataclass
from typing import Literal, TypeVar

from resperturb.perturbation.sums.values import LIGHT, MIXED, PLAIN, PROJECTION, Path, Value

Side = Literal["left", "right"]

SHORTCUT_NAME = re.compile(r"shortcut|skip|downsample|identity|residual|proj|input_tensor|res_?conv|match|adapt")
UNRELATED_NAME = re.compile(r"mask|bias|pos|emb|rel|time|cond|cache|state")

T = TypeVar("T")
Names = frozenset[tuple[int, str]]


@dataclass(frozen=True)
class Verdict:
    """The side of the shortcut, what is not understood (empty if all is), and the submodules of the branch."""

    shortcut: Side | None
    problem: str
    branch: Names
    has_layers: bool = True


def judge(left: Value, right: Value, arguments_are_unrelated: bool) -> Verdict | None:
    """Judge the sum of two values; None if it does not look residual.

    >>> judge(Value({0: Path()}), Value({0: Path(PROJECTION, PROJECTION)}), False)
    Verdict(shortcut='left', problem='', branch=frozenset(), has_layers=True)
    >>> judge(Value({0: Path()}), Value({1: Path(PROJECTION, PROJECTION)}), False) is None
    True
    """
    shared = sorted(left.paths.keys() & right.paths.keys(), reverse=True)
    unclear: Verdict | None = None
    explained = False
    for tensor in shared:  # the latest first
        a, b = left.paths[tensor], right.paths[tensor]
        if a.most == PLAIN and b.most == PLAIN:
            explained = True
        elif (verdict := _plain_shortcut(a, b) or _projected_shortcut(a, b, left.name, right.name)) is not None:
            return verdict
        elif not explained or a.names != b.names:  # else both sides come from a later tensor, and it did all this
            problem = (
                "both sides are transformed" if max(a.most, b.most) < MIXED else "a side is a product of tensors"
            )
            unclear = unclear or Verdict(None, problem, a.names ^ b.names)
    if not shared and arguments_are_unrelated:
        return _shortcut_from_caller(left, right)
    return unclear


def _plain_shortcut(a: Path, b: Path) -> Verdict | None:
    for shortcut, branch, side in _both_ways(a, b):
        if shortcut.least == PLAIN and (branch.least > PLAIN or shortcut.most == PLAIN):
            return Verdict(side, "", branch.names - shortcut.names, has_layers=branch.most > LIGHT)
    return None


def _projected_shortcut(a: Path, b: Path, *names: str) -> Verdict | None:
    for (shortcut, branch, side), name in zip(_both_ways(a, b), names, strict=True):
        only_here, only_there = shortcut.names - branch.names, branch.names - shortcut.names
        lighter = shortcut.most <= PROJECTION and shortcut.most < branch.least
        named = SHORTCUT_NAME.search(name) or _names_shortcut(only_here)
        if branch.most < MIXED and (lighter or (named and not _names_shortcut(only_there))):
            return Verdict(side, "", only_there)
    return None


def _shortcut_from_caller(left: Value, right: Value) -> Verdict | None:
    """Judge a sum of functions of two arguments, one of which may be the shortcut that a caller handed in."""
    for shortcut, branch, side in _both_ways(left, right):
        untouched = shortcut.paths and all(path.most == PLAIN for path in shortcut.paths.values())
        ways = branch.paths.values()
        through_layers = any(path.least > PLAIN for path in ways) and not any(path.least == MIXED for path in ways)
        if untouched and through_layers and shortcut.name and not UNRELATED_NAME.search(shortcut.name):
            problem = "" if SHORTCUT_NAME.search(shortcut.name) else f"{shortcut.name!r} comes from the caller"
            return Verdict(side, problem, frozenset(name for path in ways for name in path.names))
    return None


def _names_shortcut(names: Names) -> bool:
    return any(SHORTCUT_NAME.search(name) for _, name in names)


def _both_ways(a: T, b: T) -> tuple[tuple[T, T, Side], tuple[T, T, Side]]:
    return (a, b, "left"), (b, a, "right")
