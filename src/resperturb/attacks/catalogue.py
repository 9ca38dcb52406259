"""Which attacks an audit runs: every registered attack on every view of the answers that it makes sense on."""

from collections.abc import Sequence
from dataclasses import dataclass

from resperturb.attacks.registry import ATTACKS, Attack
from resperturb.attacks.signals import Combination, Query, View

# Fixed before anything is measured, for every model and number of shadow models. BaVarIA is good with few of them and
# with many.
BOUNDING = ("bavaria", "rmia-online")
BOUNDING_WITHOUT_SHADOWS = ("loss", "modified-entropy")
# Each bounding attack has two views, "served" with the most draws and "weights". The error is split over all four
# even where a model has no second view, so that bounds of different models compare.
BOUNDING_VIEWS = 2
FIXED = ("loss", "lira-online-global", "label-only")


@dataclass(frozen=True)
class PlannedAttack:
    """An attack on one view of the answers.

    ``fixed`` attacks are chosen before anything is measured: their scores are kept, and a leak is judged by them.
    Epsilon is bounded by those of them that are ``bounding``.
    """

    name: str
    view: View
    fixed: bool = False
    bounding: bool = False

    @property
    def published(self) -> Attack:
        """The attack by its registration."""
        return ATTACKS[self.name]


def views(queries: Sequence[Query]) -> list[View]:
    """List all ways to combine the answers to the queries of a model.

    >>> [str(view) for view in views([Query("served", (1, 4))])][-2:]
    ['served, 4 draws, spread', 'served, 4 draws, votes']
    """
    found = []
    for query in queries:
        for draws in query.averages:
            combinations: tuple[Combination, ...] = ("mean logit",)
            if query.access == "networks":
                combinations = ("mean log-probability", "spread")
            elif query.access == "augmented":
                combinations = ("mean logit", "votes", "each")
            elif draws > 1:
                combinations = ("mean logit", "mean log-probability", "spread", "votes")
            found += [View(query.access, draws, combination) for combination in combinations]
    return found


def error_shares(shadows: int, more: Sequence[str] = ()) -> int:
    """Count the shares that the error of the bounds on epsilon is split into.

    >>> error_shares(16), error_shares(0), error_shares(16, ["my-attack"])
    (4, 4, 6)
    """
    bounding = BOUNDING if shadows else BOUNDING_WITHOUT_SHADOWS
    return BOUNDING_VIEWS * len({*bounding, *more})


def attacks_on(
    seen: Sequence[View], shadows: int, more: Sequence[str] = (), population: bool = True
) -> list[PlannedAttack]:
    """List all attacks on these views, with this number of shadow models and with or without a population.

    ``more`` names attacks that bound epsilon besides the default ones.

    >>> [attack.name for attack in attacks_on(views([Query("served")]), shadows=0) if attack.bounding]
    ['loss', 'modified-entropy']
    >>> [attack.name for attack in attacks_on(views([Query("served")]), shadows=4) if attack.bounding]
    ['bavaria', 'rmia-online']
    """
    most = max((view.draws for view in seen if view.access == "served"), default=0)
    # One primary view of the model as it is served, and one of its weights: the same for every model.
    primary = [
        view
        for view in seen
        if view.combination == "mean logit"
        and (view.access == "weights" or (view.access, view.draws) == ("served", most))
    ]
    bounding = {*(BOUNDING if shadows else BOUNDING_WITHOUT_SHADOWS), *more}
    votes = [view for view in seen if view.access == "served" and view.draws == most and view.combination == "votes"]
    fixed_views = dict.fromkeys((*FIXED, *bounding), primary) | {"label-only": votes or primary[:1]}
    return [
        PlannedAttack(
            name, view, fixed=view in fixed_views.get(name, ()), bounding=name in bounding and view in primary
        )
        for view in seen
        for name in _fitting(view)
        if (shadows or not ATTACKS[name].shadows) and (population or "population" not in ATTACKS[name].needs)
    ]


def _fitting(view: View) -> list[str]:
    """The attacks that make sense on a view."""
    # One answer is a vote as well.
    ways = {view.combination, "votes"} if view.combination == "mean logit" and view.draws == 1 else {view.combination}
    return [name for name in ATTACKS if ways & set(ATTACKS[name].combinations)]
