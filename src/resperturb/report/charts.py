"""The charts of a report, as plotly's plain data. Colours are names such as ``@0`` or ``@faint`` that the page knows.

Thus one chart serves light, dark and print. Lines and points differ in dash and shape as well as in colour.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from resperturb.report.collect import ReportedModel
from resperturb.report.wording import whom

DASHES = ("solid", "dash", "dot", "dashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "star")
COLOURS = 6
DOTTED = {"dash": "dot", "width": 1, "color": "@faint"}


@dataclass(frozen=True)
class Option:
    """One position of a toggle: which traces are seen (all, if None), and what changes in the layout."""

    label: str
    visible: list[bool] | None = None
    layout: dict[str, Any] | None = None


@dataclass(frozen=True)
class Toggle:
    """A row of buttons under a chart's title, of which one is pressed; at first the first."""

    label: str
    options: tuple[Option, ...]


@dataclass(frozen=True)
class Table:
    """A table: the first cell of a row names the row."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Chart:
    """A figure with the words and the numbers that stand for it where it cannot be seen.

    ``numbers`` is None where the table at the head of its part of the page has them already.
    """

    key: str
    title: str
    caption: str
    alt: str
    figure: dict[str, Any]
    toggles: tuple[Toggle, ...] = ()
    height: int = 26
    numbers: Table | None = None


def leak_against_accuracy(runs: Sequence[ReportedModel]) -> Chart | None:
    """Draw every audited model as a point; one model is no chart."""
    found = [(number, run, run.strongest) for number, run in enumerate(runs) if run.strongest is not None]
    if len(found) < 2:
        return None
    data = []
    for number, run, one in found:
        ends = {"array": [one.interval.high - one.auc], "arrayminus": [one.auc - one.interval.low]}
        data.append(
            {
                "type": "scatter",
                "x": rounded([one.auc]),
                "y": rounded([run.subject.test_accuracy]),
                "mode": "markers",
                "name": shown(run.name),
                "error_x": {**ends, "color": colour(number), "thickness": 1.2},
                "marker": {"size": 13, "symbol": symbol(number), "color": colour(number)},
                "cliponaxis": False,
            }
        )
    worded = (
        f"{run.name}: test accuracy {run.subject.test_accuracy:.3f}, AUC {one.auc:.3f}" for _, run, one in found
    )
    kinds = " and ".join(sorted({whom(one.kind, run.unit) for _, run, one in found}))
    guessing = {"type": "line", "x0": 0.5, "x1": 0.5, "y0": 0, "y1": 1, "yref": "paper", "line": DOTTED}
    return Chart(
        "frontier",
        "Accuracy against leakage",
        "The upper left is the best place: accurate, and attacked no better than by guessing (dotted line). The bars "
        "are 95% intervals of the AUC of the strongest attack. Where they overlap, chance may have made the order.",
        f"Test accuracy against attack AUC. {'; '.join(worded)}.",
        {
            "data": data,
            "layout": {
                "xaxis": {"title": {"text": f"attack AUC on {kinds} (0.5 is guessing)"}},
                "yaxis": {"title": {"text": "test accuracy"}, "tickformat": "~%"},
                "shapes": [guessing],
            },
        },
    )


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
                marked = {"mode": "lines+markers", "marker": {"symbol": symbol(number), "size": 8}}
                data.append(drawn | (marked if key == "test_accuracy" else {}))
    if not data:
        return None
    return Chart(
        "training",
        "Training curves",
        "Training accuracy is measured on the fly, with the noise on; test accuracy at the points shown.",
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


def dash(number: int) -> str:
    """Choose the dash of a series."""
    return DASHES[number % len(DASHES)]


def symbol(number: int) -> str:
    """Choose the shape of a series' points."""
    return SYMBOLS[number % len(SYMBOLS)]
