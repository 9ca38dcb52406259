"""Attacks by name: each is one file with its formula and its registration, in this package or in another."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from resperturb.attacks.evidence import Evidence
from resperturb.attacks.signals import Combination, View
from resperturb.bounds.scores import Scores
from resperturb.errors import ResperturbError
from resperturb.registry import Registry

Score = Callable[[Evidence, View], Scores]
Need = Literal["shadows", "population", "each"]


class AttackFailedError(ResperturbError):
    """An attack that learns did not learn, so its scores would mean nothing; the audit leaves it out and says so."""


@dataclass(frozen=True)
class Attack:
    """A published attack: who it is by, what it needs, which views it makes sense on, and its score per candidate."""

    reference: str
    needs: frozenset[Need]
    combinations: tuple[Combination, ...]
    score: Score

    def __post_init__(self) -> None:
        # The registry tells two attacks of one name apart by where they come from.
        for name in ("__module__", "__qualname__"):
            object.__setattr__(self, name, getattr(self.score, name))

    @property
    def shadows(self) -> bool:
        """Whether it needs shadow models."""
        return bool(self.needs & {"shadows", "each"})


ATTACKS = Registry[Attack]("attack", group="resperturb.attacks", package="resperturb.attacks")


def register_attack(
    name: str,
    reference: str,
    *,
    needs: Iterable[Need] = (),
    combinations: tuple[Combination, ...] = ("mean logit",),
) -> Callable[[Score], Score]:
    """Return a decorator that registers a function of evidence and view, which scores every candidate.

    Args:
        name: What it is called in results.
        reference: Who published it.
        needs: ``"shadows"`` if it reads ``evidence.shadows``, ``"population"`` if it compares with the population,
            ``"each"`` if it reads the values of single shadow models by ``evidence.each``.
        combinations: The ways to combine draws on which it makes sense.

    Raises:
        UsageError: If another attack has this name.

    >>> ATTACKS["loss"].reference
    'Yeom et al. 2018 (arXiv:1709.01604)'
    """

    def add(score: Score) -> Score:
        ATTACKS.register(name)(Attack(reference, frozenset(needs), combinations, score))
        return score

    return add
