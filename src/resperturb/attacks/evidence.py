"""What an attacker has: the answers of the target, and what shadow models say about every row."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from resperturb.attacks.moments import Extremes, Moments, trimmed
from resperturb.attacks.signals import Access, Signals, View

Answers = Mapping[Access, Signals]

# The modified entropies at which shadows' members and non-members are counted.
ENTROPY_EDGES = np.geomspace(1e-9, 100.0, 241)


@dataclass(eq=False)
class ClassCounts:
    """How often a signal of shadows' members, and of their non-members, fell between two edges, for every class."""

    inside: NDArray[np.int64]
    outside: NDArray[np.int64]

    @classmethod
    def empty(cls) -> "ClassCounts":
        """Start without any class."""
        none = np.zeros((0, ENTROPY_EDGES.size + 1), dtype=np.int64)
        return cls(none, none.copy())

    def add(self, values: NDArray[np.float64], labels: NDArray[np.int64], members: NDArray[np.bool_]) -> None:
        """Take in one shadow's signal of every row."""
        missing = int(labels.max(initial=-1)) + 1 - len(self.inside)
        if missing > 0:
            more = np.zeros((missing, self.inside.shape[1]), dtype=np.int64)
            self.inside, self.outside = (np.concatenate([counts, more]) for counts in (self.inside, self.outside))
        bins = np.searchsorted(ENTROPY_EDGES, values, side="right")
        np.add.at(self.inside, (labels[members], bins[members]), 1)
        np.add.at(self.outside, (labels[~members], bins[~members]), 1)


@dataclass(frozen=True, eq=False)
class ShadowStatistics:
    """What shadow models say about every row: moments of each view's statistic, with and without the row.

    ``extremes`` are the lowest and the highest value of the statistic, ``probabilities`` the moments of the label's
    probability, ``entropies`` the modified entropies of every class. Shadows are taken in one at a time, and what is
    kept does not grow with their number.
    """

    inside: dict[View, Moments]
    outside: dict[View, Moments]
    extremes: dict[View, tuple[Extremes, Extremes]]
    probabilities: dict[View, tuple[Moments, Moments]]
    entropies: dict[View, ClassCounts]

    @classmethod
    def empty(cls, views: Iterable[View], rows: int) -> "ShadowStatistics":
        """Start without any shadow."""
        seen = list(views)
        averaged = [view for view in seen if view.combination == "mean logit"]
        return cls(
            {view: Moments.empty(rows, view.dimensions) for view in seen},
            {view: Moments.empty(rows, view.dimensions) for view in seen},
            {view: (Extremes.empty(rows, view.dimensions), Extremes.empty(rows, view.dimensions)) for view in seen},
            {view: (Moments.empty(rows, 1), Moments.empty(rows, 1)) for view in averaged},
            {view: ClassCounts.empty() for view in averaged},
        )

    def add(self, answers: Answers, members: NDArray[np.bool_]) -> None:
        """Take in the answers of one shadow, which was trained on ``members``."""
        for view in self.inside:
            signals = answers[view.access]
            statistic = signals.statistic(view)
            for moments, extremes, where in zip(
                (self.inside[view], self.outside[view]), self.extremes[view], (members, ~members), strict=True
            ):
                moments.add(statistic, where)
                extremes.add(statistic, where)
            if view in self.probabilities:
                with_it, without_it = self.probabilities[view]
                with_it.add(expit(statistic), members)
                without_it.add(expit(statistic), ~members)
                self.entropies[view].add(signals.average("modified_entropy", view.draws), signals.labels, members)


@dataclass(frozen=True, eq=False)
class Evidence:
    """What an attacker has: the target's answers, the shadows' (None without), and which rows are candidates.

    The first ``count`` rows are candidates; the rest are the population, which no model was trained on.
    """

    answers: Answers
    shadows: ShadowStatistics | None
    count: int

    def target(self, view: View) -> NDArray[np.float64]:
        """The target's statistic of every candidate."""
        return self.answers[view.access].statistic(view)[: self.count]

    def labels(self, view: View) -> NDArray[np.int64]:
        """The label of every candidate."""
        return self.answers[view.access].labels[: self.count]

    def moments(self, view: View) -> tuple[Moments, Moments]:
        """The shadows' moments of every candidate: with it, without it."""
        shadows = self.known_shadows()
        return shadows.inside[view].first(self.count), shadows.outside[view].first(self.count)

    def trimmed_moments(self, view: View) -> tuple[Moments, Moments]:
        """The same without the lowest and the highest shadow of every candidate."""
        with_it, without_it = self.known_shadows().extremes[view]
        inside, outside = self.moments(view)
        return trimmed(inside, with_it.first(self.count)), trimmed(outside, without_it.first(self.count))

    def known_shadows(self) -> ShadowStatistics:
        """The shadows' statistics, for methods that need them."""
        assert self.shadows is not None
        return self.shadows
