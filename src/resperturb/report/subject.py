"""What a report knows of a model besides its audit, whatever trained it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from resperturb.bounds.arrays import Ints
from resperturb.privacy import Guarantee


@dataclass(frozen=True)
class Fact:
    """A setting of a training.

    Attributes:
        value: Its value in words; empty where the setting does not apply.
        compared: Whether a difference between two models is worth a mark: no two have the same time.
        reviewers_only: Whether it says which data it was, or lets someone with the data make the model again.
    """

    label: str
    value: str
    compared: bool = True
    reviewers_only: bool = False


@dataclass(frozen=True)
class Epoch:
    """A point of the training curves; an accuracy is None where it was not measured, or is not published."""

    number: int
    train_accuracy: float | None
    test_accuracy: float | None


@dataclass(frozen=True)
class Picture:
    """A training record that can be shown, as a PNG file."""

    place: int
    label: str
    png: bytes


Pictures = Callable[[Ints, int], Sequence[Picture]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """A model that is reported.

    Attributes:
        defence: What keeps it from leaking, in a word or two: ``additive 0.5``, ``none``; empty where not known.
        description: What was trained, where no more is known of it.
        level: The strength of the defence; 0 without any.
        network: The network in a word; empty where it is not known.
        train_accuracy: Accuracy on its training records; None where it is not published.
        test_accuracy: Accuracy on records that it was not trained on.
        seconds: Time of the training; None where it is not known.
        guarantee: Gives what is proven, at a delta or at the defence's own.
        facts: The settings of the training, in order.
        curves: Accuracies over the epochs.
        raw: Configuration and result, for reviewers.
        pictures: Shows training records, given by their places among the members.
        audit_command: How to audit it, by an option (``shadows``, ``models`` to leave one out) and its value; None
            where a recipe is needed that is not known.
    """

    name: str
    defence: str
    train_accuracy: float | None
    test_accuracy: float
    guarantee: Callable[[float | None], Guarantee]
    description: str = ""
    level: float = 0.0
    network: str = ""
    seconds: float | None = None
    facts: tuple[Fact, ...] = ()
    curves: tuple[Epoch, ...] = ()
    raw: dict[str, Any] = field(default_factory=dict)
    pictures: Pictures = lambda rows, members: ()
    audit_command: Callable[[str, int], str] | None

    @property
    def gap(self) -> float | None:
        """How much better it is on members; None where that is not published."""
        return None if self.train_accuracy is None else self.train_accuracy - self.test_accuracy
