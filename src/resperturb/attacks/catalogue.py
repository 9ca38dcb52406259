"""Which attacks an audit runs: every registered attack on every view of the answers that it makes sense on."""

from collections.abc import Sequence
from dataclasses import dataclass

from resperturb.attacks.registry import ATTACKS, Attack
from resperturb.attacks.signals import Combination, Query, View

# Fixed before anything is measured. BaVarIA is good with few shadows and with many, so their number decides nothing.
BOUNDING = frozenset({"bavaria", "rmia-online"})
BOUNDING_WITHOUT_SHADOWS = frozenset({"loss", "modified-entropy"})
HEADLINES = frozenset({"loss", "lira-online-global"})


@dataclass(frozen=True)
class PlannedAttack:
    """An attack on one view of the answers.

    ``headline`` attacks are fixed before anything is measured; they are kept for the report, and epsilon is bounded
    by those of them that are ``bounding``.
    """

    name: str
    view: View
    headline: bool = False
    bounding: bool = False

    @property
    def published(self) -> Attack:
        """The attack by its registration."""
        return ATTACKS[self.name]


def views(queries: Sequence[Query]) -> list[View]:
    """List all ways to combine the answers to ``queries``.

    Args:
        queries: How a model is asked.

    Returns:
        The views of its answers.

    >>> [str(view) for view in views([Query("noise on", (1, 4))])][-2:]
    ['noise on, 4 draws, spread', 'noise on, 4 draws, votes']
    """
    found = []
    for query in queries:
        for draws in query.averages:
            combinations: tuple[Combination, ...] = ("mean logit",)
            if query.access == "networks apart":
                combinations = ("mean log-probability", "spread")
            elif query.access == "augmented":
                combinations = ("mean logit", "votes", "each")
            elif draws > 1:
                combinations = ("mean logit", "mean log-probability", "spread", "votes")
            found += [View(query.access, draws, combination) for combination in combinations]
    return found


def attacks_on(seen: Sequence[View], shadows: int) -> list[PlannedAttack]:
    """List all attacks on these views.

    Args:
        seen: The views of the answers.
        shadows: How many shadow models there are; with none, only attacks that do without are listed.

    Returns:
        The attacks, each on one view.

    >>> [attack.name for attack in attacks_on(views([Query("noise off")]), shadows=0) if attack.bounding]
    ['loss', 'modified-entropy']
    >>> [attack.name for attack in attacks_on(views([Query("noise off")]), shadows=4) if attack.bounding]
    ['bavaria', 'rmia-online']
    """
    most = max((view.draws for view in seen if view.access == "noise on"), default=0)
    best = {
        view
        for view in seen
        if (view.access != "noise on" or view.draws == most)
        and view.combination not in ("votes", "mean log-probability")
    }
    bounding = BOUNDING if shadows else BOUNDING_WITHOUT_SHADOWS
    headlines = HEADLINES | bounding
    votes = {view for view in seen if view.draws == max(most, 1) and view.combination in ("votes", "mean logit")}

    def is_headline(name: str, view: View) -> bool:
        return view in votes if name == "label-only" else view in best and name in headlines

    return [
        PlannedAttack(name, view, is_headline(name, view), view in best and name in bounding)
        for view in seen
        for name in _fitting(view)
        if shadows or not ATTACKS[name].shadows
    ]


def _fitting(view: View) -> list[str]:
    """The attacks that make sense on a view."""
    # One answer is a vote as well.
    ways = {view.combination, "votes"} if view.combination == "mean logit" and view.draws == 1 else {view.combination}
    return [name for name in ATTACKS if ways & set(ATTACKS[name].combinations)]
