"""The charts of a report, as plotly's plain data. Colours are names such as ``@0`` or ``@faint`` that the page knows.

Thus one chart serves light, dark and print. Lines and points differ in dash and shape as well as in colour.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from resperturb.bounds.attack_metrics import attack_metrics
from resperturb.bounds.metrics import roc_points
from resperturb.report.collect import Finding, ReportedModel
from resperturb.report.wording import whom

DASHES = ("solid", "dash", "dot", "dashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "star")
COLOURS = 6
BAND_RATES = (0.0, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
TABLE_RATES = (0.001, 0.01, 0.1)


@dataclass(frozen=True)
class Table:
    """A table: the first cell of a row names the row."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Chart:
    """A figure with the words and the numbers that stand for it where it cannot be seen.

    ``layouts`` are those that buttons choose among, by their labels, the one of the figure first.
    """

    key: str
    title: str
    caption: str
    alt: str
    figure: dict[str, Any]
    layouts: dict[str, dict[str, Any]] = field(default_factory=dict)
    height: int = 26
    numbers: Table | None = None


def training_curves(runs: Sequence[ReportedModel]) -> Chart | None:
    """Draw the training accuracy over the epochs, and the test accuracy where it was measured."""
    data, rows = [], []
    for number, run in enumerate(runs):
        history = run.subject.curves
        for entry in history:
            accuracies = (entry.train_accuracy, entry.test_accuracy)
            cells = ("" if value is None else f"{value:.3f}" for value in accuracies)
            rows.append((run.name, str(entry.number), *cells))
        for key, label, style in (("train_accuracy", "training", "solid"), ("test_accuracy", "test", "dot")):
            points = [(entry.number, value) for entry in history if (value := getattr(entry, key)) is not None]
            if points:
                epochs, values = zip(*points, strict=True)
                drawn = line(epochs, values, f"{run.name}, {label}", {"color": colour(number), "dash": style})
                marked = {"mode": "lines+markers", "marker": {"symbol": SYMBOLS[number % len(SYMBOLS)], "size": 8}}
                data.append(drawn | (marked if key == "test_accuracy" else {}))
    if not data:
        return None
    return Chart(
        "training",
        "Training curves",
        "Training accuracy, if shown, is measured on the fly with the noise on; test accuracy at the points shown.",
        "Accuracy over the epochs of training for " + ", ".join(run.name for run in runs) + ".",
        {
            "data": data,
            "layout": {
                "xaxis": {"title": {"text": "epoch"}},
                "yaxis": {"title": {"text": "accuracy"}, "tickformat": "~%"},
            },
        },
        numbers=Table(("run", "epoch", "training accuracy", "test accuracy"), tuple(rows)),
    )


def roc(runs: Sequence[ReportedModel]) -> Chart | None:
    """Draw the ROC curve of the strongest attack on each model with its interval."""
    found = [(number, run) for number, run in enumerate(runs) if run.scored]
    if not found:
        return None
    data = [_band(number, run) for number, run in found if _independent(run)]
    for number, run in found:
        scores = run.scores(run.scored[0])
        fpr, tpr = roc_points(scores.members, scores.nonmembers, most=200)
        style = {"color": colour(number), "dash": DASHES[number % len(DASHES)]}
        data.append(line(_drawable(fpr), _drawable(tpr), run.name, style))
    data.append(line([1e-4, 1], [1e-4, 1], "guessing", {"dash": "dot", "width": 1, "color": "@faint"}))
    worded = "; ".join(f"{run.name}, {run.scored[0].name}: AUC {run.scored[0].auc:.3f}" for _, run in found)
    kinds = " and ".join(sorted({whom(run.scored[0].kind, run.unit) for _, run in found}))
    ways = [(run, one) for _, run in found for one in run.scored]
    rows = [(run.name, one.name, whom(one.kind, run.unit), *_rates(run, one)) for run, one in ways]
    pooled = "" if all(_independent(run) for _, run in found) else " Scores of several targets are pooled, unbanded."
    return Chart(
        "roc",
        "ROC curves",
        f"True over false positive rate on {kinds}, with exact 95% intervals at each threshold.{pooled} Logarithmic "
        "axes show the confident end, where false positives are rare: that is where a leak hurts.",
        f"ROC curves of the strongest attack on each model, on {kinds}. {worded}.",
        {"data": data, "layout": _axes("linear")},
        {"linear": _axes("linear"), "logarithmic": _axes("log")},
        height=30,
        numbers=Table(("model", "attack", "on", *(f"TPR at {100 * rate:g}% FPR" for rate in TABLE_RATES)), rows),
    )


def _independent(run: ReportedModel) -> bool:
    """Whether candidates were members independently: scores of several targets share models."""
    return run.audit is not None and run.audit.targets == 1


def _rates(run: ReportedModel, one: Finding) -> list[str]:
    """The rates of the curve of an attack, with intervals where it is the strongest."""
    scores = run.scores(one)
    cells = []
    for rate in TABLE_RATES:
        point = attack_metrics(scores.members, scores.nonmembers, rates=(rate,)).at_fpr(rate)
        if point is None or point.tied:
            cells.append("too few" if point is None else "tied")
        else:
            ends = f" ({point.interval.words})" if one is run.scored[0] and _independent(run) else ""
            cells.append(f"{point.tpr:.3f}{ends}")
    return cells


def _band(number: int, run: ReportedModel) -> dict[str, Any]:
    """The interval of the true positive rate at each false positive rate that a threshold has."""
    scores = run.scores(run.scored[0])
    found = attack_metrics(scores.members, scores.nonmembers, rates=BAND_RATES).tpr_at_fpr
    points = [point for point in found if not point.tied]
    rates = [point.fpr for point in points]
    return {
        "type": "scatter",
        "x": _drawable([*rates, *reversed(rates)]),
        "y": _drawable([*(one.interval.high for one in points), *(one.interval.low for one in reversed(points))]),
        "fill": "toself",
        "fillcolor": colour(number, 18),
        "line": {"width": 0, "color": colour(number, 18)},
        "mode": "lines",
        "hoverinfo": "skip",
        "showlegend": False,
    }


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


def line(x: Iterable[float], y: Iterable[float], name: str, style: dict[str, Any]) -> dict[str, Any]:
    """Make a line of a chart."""
    return {"type": "scatter", "mode": "lines", "x": rounded(x), "y": rounded(y), "name": shown(name), "line": style}


def shown(text: str) -> str:
    """Make plotly show a text as it is: it would take tags in it for formatting.

    >>> shown("<b>bold</b> & brave")
    '&lt;b&gt;bold&lt;/b&gt; &amp; brave'
    """
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def rounded(values: Iterable[float]) -> list[float]:
    """Keep the digits that a screen can show, so that the page stays small.

    >>> rounded([0.123456789, 1.0])
    [0.12346, 1.0]
    """
    return [float(f"{value:.5g}") for value in values]


def colour(number: int, percent: int = 100) -> str:
    """Name the colour of a series, more or less transparent.

    >>> colour(1), colour(7, 20)
    ('@1', '@1/20')
    """
    return f"@{number % COLOURS}" + ("" if percent == 100 else f"/{percent}")
