"""The charts of leakage: over test accuracy, and by the way to query."""

from collections.abc import Sequence
from typing import Any

from resperturb.report import charts
from resperturb.report.charts import Chart, Table, colour, interval, rounded, shown, symbol
from resperturb.report.collect import ReportedModel
from resperturb.report.wording import unequal, whom


def leak_against_accuracy(runs: Sequence[ReportedModel]) -> Chart | None:
    """Draw every audited model as a point, and the frontier: the models that no other beats in both.

    Models that were not attacked alike have no frontier, and an AUC below one half is no better than guessing. One
    model is no chart.
    """
    found = [(number, run, run.strongest) for number, run in enumerate(runs) if run.strongest is not None]
    if len(found) < 2:
        return None
    points = [(one.auc, run.subject.test_accuracy) for _, run, one in found]
    data: list[dict[str, Any]] = []
    best = frontier([(max(0.5, auc), accuracy) for auc, accuracy in points])
    if len(best) > 1 and not unequal(runs):
        x, y = zip(*(points[place] for place in best), strict=True)
        data.append(charts.line(x, y, "frontier: no other model is better in both", charts.DOTTED | {"shape": "hv"}))
    lows, highs = zip(*(one.interval for _, _, one in found), strict=True)
    ends = min(0.48, min(lows) - 0.03), max(0.55, *highs) + 0.05
    for (number, run, one), (auc, accuracy), position in zip(found, points, _positions(points, ends), strict=True):
        data.append(
            {
                "type": "scatter",
                "x": rounded([auc]),
                "y": rounded([accuracy]),
                "mode": "markers+text",
                "name": shown(run.name),
                "text": [shown(charts.short(run.name))],
                "textposition": position,
                "error_x": charts.bars([auc], [one.interval], colour(number)),
                "marker": {"size": 13, "symbol": symbol(number), "color": colour(number)},
                "showlegend": False,
                "cliponaxis": False,
            }
        )
    accuracies = [accuracy for _, accuracy in points]
    spread = max(0.02, max(accuracies) - min(accuracies))
    worded = "; ".join(
        f"{run.name}: test accuracy {accuracy:.3f}, AUC {auc:.3f}"
        for (_, run, _), (auc, accuracy) in zip(found, points, strict=True)
    )
    kinds = " and ".join(sorted({whom(one.kind, run.unit) for _, run, one in found}))
    return Chart(
        "frontier",
        "Accuracy against leakage",
        "The upper left is the best place: accurate, and attacked no better than by guessing. The bars are 95% "
        "intervals of the AUC of the strongest attack.",
        f"Test accuracy against attack AUC. {worded}.",
        {
            "data": data,
            "layout": {
                "xaxis": {"title": {"text": f"attack AUC on {kinds} (0.5 is guessing)"}, "range": list(ends)},
                "yaxis": {
                    "title": {"text": "test accuracy"},
                    "tickformat": "~%",
                    "range": [min(accuracies) - 0.25 * spread, max(accuracies) + 0.25 * spread],
                },
                "shapes": [_guessing("x")],
            },
        },
    )


def frontier(points: Sequence[tuple[float, float]]) -> list[int]:
    """Find the points that no other beats: none leaks less and is at least as accurate, or the other way round.

    >>> frontier([(0.7, 0.9), (0.5, 0.6), (0.6, 0.5)])
    [1, 0]
    """

    def beaten(point: tuple[float, float]) -> bool:
        return any(x <= point[0] and y >= point[1] and (x, y) != point for x, y in points)

    kept = [place for place, point in enumerate(points) if not beaten(point)]
    return sorted(kept, key=lambda place: points[place])


def leakage_over_queries(runs: Sequence[ReportedModel]) -> Chart | None:
    """Draw what attacks find with one query, with many queries, and without the noise."""
    queried = [(number, run) for number, run in enumerate(runs) if len(run.ways) > 1]
    if not queried:
        return None
    data, worded, rows = [], [], []
    for number, run in queried:
        found = [way.finding for way in run.ways]
        rows += [
            (run.name, way.name, one.name, f"{one.auc:.3f}", interval(one.interval))
            for way, one in zip(run.ways, found, strict=True)
        ]
        values = [one.auc for one in found]
        data.append(
            charts.line([], values, run.name, {"color": colour(number), "dash": charts.dash(number)})
            | {
                "x": [way.name for way in run.ways],
                "mode": "lines+markers",
                "hovertext": [shown(one.name) for one in found],
                "error_y": charts.bars(values, [one.interval for one in found], colour(number)),
                "marker": {"size": 9, "symbol": symbol(number), "color": colour(number)},
            }
        )
        worded.append(f"{run.name}: " + ", ".join(f"{way.name} {way.finding.auc:.3f}" for way in run.ways))
    longest = max((run.ways for _, run in queried), key=len)
    return Chart(
        "queries",
        "Leakage over the number of queries",
        "The AUC of the strongest attack for each way to query. Averaging many predictions shrinks the noise, and "
        "anyone who has the weights can turn it off: a line that rises shows a leak that the noise only hides.",
        "Attack AUC by way to query. " + "; ".join(worded) + ".",
        {
            "data": data,
            "layout": {
                "xaxis": {"type": "category", "categoryarray": [w.name for w in longest], "categoryorder": "array"},
                "yaxis": {"title": {"text": "attack AUC"}},
                "shapes": [_guessing("y")],
            },
        },
        numbers=Table(("model", "queried", "strongest attack", "AUC", "95%"), tuple(rows)),
    )


def _positions(points: Sequence[tuple[float, float]], ends: tuple[float, float]) -> list[str]:
    """Where to write each point's label: below those with a neighbour just above, and inwards near an axis' end.

    >>> _positions([(0.5, 0.9), (0.52, 0.89), (0.7, 0.9)], (0.48, 0.72))
    ['top right', 'bottom right', 'top left']
    """
    near, (left, right) = 0.03, ends
    placed = []
    for x, y in points:
        crowded = any(abs(x - other_x) < 4 * near and 0 < other_y - y < near for other_x, other_y in points)
        share = (x - left) / (right - left)
        side = "right" if share < 1 / 3 else "left" if share > 2 / 3 else "center"
        placed.append(f"{'bottom' if crowded else 'top'} {side}")
    return placed


def _guessing(axis: str) -> dict[str, Any]:
    """A dotted line across the chart where the AUC is one half."""
    other = "y" if axis == "x" else "x"
    ends = {f"{axis}0": 0.5, f"{axis}1": 0.5, f"{other}0": 0, f"{other}1": 1, f"{other}ref": "paper"}
    return {"type": "line", **ends, "line": charts.DOTTED}
