"""What more queries of a model with noise find."""

from collections.abc import Sequence

from resperturb.report.collect import Finding, ReportedModel
from resperturb.report.section import Section, Table, register_section
from resperturb.report.wording import whom

# What the attacker has, by the access of an attack; more of it further down.
WAYS = {
    "served": "1 prediction",
    "augmented": "predictions of changed images",
    "networks": "predictions of each network",
    "weights": "the weights, noise off",
}


@register_section("queries")
def queries(runs: Sequence[ReportedModel]) -> Section | None:
    """Show the strongest attack by each way to query a model: over a number of draws, and without the noise."""
    rows = []
    for run in runs:
        best: dict[tuple[int, int], Finding] = {}
        for found in () if run.audit is None else run.found_by(run.audit.attacks, run.kinds):
            best.setdefault((list(WAYS).index(found.attack.access), found.attack.draws), found)
        for (place, draws), found in sorted(best.items(), key=lambda way: way[0]) if len(best) > 1 else ():
            way = f"{draws} predictions" if place == 0 and draws > 1 else WAYS[found.attack.access]
            on = whom(found.kind, run.unit)
            rows.append((run.name, way, f"{found.auc:.3f}", found.interval.words, on, found.name))
    if not rows:
        return None
    return Section(
        "What do more queries find?",
        (
            "Averaging many predictions shrinks the noise, and anyone who has the weights can turn it off: an AUC "
            "that rises down the rows shows a leak that the noise only hides.",
        ),
        Table(("model", "attacker has", "AUC", "95%", "on", "strongest attack"), rows),
    )
