"""The rules that decide whether a sum is a junction, and which side of it is the shortcut.

Both sides of a sum are known by how far they are from the tensors that they derive from (:mod:`.values`): as it was
(PLAIN), normalised or pooled (LIGHT), through one weighted layer (PROJECTION), through several without an activation
(LINEAR), through more (BRANCH), multiplied elementwise with another function of it (GATED), or by a matrix product
with one (PRODUCT). For each tensor that both sides derive from, the latest first, the first rule that says something
decides:

1. ``alike``: both sides are the tensor as it was, so that the sum is a rotation, a shift or a mean: no junction.
2. ``plain_shortcut``: one side is the tensor as it was, the other is not: a junction.
3. ``projected_shortcut``: one side went through linear layers at most, the other through more: a junction.
4. ``one_linear_layer``: both sides went through one layer and no more, as the convolutions of RepVGG or the two heads
   of a distilled network do; their sum is one linear layer: no junction.
5. ``attention``: a side is a matrix product, and the other is not the tensor as it was: attention scores or values
   with what their positions add: no junction.
6. Anything else is *unclear*, and a model with an unclear sum is refused.

Names of variables decide nothing. A sum whose sides derive from no common tensor is no junction; but where a module
adds what a caller gave it to a function of something else that the caller gave it (``from_caller``), and no call of
the module could be followed, that is not known, and unclear.
"""

from dataclasses import dataclass
from typing import Literal, TypeVar

from resperturb.perturbation.sums.values import BRANCH, LIGHT, LINEAR, PLAIN, PRODUCT, PROJECTION, Path, Value

Side = Literal["left", "right"]

T = TypeVar("T")
Submodules = frozenset[tuple[int, str]]


@dataclass(frozen=True)
class Judgement:
    """The side of the shortcut, why it is a junction or what is not understood, and the submodules of the branch."""

    shortcut: Side | None
    reason: str
    problem: str
    branch: Submodules
    is_nonlinear: bool = True


def judge(left: Value, right: Value) -> Judgement | None:
    """Judge the sum of two values; None if it is no junction.

    >>> judge(Value({0: Path()}), Value({0: Path(BRANCH, BRANCH)})).shortcut
    'left'
    >>> judge(Value({0: Path()}), Value({1: Path(BRANCH, BRANCH)})) is None
    True
    """
    unclear: Judgement | None = None
    explained: Submodules = frozenset()
    settled = False
    for tensor in sorted(left.paths.keys() & right.paths.keys(), reverse=True):  # the latest first
        a, b = left.paths[tensor], right.paths[tensor]
        difference = a.names ^ b.names
        if alike(a, b) or one_linear_layer(a, b) or attention(a, b):
            explained, settled = explained | difference, True
        elif (judgement := plain_shortcut(a, b) or projected_shortcut(a, b)) is not None:
            return judgement
        elif not settled or difference - explained:  # else both sides come from a later tensor, and it did all this
            gate = "a side is a gate" if max(a.most, b.most) > BRANCH else "both sides are transformed"
            unclear = unclear or Judgement(None, "", gate, difference)
    return unclear


def alike(a: Path, b: Path) -> bool:
    """Rule 1: both sides are the tensor as it was."""
    return a.most == PLAIN and b.most == PLAIN


def plain_shortcut(a: Path, b: Path) -> Judgement | None:
    """Rule 2: one side is the tensor as it was, on every way or where the other is not."""
    for shortcut, branch, side in _both_ways(a, b):
        if shortcut.least == PLAIN and (branch.least > PLAIN or shortcut.most == PLAIN):
            through = branch.names - shortcut.names
            reason = f"the {side} side is what the other is computed from{_by(through)}"
            return Judgement(side, reason, "", through, is_nonlinear=branch.most > PROJECTION)
    return None


def projected_shortcut(a: Path, b: Path) -> Judgement | None:
    """Rule 3: one side went through linear layers at most, and the other through more."""
    for shortcut, branch, side in _both_ways(a, b):
        if shortcut.most <= LINEAR and shortcut.most < branch.least and branch.most <= BRANCH:
            through = branch.names - shortcut.names
            reason = f"the {side} side is a projection of what the other is computed from{_by(through)}"
            return Judgement(side, reason, "", through, is_nonlinear=branch.most > PROJECTION)
    return None


def one_linear_layer(a: Path, b: Path) -> bool:
    """Rule 4: both sides went through one weighted layer, and no more."""
    return a.least == a.most == b.least == b.most == PROJECTION


def attention(a: Path, b: Path) -> bool:
    """Rule 5: a side is a matrix product, and the other is not the tensor as it was."""
    return max(a.most, b.most) == PRODUCT and min(a.least, b.least) > PLAIN


def from_caller(left: Value, right: Value) -> Side | None:
    """Say which side is an argument as it was, if the other is a function of other arguments through layers."""
    for shortcut, branch, side in _both_ways(left, right):
        untouched = shortcut.paths and all(path.most == PLAIN for path in shortcut.paths.values())
        if untouched and any(LIGHT < path.least <= BRANCH for path in branch.paths.values()):
            return side
    return None


def _by(names: Submodules) -> str:
    return f" through {', '.join(sorted(name for _, name in names))}" if names else ""


def _both_ways(a: T, b: T) -> tuple[tuple[T, T, Side], tuple[T, T, Side]]:
    return (a, b, "left"), (b, a, "right")
