"""Where shortcut and branch meet: the additions of a network that the noise goes to.

Blocks of this package end their sum with :func:`join`, and are known by that alone. In other people's networks the
sums are found in the source of their methods (:mod:`resperturb.perturbation.sums`), and a module that is perturbed
gets methods that call :func:`junction_sum` for them. Unperturbed, both are plain sums; a perturbed module has a
:class:`Slot` there. Nothing is wrapped, and the ``state_dict`` stays as it was.
"""

import inspect
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor, fx, nn

from resperturb.errors import UsageError
from resperturb.perturbation.sums import find_sums
from resperturb.perturbation.sums.rewrite import Addition, RewriteError, noisy_additions, replace_additions

_SLOTS = "_junction_noise"
_JOIN = "join"


class JunctionNoise(Protocol):
    """What :func:`perturb` leaves at a junction."""

    def __call__(self, left: Tensor, right: Tensor | None, shortcut: Tensor | None, training: bool) -> Tensor:
        """Return ``left + right`` with noise.

        Args:
            left: One side of the sum, or the sum itself.
            right: The other side, with the shape and type of ``left``; None if ``left`` is the sum itself.
            shortcut: The side that is the shortcut; None where a network has no skip connections.
            training: Whether the module is in training mode.
        """


class HasJunction(nn.Module):
    """A module class whose ``forward`` ends its residual sum with :func:`join`."""

    has_shortcut: bool = True


@dataclass
class Slot:
    """The noise at a junction, for blocks that :func:`join` or for an addition in other people's methods.

    ``label`` tells the junctions of one module apart, and ``live`` is whether the module came there when it was
    perturbed.
    """

    noise: JunctionNoise
    addition: Addition | None
    label: str = ""
    live: bool = True


@dataclass(frozen=True)
class Junction:
    """One place where shortcut and branch meet, by the name of the module that adds them.

    ``text`` is the line of source that adds, ``reason`` why it is a junction, ``problem`` what is not understood
    about it (empty if nothing is), ``label`` what tells it from others of the module, and ``live`` whether this
    instance of the module ever comes there.
    """

    name: str
    module: nn.Module
    has_shortcut: bool = True
    text: str = ""
    reason: str = ""
    problem: str = ""
    live: bool = True
    addition: Addition | None = None
    label: str = ""

    def __repr__(self) -> str:
        return f"{self.name}: {self.text} ({self.problem or self.reason})"

    def __str__(self) -> str:
        return f"{self.name}: {self.text}" if self.text else self.name

    @property
    def key(self) -> str:
        """What the module asks for the noise of this junction with."""
        return _JOIN if self.addition is None else self.addition.key

    @property
    def noise(self) -> JunctionNoise | None:
        """What perturbs this junction, if anything does."""
        slot = None if self.problem and self.addition is None else _slot(self.module, self.key)
        return None if slot is None else slot.noise

    def set_noise(self, noise: JunctionNoise) -> None:
        """Put noise here.

        Raises:
            UsageError: The sum cannot be replaced.
        """
        set_noise([self], noise)


class Junctions(list[Junction]):
    """A list of junctions that prints one line for each: where it is, what it adds, and why it is one."""

    def __repr__(self) -> str:
        return "\n".join(repr(junction) for junction in self) or "no junctions"


def set_noise(chosen: Sequence[Junction], noise: JunctionNoise) -> None:
    """Put noise at all of these junctions, or, if one of them cannot be replaced, at none.

    Raises:
        UsageError: A sum cannot be replaced.
    """
    by_module: dict[int, list[Junction]] = {}
    for junction in chosen:
        by_module.setdefault(id(junction.module), []).append(junction)
    for try_only in (True, False):
        for group in by_module.values():
            additions = [junction.addition for junction in group if junction.addition is not None]
            if additions:
                try:
                    replace_additions(group[0].module, additions, junction_sum, try_only=try_only)
                except RewriteError as error:
                    texts = ", ".join(repr(addition.text) for addition in additions)
                    raise UsageError(f"cannot put noise on {texts}: {error}.") from error
    for junction in chosen:
        slot = Slot(noise, junction.addition, junction.label, junction.live)
        setattr(junction.module, _SLOTS, {**getattr(junction.module, _SLOTS, {}), junction.key: slot})
        setattr(junction.module, "__prepare_scriptable__", refuse_scripting)  # noqa: B010


def refuse_scripting() -> None:
    """Called by ``torch.jit.script``, which would compile the source of a module, and the noise is not in that."""
    raise UsageError("torch.jit.script would lose the noise of a perturbed model; use torch.export or torch.compile.")


def join(module: nn.Module, shortcut: Tensor | None, branch: Tensor) -> Tensor:
    """Add ``branch`` to ``shortcut`` in the forward pass of ``module``, with the module's noise if it has some.

    Args:
        module: The block, a :class:`HasJunction`.
        shortcut: Its input, or a projection of it; None for a network without skip connections.
        branch: What the block computed.
    """
    slot = _slot(module, _JOIN)
    if slot is None:
        return branch if shortcut is None else shortcut + branch
    if shortcut is None:
        return slot.noise(branch, None, None, module.training)
    if _are_alike(shortcut, branch):
        return slot.noise(shortcut, branch, shortcut, module.training)
    return slot.noise(shortcut + branch, None, shortcut, module.training)


def _are_alike(left: Any, right: Any) -> bool:
    """Whether two sides can be added element by element: neither is a number, a proxy, or broadcast."""
    tensors = isinstance(left, Tensor) and isinstance(right, Tensor)
    return tensors and left.shape == right.shape and left.dtype == right.dtype and left.is_floating_point()


