"""Accuracy against leakage: every audited model as a point."""

from collections.abc import Sequence
from typing import Any

from resperturb.report import charts
from resperturb.report.charts import Chart, colour, rounded, shown, symbol
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
        data.append(charts.line(x, y, "frontier", charts.DOTTED | {"shape": "hv"}))
    for (number, run, one), (auc, accuracy) in zip(found, points, strict=True):
        data.append(
            {
                "type": "scatter",
                "x": rounded([auc]),
                "y": rounded([accuracy]),
                "mode": "markers",
                "name": shown(run.name),
                "error_x": charts.bars([auc], [one.interval], colour(number)),
                "marker": {"size": 13, "symbol": symbol(number), "color": colour(number)},
                "cliponaxis": False,
            }
        )
    worded = "; ".join(
        f"{run.name}: test accuracy {accuracy:.3f}, AUC {auc:.3f}"
        for (_, run, _), (auc, accuracy) in zip(found, points, strict=True)
    )
    kinds = " and ".join(sorted({whom(one.kind, run.unit) for _, run, one in found}))
    guessing = {"type": "line", "x0": 0.5, "x1": 0.5, "y0": 0, "y1": 1, "yref": "paper", "line": charts.DOTTED}
    return Chart(
        "frontier",
        "Accuracy against leakage",
        "The upper left is the best place: accurate, and attacked no better than by guessing (dotted line). No other "
        "model is better in both than one on the frontier. The bars are 95% intervals of the AUC.",
        f"Test accuracy against attack AUC. {worded}.",
        {
            "data": data,
            "layout": {
                "xaxis": {"title": {"text": f"attack AUC on {kinds} (0.5 is guessing)"}},
                "yaxis": {"title": {"text": "test accuracy"}, "tickformat": "~%"},
                "shapes": [guessing],
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
