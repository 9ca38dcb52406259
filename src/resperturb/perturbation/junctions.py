"""Where shortcut and branch meet: the places of a network that the noise goes to.

Blocks of this package end their sum with :func:`join`. In other people's networks the sums are found in the source of
their methods (:mod:`resperturb.perturbation.sums`), and those methods are made to call :func:`add` for them.
Unperturbed, both are plain sums; a perturbed model has a :class:`Slot` there. Nothing is wrapped, and the
``state_dict`` stays as it was.
"""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor, fx, nn

from resperturb.errors import UsageError
from resperturb.perturbation.sums import Side, find_sums
from resperturb.perturbation.sums.rewrite import RewriteError, rewrite

_SLOTS = "_junction_noise"
_JOIN = "join"


class JunctionNoise(Protocol):
    """What :func:`perturb` leaves at a junction."""

    def __call__(self, total: Tensor, shortcut: Tensor | None, training: bool) -> Tensor:
        """Add the noise to the sum ``total``; ``shortcut`` is None where a network has no skip connections."""


class HasJunction(nn.Module):
    """A module class whose ``forward`` ends its residual sum with :func:`join`."""

    has_shortcut: bool = True


@dataclass(frozen=True)
class Place:
    """An addition in a method of somebody else's module, and the side of it that is the shortcut."""

    owner: type
    method: str
    index: int
    text: str
    shortcut: Side | None

    def arm(self) -> str:
        """Make the method call :func:`add` here, and return the key that it calls it with."""
        try:
            return rewrite(self.owner, self.method, self.index, self.text, add)
        except RewriteError as error:
            raise UsageError(f"cannot put noise on {self.text!r}: {error}.") from error


@dataclass
class Slot:
    """The noise at a junction, for blocks that :func:`join` (no place) or for a place in other people's methods."""

    noise: JunctionNoise
    place: Place | None

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self.place is not None:
            self.place.arm()  # this may be another process than the one that perturbed the model


@dataclass(frozen=True)
class Junction:
    """One place where shortcut and branch meet, by the name of the module that adds them.

    ``text`` is the line of source that adds, ``problem`` says what is not understood about it (empty if nothing is),
    and ``live`` whether this instance of the module ever comes there.
    """

    name: str
    module: nn.Module
    has_shortcut: bool = True
    text: str = ""
    problem: str = ""
    live: bool = True
    place: Place | None = None

    def __str__(self) -> str:
        return f"{self.name}: {self.text}" if self.text else self.name

    @property
    def noise(self) -> JunctionNoise | None:
        """What perturbs this junction, if anything does."""
        slots: dict[str, Slot] = getattr(self.module, _SLOTS, {})
        if self.place is None:
            slot = None if self.problem else slots.get(_JOIN)
        else:
            slot = next((slot for slot in slots.values() if slot.place == self.place), None)
        return None if slot is None else slot.noise

    def arm(self) -> str:
        """Make the module ask for noise here, and return the key that it asks with."""
        return _JOIN if self.place is None else self.place.arm()

    def set_noise(self, noise: JunctionNoise) -> None:
        """Put noise here."""
        slots = {**getattr(self.module, _SLOTS, {}), self.arm(): Slot(noise, self.place)}
        setattr(self.module, _SLOTS, slots)
        setattr(self.module, "__prepare_scriptable__", refuse_scripting)  # noqa: B010


def refuse_scripting() -> None:
    """Called by ``torch.jit.script``, which would compile the source of a module, and the noise is not in that."""
    raise UsageError("torch.jit.script would lose the noise of a perturbed model; use torch.export or torch.compile.")


def join(module: nn.Module, shortcut: Tensor | None, branch: Tensor) -> Tensor:
    """Add ``branch`` to ``shortcut`` in the forward pass of ``module``, with the module's noise if it has some."""
    total = branch if shortcut is None else shortcut + branch
    slot = _slot(module, _JOIN)
    return total if slot is None else slot.noise(total, shortcut, module.training)