def _is_floating(total: Any) -> bool:
    """Whether a sum is of floating-point numbers, as far as a proxy of torch.fx tells."""
    return isinstance(total, fx.Proxy) or (isinstance(total, Tensor) and total.is_floating_point())


def junction_sum(
    module: nn.Module, key: str, left: Any, right: Any, *, alpha: Any = 1, in_place: bool = False
) -> Any:
    """Do an addition in a method of ``module``, with the noise of the junction if it is one.

    A sum in place stays one: it is written into the left tensor, which aliases, views and callers may read.
    """
    slot = _slot(module, key)
    if slot is None or slot.addition is None:
        if alpha != 1:
            return left.add_(right, alpha=alpha) if in_place else torch.add(left, right, alpha=alpha)
        if in_place:
            left += right
            return left
        return left + right
    total = _noisy_sum(module, slot.noise, slot.addition, left, alpha * right if alpha != 1 else right, in_place)
    return left.copy_(total) if in_place and isinstance(left, Tensor | fx.Proxy) else total


def _noisy_sum(
    module: nn.Module, noise: JunctionNoise, addition: Addition, left: Any, right: Any, in_place: bool
) -> Any:
    """Return the sum with noise, and leave both sides as they are."""
    shortcut = left if addition.shortcut == "left" else right
    if _are_alike(left, right):
        return noise(left, right, shortcut, module.training)
    total = left + right
    if in_place and isinstance(left, Tensor):
        total = total.to(left.dtype)
    if not _is_floating(total):
        raise UsageError(
            f"{addition.text!r} in {type(module).__name__} adds no floating-point tensors; name the junctions "
            "to perturb with targets=[...]."
        )
    return noise(total, None, shortcut, module.training)


def _slot(module: nn.Module, key: str) -> Slot | None:
    slots: dict[str, Slot] | None = getattr(module, _SLOTS, None)
    return None if slots is None else slots.get(key)


def slots_of(model: nn.Module) -> list[tuple[str, nn.Module, Slot]]:
    """List what perturbs ``model`` by the names of its junctions, without looking for junctions."""
    return [
        (_name(name, module, slot.label), module, slot)
        for name, module in model.named_modules()
        for slot in getattr(module, _SLOTS, {}).values()
    ]


def is_reached(module: nn.Module, slot: Slot) -> bool:
    """Whether the code that asks for the noise of a slot is still the one that the module runs."""
    if slot.addition is None:
        return True
    return slot.addition in noisy_additions(module) and not _shadowed(module, slot.addition.method)


def _shadowed(module: nn.Module, method: str) -> bool:
    """Whether another method was put on the instance that does not lead to the one of its class."""
    if method not in vars(module):
        return False
    kept = [vars(module)[method], *(v for v in vars(module).values() if getattr(v, "__self__", None) is module)]
    functions = [getattr(value, "__func__", None) for one in kept for value in (one, inspect.unwrap(one))]
    return getattr(type(module), method) not in functions


def junctions(model: nn.Module) -> Junctions:
    """List the junctions that ``model`` reaches and that are understood; printed, the list says why each is one.

    The model is read and not run. A module with several junctions is named with what its branch goes through:
    ``encoder.layer.0:attention``.

    >>> from resperturb import models
    >>> [junction.name for junction in junctions(models.build("resnet8", num_classes=10))]
    ['blocks.0', 'blocks.1', 'blocks.2']
    """
    return Junctions(junction for junction in all_sums(model) if junction.live and not junction.problem)


def all_sums(model: nn.Module) -> list[Junction]:
    """List the junctions with what looks like one but is not understood, and with what this instance never runs."""
    names = {id(module): name for name, module in model.named_modules()}
    found: dict[int, list[tuple[str, Junction]]] = {}
    for module in model.modules():
        if isinstance(module, HasJunction):
            own = Junction("", module, module.has_shortcut, "join(...)", "its class says so by HasJunction")
            found.setdefault(id(module), []).append(("", own))
    for s in find_sums(model):
        addition = Addition(s.owner, s.method, s.index, s.text, s.shortcut) if s.index is not None else None
        problem = s.problem if addition is not None else s.problem or "it cannot be replaced"
        junction = Junction("", s.module, True, s.text, s.reason, problem, s.live, addition)
        found.setdefault(id(s.module), []).append((_largest(s.module, s.branch), junction))
    return [
        replace(junction, label=label, name=_name(names[id(module)], module, label))
        for module in model.modules()
        for label, junction in _labelled(found.get(id(module), []))
    ]


def _name(path: str, module: nn.Module, label: str) -> str:
    name = path or type(module).__name__
    return f"{name}:{label}" if label else name


def _labelled(found: list[tuple[str, Junction]]) -> list[tuple[str, Junction]]:
    """Tell the junctions of one module apart."""
    live = [junction for _, junction in found if junction.live]
    if len(found) == 1 or (len(live) == 1 and found):
        return [("" if j.live or len(found) == 1 else str(i), j) for i, (_, j) in enumerate(found)]
    uses = Counter(label for label, junction in found if junction.live)
    return [(label if label and j.live and uses[label] == 1 else str(i), j) for i, (label, j) in enumerate(found)]


def _largest(module: nn.Module, names: tuple[str, ...]) -> str:
    """The submodule with the most weights, which says best what a branch does."""
    sizes = {
        name: sum(p.numel() for p in child.parameters())
        for name in names
        if isinstance(child := getattr(module, name, None), nn.Module)
    }
    return max(sizes, key=lambda name: sizes[name], default="")
