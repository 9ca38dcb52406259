"""What a lower bound on epsilon says: the number, for which delta, how sure, and under which assumptions."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple


class Confusion(NamedTuple):
    """Counts of one threshold, among the scores that a bound was computed from."""

    tp: int
    fp: int
    members: int
    nonmembers: int


class Guesses(NamedTuple):
    """What a one-run attack guessed: numbers of canaries *in* and *out*, and of right guesses."""

    guessed_in: int
    guessed_out: int
    correct: int
    canaries: int


@dataclass(frozen=True)
class LowerBound:
    """A statement of the form: epsilon is at least this, at this delta, with this confidence, if these hold.

    An epsilon of 0 says nothing was shown; it never says that there is no leak. ``unmet`` holds what the data say
    against the assumptions; then nothing is claimed. ``mu`` is the Gaussian parameter, where one was refuted.

    ``neighbours`` says which two data sets the bound is about, ``unit`` whether they differ by a record or by a
    ``group`` (all records of one person). Bounds may be compared only where these, ``candidates`` and ``correction``
    agree. ``attack`` names the attack that showed it.
    """

    epsilon: float
    delta: float
    confidence: float
    method: str
    selection: str
    threshold: float | None
    direction: str | None
    counts: Confusion | Guesses
    assumptions: tuple[str, ...]
    unmet: tuple[str, ...] = ()
    mu: float | None = None
    neighbours: Literal["add_remove", "swap"] = "add_remove"
    unit: Literal["record", "group"] = "record"
    candidates: int | None = None
    attack: str | None = None
    correction: str = ""

    @property
    def words(self) -> str:
        """The bound as a person would say it."""
        how_sure = f"at delta {self.delta:g}, with {100 * self.confidence:g}% confidence"
        if self.unmet:
            return f"no bound on epsilon: {self.unmet[0].removesuffix('.')}"
        if self.epsilon == 0:
            return f"no epsilon above 0 {how_sure}"
        return f"epsilon at least {self.epsilon:.3g} {how_sure}"

    @property
    def measured(self) -> str:
        """What it is about and how it was measured, in words: two that differ in this may not be compared."""
        changed = "the swap of" if self.neighbours == "swap" else "adding or removing"
        among = "" if self.candidates is None else f", {self.candidates} candidates"
        corrected = f", {self.correction}" if self.correction else ""
        return f"for {changed} a {self.unit}{among}{corrected}"

    def comparable(self, other: "LowerBound") -> bool:
        """Whether two bounds measure the same thing and may stand in one column."""
        keys = ("delta", "confidence", "method", "neighbours", "unit", "candidates", "correction")
        return all(getattr(self, key) == getattr(other, key) for key in keys)

    def to_dict(self) -> dict[str, Any]:
        """Return everything by name, ready for JSON.

        >>> bound = LowerBound(1.5, 1e-5, 0.95, "given", "", 0.0, "accept", Confusion(9, 1, 10, 10), ("honest",))
        >>> bound.to_dict()["counts"]
        {'tp': 9, 'fp': 1, 'members': 10, 'nonmembers': 10}
        """
        lists = {"assumptions": list(self.assumptions), "unmet": list(self.unmet)}
        return {**vars(self), **lists, "counts": self.counts._asdict()}


SAME_POPULATION = (
    "Chance alone decided which records were members: members and non-members come from the same population."
)
INDEPENDENT = (
    "The scores are independent of each other, as when each comes from a model trained anew; canaries that share a "
    "model are not, and a one-run bound is the one for them."
)
RANDOM_INCLUSION = (
    "Each canary was put into the training data with probability 1/2, independently of all others, and scored by a "
    "model trained once on the result."
)
GAUSSIAN_CURVE = (
    "The mechanism's privacy curve is that of a Gaussian mechanism; if it is not, its epsilon at this delta may be "
    "smaller than this."
)