def add(module: nn.Module, key: str, left: Any, right: Any, *, alpha: Any = 1, in_place: bool = False) -> Any:
    """Do an addition in a method of ``module``, with the noise of the junction if it is one.

    A sum in place stays one without noise. With noise it leaves both sides as they are, and its value has the type of
    the left one as before.
    """
    slot = _slot(module, key)
    if slot is None or slot.place is None:
        if alpha != 1:
            return left.add_(right, alpha=alpha) if in_place else torch.add(left, right, alpha=alpha)
        if in_place:
            left += right
            return left
        return left + right
    if alpha != 1:
        right = alpha * right
    total = left + right
    if not isinstance(total, Tensor | fx.Proxy) or (isinstance(total, Tensor) and not total.is_floating_point()):
        raise UsageError(
            f"{slot.place.text!r} in {type(module).__name__} adds no floating-point tensors; name the junctions to "
            "perturb with targets=[...]."
        )
    if in_place and isinstance(total, Tensor) and total.dtype != left.dtype:
        total = total.to(left.dtype)
    return slot.noise(total, left if slot.place.shortcut == "left" else right, module.training)


def _slot(module: nn.Module, key: str) -> Slot | None:
    slots: dict[str, Slot] | None = getattr(module, _SLOTS, None)
    return None if slots is None else slots.get(key)


def slots_of(model: nn.Module) -> list[Slot]:
    """List what perturbs ``model``, without looking for junctions."""
    return [slot for module in model.modules() for slot in getattr(module, _SLOTS, {}).values()]


def junctions(model: nn.Module) -> list[Junction]:
    """List the junctions of ``model`` in the order of its modules.

    A module with several is named with what its branch goes through: ``encoder.layer.0:attention``.

    >>> from resperturb import models
    >>> [junction.name for junction in junctions(models.build("resnet8", num_classes=10))]
    ['blocks.0', 'blocks.1', 'blocks.2']
    """
    return [junction for junction in all_sums(model) if junction.live and not junction.problem]


def all_sums(model: nn.Module) -> list[Junction]:
    """List the junctions with what looks like one but is not understood, and with what this instance never runs."""
    names = {id(module): name or type(module).__name__ for name, module in model.named_modules()}
    found: dict[int, list[tuple[str, Junction]]] = {}
    for module in model.modules():
        if isinstance(module, HasJunction):
            own = Junction(names[id(module)], module, has_shortcut=module.has_shortcut)
            found.setdefault(id(module), []).append(("", own))
    for s in find_sums(model):
        place = Place(s.owner, s.method, s.index, s.text, s.shortcut) if s.index is not None else None
        problem = s.problem if place is not None else s.problem or "it cannot be replaced"
        junction = Junction(names[id(s.module)], s.module, True, s.text, problem, s.live, place)
        found.setdefault(id(s.module), []).append((_largest(s.module, s.branch), junction))
    return [named for module in model.modules() for named in _named(found.get(id(module), []))]


def _named(found: list[tuple[str, Junction]]) -> list[Junction]:
    """Tell the junctions of one module apart."""
    live = [junction for _, junction in found if junction.live]
    if len(found) == 1 or (len(live) == 1 and found):
        return [
            j if j.live or len(found) == 1 else replace(j, name=f"{j.name}:{i}") for i, (_, j) in enumerate(found)
        ]
    uses = Counter(label for label, junction in found if junction.live)
    return [
        replace(j, name=f"{j.name}:{label if label and j.live and uses[label] == 1 else i}")
        for i, (label, j) in enumerate(found)
    ]


def _largest(module: nn.Module, names: tuple[str, ...]) -> str:
    """The submodule with the most weights, which says best what a branch does."""
    sizes = {
        name: sum(p.numel() for p in child.parameters())
        for name in names
        if isinstance(child := getattr(module, name, None), nn.Module)
    }
    return max(sizes, key=lambda name: sizes[name], default="")
