"""Every attack of an audit: what it is called, who published it, which answers it sees, and how it scores them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from resperturb.attacks.lira import Form, Variance, lira_offline, lira_online
from resperturb.attacks.moments import Moments
from resperturb.attacks.rmia import offline_average, online_average, rmia
from resperturb.attacks.signals import Access, Combination, Query, Signals, View, log_sigmoid
from resperturb.auditing.scores import Scores

YEOM = "Yeom et al. 2018 (arXiv:1709.01604)"
SALEM = "Salem et al. 2018 (arXiv:1806.01246)"
SONG = "Song and Mittal 2021 (arXiv:2003.10595)"
CHOQUETTE = "Choquette-Choo et al. 2021 (arXiv:2007.14321)"
CARLINI = "Carlini et al. 2022 (arXiv:2112.03570)"
ZARIFZADEH = "Zarifzadeh et al. 2024 (arXiv:2312.03262)"

# From so many shadow models on the variance of each record is known better than that of all together.
MANY_SHADOWS = 64
# With fewer the two means of a record are known so badly that LiRA often takes one for the other.
ENOUGH_FOR_TWO_MEANS = 16

Asked = Mapping[Access, Signals]


@dataclass(frozen=True, eq=False)
class ShadowStatistics:
    """What shadow models say about every row: moments of each view's statistic, with and without the row.

    ``probabilities`` are the moments of the label's probability. Shadows are taken in one at a time.
    """

    inside: dict[View, Moments]
    outside: dict[View, Moments]
    probabilities: dict[View, tuple[Moments, Moments]]

    @classmethod
    def empty(cls, views: Iterable[View], rows: int) -> "ShadowStatistics":
        """Start without any shadow."""
        dimensions = {view: 2 if view.combination == "spread" else 1 for view in views}
        return cls(
            {view: Moments.empty(rows, number) for view, number in dimensions.items()},
            {view: Moments.empty(rows, number) for view, number in dimensions.items()},
            {
                view: (Moments.empty(rows, 1), Moments.empty(rows, 1))
                for view in dimensions
                if view.combination == "mean logit"
            },
        )

    def add(self, asked: Asked, members: NDArray[np.bool_]) -> None:
        """Take in the answers of one shadow, which was trained on ``members``."""
        for view, inside in self.inside.items():
            statistic = asked[view.access].statistic(view)
            inside.add(statistic, members)
            self.outside[view].add(statistic, ~members)
            if view in self.probabilities:
                with_it, without_it = self.probabilities[view]
                with_it.add(expit(statistic), members)
                without_it.add(expit(statistic), ~members)


@dataclass(frozen=True, eq=False)
class Evidence:
    """What an attacker has: the target's answers, the shadows' (None without), and which rows are candidates.

    The first ``count`` rows are candidates; the rest are outsiders.
    """

    asked: Asked
    shadows: ShadowStatistics | None
    count: int

    def target(self, view: View) -> NDArray[np.float64]:
        """The target's statistic of every candidate."""
        return self.asked[view.access].statistic(view)[: self.count]

    def moments(self, view: View) -> tuple[Moments, Moments]:
        """The shadows' moments of every candidate: with it, without it."""
        assert self.shadows is not None
        return self.shadows.inside[view].first(self.count), self.shadows.outside[view].first(self.count)


def _loss(evidence: Evidence, view: View) -> Scores:
    return log_sigmoid(evidence.target(view)[:, 0])


def _averaged(name: str, sign: float) -> Callable[[Evidence, View], Scores]:
    return lambda evidence, view: sign * evidence.asked[view.access].average(name, view.draws)[: evidence.count]


def _votes(evidence: Evidence, view: View) -> Scores:
    shares: Scores = evidence.asked[view.access].correct[: evidence.count, : view.draws].mean(axis=1)
    return shares


def _online(variance: Variance) -> Callable[[Evidence, View], Scores]:
    return lambda evidence, view: lira_online(evidence.target(view), *evidence.moments(view), variance)


def _offline(variance: Variance, form: Form) -> Callable[[Evidence, View], Scores]:
    return lambda evidence, view: lira_offline(evidence.target(view), evidence.moments(view)[1], variance, form)


def _rmia(know_inside: bool) -> Callable[[Evidence, View], Scores]:
    def score(evidence: Evidence, view: View) -> Scores:
        assert evidence.shadows is not None
        count = evidence.count
        target = expit(evidence.asked[view.access].statistic(view)[:, 0])
        with_it, without_it = (moments.mean[:, 0] for moments in evidence.shadows.probabilities[view])
        # Nobody was trained on the outsiders, so for them the average is a guess in either form.
        typical = offline_average(without_it)
        own = online_average(with_it, without_it) if know_inside else typical
        return rmia(target[:count], own[:count], target[count:], typical[count:])

    return score


