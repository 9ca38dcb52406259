"""The charts of single attacks: what they find at which price, and the scores they go by."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resperturb.auditing.attack_metrics import attack_metrics
from resperturb.auditing.metrics import roc_curve, roc_points
from resperturb.audits import KeptAttack
from resperturb.report import charts
from resperturb.report.charts import Chart, Option, Toggle, attacked, colour, rounded, shown
from resperturb.report.collect import ReportedModel

# More curves than this are neither legible nor small.
MOST_CURVES = 40
BINS = 40
BAND_RATES = (0.0, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
LOW_RATES = ((0.0, "0%"), (0.001, "0.1%"), (0.01, "1%"), (0.1, "10%"))


def roc(runs: Sequence[ReportedModel]) -> Chart | None:
    """Draw the ROC curve of the strongest attack on each run with its interval, and of all attacks if asked."""
    found = attacked(runs)
    if not found:
        return None
    data = [_band(number, attack) for number, _, attack in found]
    data += [_curve(number, attack, run.name, {"color": colour(number)}) for number, run, attack in found]
    data.append(charts.line([1e-4, 1], [1e-4, 1], "coin toss", charts.DOTTED))
    toggles = [Toggle("axes", (Option("linear", layout=_axes("linear")), Option("logarithmic", layout=_axes("log"))))]
    others = [(number, run, attack) for number, run, _ in found for attack in run.attacks[1:]]
    if 0 < len(others) <= MOST_CURVES:
        strongest = [True] * len(data) + [False] * len(others)
        for number, run, attack in others:
            curve = _curve(number, attack, f"{run.name}, {attack.name}", {"color": colour(number, 60), "width": 1})
            data.append(curve | {"showlegend": False, "visible": False})
        toggles.append(Toggle("attacks", (Option("strongest", strongest), Option("all", [True] * len(data)))))
    worded = "; ".join(f"{run.name}, {attack.name}: AUC {attack.auc:.3f}" for _, run, attack in found)
    return Chart(
        "roc",
        "ROC curves",
        "True over false positive rate, with exact 95% intervals at each threshold. Logarithmic axes show the "
        "confident "
        "end, where false positives are rare: that is where a leak hurts.",
        f"ROC curves of the strongest attack on each run. {worded}.",
        {"data": data, "layout": _axes("linear")},
        tuple(toggles),
        height=30,
    )


def low_false_positives(runs: Sequence[ReportedModel]) -> Chart | None:
    """Draw the true positive rates at low false positive rates."""
    data, worded = [], []
    for number, run, _ in attacked(runs):
        best = [(label, attack, fpr) for fpr, label in LOW_RATES if (attack := run.most_found(fpr)) is not None]
        points = [point for _, attack, fpr in best if (point := attack.tpr(fpr)) is not None]
        rates = [point.tpr for point in points]
        labels = [label for label, _, _ in best]
        data.append(
            {
                "type": "bar",
                "name": shown(run.name),
                "x": labels,
                "y": rounded(rates),
                "hovertext": [shown(attack.name) for _, attack, _ in best],
                "error_y": charts.bars(rates, [point.interval for point in points], "@ink"),
                "marker": {"color": colour(number)},
            }
        )
        said = (f"{rate:.1%} at {label} FPR" for rate, label in zip(rates, labels, strict=True))
        worded.append(f"{run.name}: {', '.join(said)}")
    if not data:
        return None
    return Chart(
        "low-fpr",
        "True positive rate at low false positive rates",
        "The true positive rate of the best attack at each false positive rate, with exact 95% intervals at its "
        "threshold. Which attack is best was seen in hindsight, which flatters the attacks a little. Rates too "
        "small for the number of non-members are left out.",
        "True positive rates at low false positive rates. " + "; ".join(worded) + ".",
        {
            "data": data,
            "layout": {
                "barmode": "group",
                "xaxis": {"title": {"text": "false positive rate, at most"}, "type": "category"},
                "yaxis": {"title": {"text": "true positive rate"}, "tickformat": ".0%", "rangemode": "tozero"},
            },
        },
    )


def score_distributions(runs: Sequence[ReportedModel]) -> Chart | None:
    """Draw the scores that the strongest attack gives to members and to others."""
    found = attacked(runs)
    data: list[dict[str, Any]] = []
    for _, _, attack in found:
        edges = _edges(attack)
        groups = (("members", attack.scores.members), ("others", attack.scores.nonmembers))
        for number, (label, scores) in enumerate(groups):
            shares = np.histogram(np.clip(scores, edges[0], edges[-1]), edges)[0] / scores.size
            steps = charts.line(np.repeat(edges, 2)[1:-1], np.repeat(shares, 2), label, _style(number))
            data.append(steps | {"fill": "tozeroy", "fillcolor": colour(number, 25)})
    if not data:
        return None
    medians = (
        f"{run.name}: {np.median(attack.scores.members):.3g} and {np.median(attack.scores.nonmembers):.3g}"
        for _, run, attack in found
    )
    return Chart(
        "scores",
        "What the attack sees",
        "Scores of the strongest attack on each run. Where the two shapes coincide it cannot tell members from "
        "others. The outermost steps hold everything beyond them.",
        f"Distributions of the attack's scores of members and of others, with medians {'; '.join(medians)}.",
        {
            "data": _first_run_only(data),
            "layout": {
                "xaxis": {"title": {"text": "score"}},
                "yaxis": {"title": {"text": "share"}, "tickformat": ".0%", "rangemode": "tozero"},
            },
        },
        _run_toggle(found),
    )


def precision_and_recall(runs: Sequence[ReportedModel]) -> Chart | None:
    """Draw precision and recall of the strongest attack on each run over its thresholds."""
    found = attacked(runs)
    data: list[dict[str, Any]] = []
    for _, _, attack in found:
        thresholds, precision, recall = _over_thresholds(attack)
        for number, (label, values) in enumerate((("precision", precision), ("recall", recall))):
            data.append(charts.line(thresholds, values, label, _style(number) | {"shape": "vh"}))
    if not data:
        return None
    return Chart(
        "precision",
        "Precision and recall over thresholds",
        "If everybody with at least this score is called a member: the share of those named that are members "
        "(precision, for as many members as others) and the share of members that are named (recall). A precision of "
        "50% is guessing.",
        f"Precision and recall of the strongest attack on {', '.join(run.name for _, run, _ in found)}.",
        {
            "data": _first_run_only(data),
            "layout": {
                "xaxis": {"title": {"text": "threshold on the score"}},
                "yaxis": {"tickformat": ".0%", "range": [0, 1.02]},
            },
        },
        _run_toggle(found),
    )


def _band(number: int, attack: KeptAttack) -> dict[str, Any]:
    """The interval of the true positive rate at each false positive rate."""
    points = attack_metrics(attack.scores.members, attack.scores.nonmembers, rates=BAND_RATES).tpr_at_fpr
    lows, highs = [point.interval.low for point in points], [point.interval.high for point in points]
    return {
        "type": "scatter",
        "x": _drawable([*BAND_RATES, *reversed(BAND_RATES)]),
        "y": _drawable([*highs, *reversed(lows)]),
        "fill": "toself",
        "fillcolor": colour(number, 18),
        "line": {"width": 0, "color": colour(number, 18)},
        "mode": "lines",
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _curve(number: int, attack: KeptAttack, name: str, style: dict[str, Any]) -> dict[str, Any]:
    fpr, tpr = roc_points(attack.scores.members, attack.scores.nonmembers, most=200)
    return charts.line(_drawable(fpr), _drawable(tpr), name, {**style, "dash": charts.dash(number)})


def _drawable(rates: Sequence[float]) -> list[float]:
    """Put zeros just beyond the edge of logarithmic axes, which would drop them."""
    return rounded(max(rate, 1e-6) for rate in rates)


def _axes(kind: str) -> dict[str, Any]:
    shape: dict[str, Any] = {"type": kind, "range": [0, 1.01], "tickformat": "~%", "dtick": 0.2}
    if kind == "log":
        shape |= {"range": [-3, 0.02], "dtick": 1}
    return {
        "xaxis": {"title": {"text": "false positive rate"}, **shape},
        "yaxis": {"title": {"text": "true positive rate"}, **shape},
    }


def _over_thresholds(attack: KeptAttack) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Thresholds, at most 200 of them, with the precision and the recall at each."""
    curve = roc_curve(attack.scores.members, attack.scores.nonmembers)
    edges = _edges(attack)
    inside = np.flatnonzero((curve.thresholds >= edges[0]) & (curve.thresholds <= edges[-1]))
    chosen = inside[np.unique(np.linspace(0, len(inside) - 1, 200).round().astype(int))] if len(inside) else inside
    recall = curve.tpr[chosen]
    # As if a member and a non-member were equally likely, whatever their numbers are here.
    return curve.thresholds[chosen], recall / (recall + curve.fpr[chosen]), recall


def _edges(attack: KeptAttack) -> NDArray[np.float64]:
    """Steps over the range that all but a few scores lie in."""
    scores = np.concatenate([attack.scores.members, attack.scores.nonmembers])
    finite = scores[np.isfinite(scores)]
    low, high = np.quantile(finite, [0.005, 0.995]) if finite.size else (0.0, 0.0)
    if low == high:
        low, high = low - 0.5, high + 0.5
    return np.linspace(low, high, BINS + 1)


def _style(number: int) -> dict[str, Any]:
    return {"color": colour(number), "dash": charts.dash(number), "width": 1.5}


def _first_run_only(data: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Two lines per run; at first only those of the first run are seen."""
    return [trace | {"visible": number < 2} for number, trace in enumerate(data)]


def _run_toggle(found: Sequence[tuple[int, ReportedModel, KeptAttack]]) -> tuple[Toggle, ...]:
    """Buttons that show the two lines of one run at a time."""
    if len(found) < 2:
        return ()
    places = range(2 * len(found))
    options = (
        Option(run.name, [place // 2 == number for place in places]) for number, (_, run, _) in enumerate(found)
    )
    return (Toggle("run", tuple(options)),)
