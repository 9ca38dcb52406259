"""Defences: named ways to leak less, with strengths, and their registry.

A defence changes the configuration of a training, or what the model answers its users. Adding one is one file in
``frontiers/defences`` with ``register_defence``; another package adds one through the entry point group
``resperturb.defences``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from resperturb.bounds.arrays import Floats
from resperturb.errors import UsageError
from resperturb.registry import Registry

Level = float | None
Canary = Literal["mislabelled", "near_duplicate", "blank", "out_of_distribution"]
# Log-probabilities [rows, C] of the records, and of one random input for each: what users are answered.
Serve = Callable[[Floats, Floats], Floats]
Change = Callable[[Level, Mapping[str, Any]], Mapping[str, Any]]


@dataclass(frozen=True)
class Defence:
    """A way to leak less.

    Attributes:
        title: Name in figures and sentences.
        strengths: From weak to strong; ``(None,)`` where there is nothing to set.
        change: Returns the fields of ``TrainConfig`` that a strength changes. It gets the recipe without a defence.
        ordinary: Whether it is ordinary regularisation, which other defences must beat to be worth having.
        formal: Whether it gives a guarantee, at whatever epsilon; others are compared with it at their accuracy.
        canary: The kind of canary that exposes it most.
        serve: What it does to the answers at prediction time; None if nothing.
    """

    title: str
    strengths: tuple[Level, ...]
    change: Change
    ordinary: bool = False
    formal: bool = False
    canary: Canary = "mislabelled"
    serve: Serve | None = None

    def __post_init__(self) -> None:
        # The registry tells two defences of one name apart by where they come from.
        object.__setattr__(self, "__module__", self.change.__module__)
        object.__setattr__(self, "__qualname__", f"{self.change.__qualname__} {self.title}")


DEFENCES: Registry[Defence] = Registry(
    "defence", group="resperturb.defences", package="resperturb.frontiers.defences"
)


def register_defence(name: str, defence: Defence) -> Defence:
    """Register a defence under its name on the command line."""
    return DEFENCES.register(name)(defence)


@dataclass(frozen=True)
class Setting:
    """A defence at one strength.

    Attributes:
        name: Name in figures and sentences, such as ``dropout 0.2``.
        defence: Name of its defence; settings of one defence share it.
        ordinary: Whether it is ordinary regularisation, which other defences are compared with.
        formal: Whether it is a method with a guarantee, which heuristics are compared with.
        strength: What was set, as a number; None where there is nothing to set.
        canary: The kind of canary that exposes it most; empty for all kinds together.
    """

    name: str
    defence: str
    ordinary: bool = False
    formal: bool = False
    strength: float | None = None
    canary: str = ""

    @property
    def values(self) -> dict[str, Any]:
        """The fields of a setting, without what a subclass adds."""
        return {one.name: getattr(self, one.name) for one in fields(Setting)}

    def applied(self, recipe: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a recipe with the change of the defence, which is registered.

        >>> settings_of(("weight-decay:5e-3",))[1].applied({"epochs": 40})
        {'epochs': 40, 'weight_decay': 0.005}
        """
        return {**recipe, **DEFENCES[self.defence].change(self.strength, recipe)}


def settings_of(defences: tuple[str, ...] = (), strengths: int = 3) -> tuple[Setting, ...]:
    """List the settings of a study: no defence first, then ordinary regularisation, then the others.

    Args:
        defences: Names, or names with a strength such as ``dropout:0.2``; all that are registered if empty.
        strengths: The most strengths of each that is named without one.

    >>> [one.name for one in settings_of(("dropout", "additive:0.7"), strengths=2)]
    ['no defence', 'dropout 0.1', 'dropout 0.5', 'additive noise 0.7']
    """
    if strengths < 1:
        raise UsageError(f"each defence needs at least one strength, not {strengths}.")
    found = []
    for asked in ("none", *(defences or DEFENCES)):
        name, _, level = asked.partition(":")
        levels = (_strength(asked, level),) if level else spread(DEFENCES[name].strengths, strengths)
        found += [_at(name, one) for one in levels]
    return tuple(sorted(dict.fromkeys(found), key=lambda one: (one.defence != "none", not one.ordinary)))


def _at(name: str, level: Level) -> Setting:
    defence = DEFENCES[name]
    title = defence.title if level is None else f"{defence.title} {level:g}"
    return Setting(title, name, defence.ordinary, defence.formal, level, defence.canary)


def _strength(asked: str, level: str) -> float:
    name = asked.partition(":")[0]
    if DEFENCES[name].strengths == (None,):
        raise UsageError(f"{name} has no strength to set; leave out {':' + level!r}.")
    try:
        return float(level)
    except ValueError:
        raise UsageError(
            f"the strength of {name} is a number, such as {name}:{DEFENCES[name].strengths[0]:g}, not {level!r}."
        ) from None


def spread(levels: tuple[Level, ...], most: int) -> tuple[Level, ...]:
    """Choose at most ``count`` levels, the weakest and the strongest among them.

    >>> spread((1, 2, 3, 4, 5), 3), spread((1, 2, 3), 1)
    ((1, 3, 5), (2,))
    """
    if len(levels) <= most:
        return levels
    if most == 1:
        return (levels[len(levels) // 2],)
    return tuple(levels[round(place * (len(levels) - 1) / (most - 1))] for place in range(most))
