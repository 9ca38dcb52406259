"""What can be audited: anything that fits models on given rows and answers queries about rows."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from resperturb.attacks.signals import Query
from resperturb.bounds.arrays import Floats, Ints
from resperturb.engine.task import Shared
from resperturb.privacy import Guarantee, nothing_proven


@dataclass(frozen=True, eq=False)
class Job:
    """One model to fit.

    Attributes:
        number: Its number among the K models of the design; 0 is the first target.
        rows: The row numbers to train on, sorted; a fresh copy.
        seed: Seed of the training. The two models of a pair share it, and no other model has it.
        folder: Folder of the trainee's own for this model; it may hold what the trainee left there before.
        shared: What :meth:`Trainee.shared` packed, where it arrived in this process.
        accelerator: What the engine has room for: ``cpu``, or ``auto`` where there may be a GPU.
    """

    number: int
    rows: Ints
    seed: int
    folder: Path
    shared: Any | None = None
    accelerator: str = "auto"


class Fitted(Protocol):
    """A fitted model that can be queried, or one of its checkpoints."""

    @property
    def stage(self) -> str:
        """Name of the checkpoint, such as ``epoch-010``; any name for the model itself."""

    @property
    def digest(self) -> str:
        """Digest of the weights; empty where there is nothing to name."""

    def queries(self, some: Ints, draws: tuple[int, ...]) -> tuple[Query, ...]:
        """Return the queries that make sense; ``some`` rows are there to try whether answers repeat."""

    def outputs(self, rows: Ints, query: Query) -> Iterator[Floats]:
        """Yield the log-probabilities ``[rows, classes]`` of every draw, in the order of ``rows``.

        They are finite. Training mode and random generators are left as they were.
        """


class Trainee(Protocol):
    """What is audited. It can be pickled by cloudpickle."""

    @property
    def name(self) -> str:
        """Name in headlines."""

    @property
    def description(self) -> str:
        """What it trains, in a few words."""

    def digest(self) -> str:
        """Return a digest of code and data: equal digests promise comparable models."""

    def fit(self, job: Job) -> Iterator[Fitted]:
        """Fit a fresh model on exactly the rows of the job, and write nowhere but to its folder.

        Yields:
            The model, after its checkpoints if there are any.
        """

    def guarantee(self, delta: float, records: int) -> Guarantee:
        """Return what is proven of a model that was fitted on this number of rows."""

    def shared(self) -> Shared | None:
        """Return data that many jobs of one machine read in place; None if there are none."""


def weakest_guarantee(trainee: Trainee, delta: float, records: Iterable[int]) -> Guarantee:
    """Return what is proven of every one of several models, fitted on these numbers of rows.

    Neither the fewest rows nor the most need have the largest epsilon: DP-SGD on one row more may take a step more.
    """
    proven = [trainee.guarantee(delta, count) for count in sorted(set(records))]
    return max(proven, key=lambda one: one.claimed_epsilon)


class Claims:
    """The part of a trainee that proves what its user claims, and whose data stay with the user."""

    claimed: Guarantee | None

    def guarantee(self, delta: float, records: int) -> Guarantee:
        """Return what is claimed."""
        return self.claimed or nothing_proven("No guarantee was given for this training.", delta)

    def shared(self) -> Shared | None:
        """Return nothing."""
        return None