@dataclass(frozen=True)
class Method:
    """A published attack: who it is by, whether it needs shadow models, and its score of each candidate."""

    reference: str
    shadows: bool
    score: Callable[[Evidence, View], Scores]


METHODS: dict[str, Method] = {
    "loss": Method(YEOM, False, _loss),
    "confidence": Method(SALEM, False, _averaged("highest", 1.0)),
    "entropy": Method(SALEM, False, _averaged("entropy", -1.0)),
    "modified-entropy": Method(SONG, False, _averaged("modified_entropy", -1.0)),
    "label-only": Method(CHOQUETTE, False, _votes),
    "lira-online": Method(CARLINI, True, _online("record")),
    "lira-online-global": Method(CARLINI, True, _online("global")),
    "lira-offline": Method(CARLINI, True, _offline("record", "tail")),
    "lira-offline-global": Method(CARLINI, True, _offline("global", "tail")),
    "lira-offline-density": Method(CARLINI, True, _offline("record", "density")),
    "rmia-online": Method(ZARIFZADEH, True, _rmia(know_inside=True)),
    "rmia-offline": Method(ZARIFZADEH, True, _rmia(know_inside=False)),
}


@dataclass(frozen=True)
class Attack:
    """A method on one view of the answers.

    ``headline`` attacks are fixed before anything is measured; they are kept for the report, and epsilon is bounded
    by those of them that are ``bounding``.
    """

    name: str
    view: View
    headline: bool = False
    bounding: bool = False

    @property
    def key(self) -> str:
        """A name for files.

        >>> Attack("loss", View("noise on", 4)).key
        'loss-noise-on-4-draws-mean-logit'
        """
        return "-".join([self.name, *str(self.view).replace(",", "").split()])

    @property
    def method(self) -> Method:
        """How it is done."""
        return METHODS[self.name]


def views(queries: Sequence[Query]) -> list[View]:
    """All ways to combine the answers to ``queries``.

    >>> [str(view) for view in views([Query("noise on", (1, 4))])][-2:]
    ['noise on, 4 draws, spread', 'noise on, 4 draws, votes']
    """
    found = []
    for query in queries:
        for draws in query.averages:
            combinations: tuple[Combination, ...] = ("mean logit",)
            if query.access == "members apart":
                combinations = ("mean log-probability", "spread")
            elif draws > 1:
                combinations = ("mean logit", "mean log-probability", "spread", "votes")
            found += [View(query.access, draws, combination) for combination in combinations]
    return found


def attacks_on(seen: Sequence[View], shadows: int) -> list[Attack]:
    """List all attacks on these views, given so many shadow models (none: those that do without).

    >>> [attack.name for attack in attacks_on(views([Query("noise off")]), shadows=0) if attack.bounding]
    ['loss', 'modified-entropy']
    >>> [attack.name for attack in attacks_on(views([Query("noise off")]), shadows=4) if attack.bounding]
    ['lira-offline-global', 'rmia-online']
    >>> [attack.name for attack in attacks_on(views([Query("noise off")]), shadows=16) if attack.bounding]
    ['lira-online-global', 'rmia-online']
    """
    most = max((view.draws for view in seen if view.access == "noise on"), default=0)
    best = {
        view for view in seen if view.access != "noise on" or (view.draws == most and view.combination != "votes")
    }
    best -= {view for view in seen if view.combination == "mean log-probability"}
    if shadows >= ENOUGH_FOR_TWO_MEANS:
        bounding = {"lira-online" if shadows >= MANY_SHADOWS else "lira-online-global", "rmia-online"}
    else:
        bounding = {"lira-offline-global", "rmia-online"} if shadows else {"loss", "modified-entropy"}
    headlines = {"loss", *bounding}
    votes = {view for view in seen if view.draws == max(most, 1) and view.combination in ("votes", "mean logit")}

    def is_headline(name: str, view: View) -> bool:
        return view in votes if name == "label-only" else view in best and name in headlines

    return [
        Attack(name, view, is_headline(name, view), view in best and name in bounding)
        for view in seen
        for name in _fitting(view)
        if shadows or not METHODS[name].shadows
    ]


def _fitting(view: View) -> Sequence[str]:
    """The methods that make sense on a view."""
    if view.combination == "mean logit":
        label_only = [] if view.draws > 1 else ["label-only"]
        return [name for name in METHODS if name != "label-only"] + label_only
    if view.combination == "mean log-probability":
        return ["loss", "lira-online", "lira-online-global"]
    return [*(["label-only"] if view.combination == "votes" else []), "lira-online", "lira-online-global"]
