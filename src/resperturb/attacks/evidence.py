"""The evidence of an attacker: the target's answers, and statistics of the shadow models' answers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import expit

from resperturb.attacks.moments import Extremes, Moments, trimmed
from resperturb.attacks.signals import Access, Signals, View
from resperturb.bounds.arrays import Bools, Floats, Ints, Singles

Answers = Mapping[Access, Signals]

# The edges between which the modified entropies of shadow models are counted.
ENTROPY_EDGES = np.geomspace(1e-9, 100.0, 241)


@dataclass(eq=False)
class ClassCounts:
    """How often a signal of shadows' members, and of their non-members, fell between two edges, for every class."""

    inside: Ints
    outside: Ints

    @classmethod
    def empty(cls) -> "ClassCounts":
        """Start without any class."""
        none = np.zeros((0, ENTROPY_EDGES.size + 1), dtype=np.int64)
        return cls(none, none.copy())

    def add(self, values: Floats, labels: Ints, members: Bools, outside: Bools, sign: int = 1) -> None:
        """Count one shadow's signal of every row."""
        missing = int(labels.max(initial=-1)) + 1 - len(self.inside)
        if missing > 0:
            more = np.zeros((missing, self.inside.shape[1]), dtype=np.int64)
            self.inside, self.outside = (np.concatenate([counts, more]) for counts in (self.inside, self.outside))
        bins = np.searchsorted(ENTROPY_EDGES, values, side="right")
        np.add.at(self.inside, (labels[members], bins[members]), sign)
        np.add.at(self.outside, (labels[outside], bins[outside]), sign)


@dataclass(frozen=True, eq=False)
class ShadowStatistics:
    """Statistics of the shadow models' answers about every row: moments of each view, with and without the row.

    ``extremes`` are the extreme values of the statistic, ``probabilities`` the moments of the label's probability,
    ``entropies`` the modified entropies of every class. Shadow models are added one at a time, and their number does
    not change the size.
    """

    inside: dict[View, Moments]
    outside: dict[View, Moments]
    extremes: dict[View, tuple[Extremes, Extremes]]
    probabilities: dict[View, tuple[Moments, Moments]]
    entropies: dict[View, ClassCounts]

    @classmethod
    def empty(cls, views: Iterable[View], rows: int) -> "ShadowStatistics":
        """Start without any shadow model."""
        seen = list(views)
        averaged = [view for view in seen if view.combination == "mean logit"]
        return cls(
            {view: Moments.empty(rows, view.dimensions) for view in seen},
            {view: Moments.empty(rows, view.dimensions) for view in seen},
            {view: (Extremes.empty(rows, view.dimensions), Extremes.empty(rows, view.dimensions)) for view in seen},
            {view: (Moments.empty(rows, 1), Moments.empty(rows, 1)) for view in averaged},
            {view: ClassCounts.empty() for view in averaged},
        )

    def change(self, answers: Answers, members: Bools, about: Bools | None = None, *, add: bool = True) -> None:
        """Add the answers of one shadow model, or remove them again; they may be evidence ``about`` some rows alone.

        At most one model may be removed per row and side before the extremes are read.
        """
        change = "add" if add else "remove"
        inside = members if about is None else members & about
        outside = ~members if about is None else ~members & about
        for view in self.inside:
            signals = answers[view.access]
            statistic = signals.statistic(view)
            for moments, extremes, where in zip(
                (self.inside[view], self.outside[view]), self.extremes[view], (inside, outside), strict=True
            ):
                getattr(moments, change)(statistic, where)
                getattr(extremes, change)(statistic, where)
            if view in self.probabilities:
                with_it, without_it = self.probabilities[view]
                getattr(with_it, change)(expit(statistic), inside)
                getattr(without_it, change)(expit(statistic), outside)
                entropy = signals.average("modified_entropy", view.draws)
                self.entropies[view].add(entropy, signals.labels, inside, outside, 1 if add else -1)


class Each(Protocol):
    """Reads what single shadow models answer."""

    def __call__(self, view: View, signal: str = "") -> tuple[Singles, Bools]:
        """Return values of every shadow model and the rows that it was trained on.

        They are those of an averaged signal, such as ``top``, or of the view's statistic where ``signal`` is empty.

        Returns:
            Values ``[S, R, d]`` and membership ``[S, R]``; candidates are the first rows.
        """


@dataclass(frozen=True, eq=False)
class Evidence:
    """The target's answers, statistics of the shadow models, and the number of candidates.

    Attributes:
        answers: The target's answers about every row.
        shadows: The shadow models' statistics; None without shadow models.
        count: The number of candidates, which come first; the other rows are the population, which no model was
            trained on.
        each: For attacks that need single shadow models, whose answers are read when it is called.
    """

    answers: Answers
    shadows: ShadowStatistics | None
    count: int
    each: Each | None = None

    def target(self, view: View) -> Floats:
        """Return the target's statistic of every candidate."""
        return self.answers[view.access].statistic(view)[: self.count]

    def labels(self, view: View) -> Ints:
        """Return the label of every candidate."""
        return self.answers[view.access].labels[: self.count]

    def moments(self, view: View) -> tuple[Moments, Moments]:
        """Return the moments of the shadow models with and without every candidate."""
        shadows = self.known_shadows()
        return shadows.inside[view].first(self.count), shadows.outside[view].first(self.count)

    def trimmed_moments(self, view: View) -> tuple[Moments, Moments]:
        """Return the same without the lowest and the highest shadow model of every candidate."""
        with_it, without_it = self.known_shadows().extremes[view]
        inside, outside = self.moments(view)
        return trimmed(inside, with_it.first(self.count)), trimmed(outside, without_it.first(self.count))

    def known_shadows(self) -> ShadowStatistics:
        """Return the shadow models' statistics, for attacks that need them."""
        assert self.shadows is not None
        return self.shadows
