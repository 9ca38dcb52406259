"""The charts of a report, as plotly figures without colours of their own: the page gives them its theme."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from resperturb.report.collect import ReportedRun
from resperturb.report.figures import PALETTE

DASHES = ("solid", "dash", "dot", "dashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "star")


@dataclass(frozen=True)
class Chart:
    """A figure as plotly's JSON, with the words that stand for it where it cannot be seen."""

    key: str
    title: str
    caption: str
    alt: str
    figure: dict[str, Any]


def leak_against_accuracy(runs: Sequence[ReportedRun]) -> Chart | None:
    """Draw every attacked run as a point: up is more accurate, left leaks less."""
    from plotly import graph_objects as go

    attacked = [(run, run.worst) for run in runs if run.worst is not None]
    if not attacked:
        return None
    figure = go.Figure()
    for number, (run, attack) in enumerate(attacked):
        low, high = attack.summary["auc_interval"]
        auc, accuracy = attack.summary["auc"], run.run.result["test_accuracy"]
        figure.add_trace(
            go.Scatter(
                x=[auc],
                y=[accuracy],
                mode="markers+text",
                name=run.name,
                text=[run.name],
                textposition="top center",
                error_x={"array": [high - auc], "arrayminus": [auc - low]},
                marker={"size": 12, "symbol": _cycle(SYMBOLS, number), "color": _cycle(PALETTE, number)},
                showlegend=False,
                cliponaxis=False,
            )
        )
    figure.add_vline(x=0.5, line_dash="dot", line_width=1)
    figure.update_layout(
        xaxis_title="attack AUC (0.5 is a coin toss)", yaxis_title="test accuracy", yaxis_tickformat=".1%"
    )
    points = "; ".join(
        f"{run.name}: test accuracy {run.run.result['test_accuracy']:.3f}, AUC {attack.summary['auc']:.3f}"
        for run, attack in attacked
    )
    return Chart(
        "frontier",
        "Accuracy against leakage",
        "The upper left is where one wants to be: accurate, and no better attacked than by a coin. The bars are 95% "
        "bootstrap intervals of the AUC of the strongest attack that was run.",
        f"Scatter plot of test accuracy against attack AUC. {points}.",
        figure.to_plotly_json(),
    )


def roc(runs: Sequence[ReportedRun]) -> Chart | None:
    """Draw the ROC curve of every attack on every run."""
    from plotly import graph_objects as go

    curves = [(number, run, attack) for number, run in enumerate(runs) for attack in run.attacks]
    if not curves:
        return None
    figure = go.Figure()
    for number, run, attack in curves:
        several = len(run.attacks) > 1
        figure.add_trace(
            go.Scatter(
                x=attack.fpr,
                y=attack.tpr,
                mode="lines",
                name=f"{run.name}, {attack.name}" if several else run.name,
                line={"color": _cycle(PALETTE, number), "dash": _cycle(DASHES, run.attacks.index(attack))},
            )
        )
    figure.add_trace(
        go.Scatter(
            x=[0, 1], y=[0, 1], mode="lines", name="coin toss", line={"dash": "dot", "width": 1, "color": "#888"}
        )
    )
    figure.update_layout(
        xaxis={"title": "false positive rate", "range": [0, 1]},
        yaxis={"title": "true positive rate", "range": [0, 1]},
        updatemenus=[_axis_toggle()],
    )
    worded = "; ".join(f"{run.name}, {attack.name}: AUC {attack.summary['auc']:.3f}" for _, run, attack in curves)
    return Chart(
        "roc",
        "ROC curves",
        "How many members an attack finds (up) for how many outsiders it accuses (right). Logarithmic axes show the "
        "confident end, where few are accused wrongly: that is where a leak hurts.",
        f"ROC curves. {worded}.",
        figure.to_plotly_json(),
    )


def generalisation_gap(runs: Sequence[ReportedRun]) -> Chart:
    """Draw training and test accuracy side by side."""
    from plotly import graph_objects as go

    figure = go.Figure()
    for number, (key, label) in enumerate((("train_accuracy", "training"), ("test_accuracy", "test"))):
        values = [run.run.result[key] for run in runs]
        figure.add_trace(
            go.Bar(
                x=[run.name for run in runs],
                y=values,
                name=label,
                text=[f"{value:.3f}" for value in values],
                textposition="outside",
                marker={"color": PALETTE[number]},
                cliponaxis=False,
            )
        )
    figure.update_layout(barmode="group", yaxis={"title": "accuracy", "tickformat": ".0%", "range": [0, 1.08]})
    worded = "; ".join(f"{run.name}: gap {run.run.result['gap']:.3f}" for run in runs)
    return Chart(
        "gap",
        "The gap between training and test",
        "What a network does better on its own training images than on others is what it has learned by heart, and "
        "what membership attacks live on.",
        f"Bar chart of training and test accuracy. {worded}.",
        figure.to_plotly_json(),
    )


def training_curves(runs: Sequence[ReportedRun]) -> Chart | None:
    """Draw the training accuracy over the epochs, and the test accuracy where it was measured."""
    from plotly import graph_objects as go

    figure = go.Figure()
    for number, run in enumerate(runs):
        history = run.run.metrics()
        color = _cycle(PALETTE, number)
        for key, label, dash in (("train_accuracy", "training", "solid"), ("test_accuracy", "test", "dot")):
            points = [(entry["epoch"], entry[key]) for entry in history if key in entry]
            if points:
                figure.add_trace(
                    go.Scatter(
                        x=[epoch for epoch, _ in points],
                        y=[value for _, value in points],
                        mode="lines+markers" if key == "test_accuracy" else "lines",
                        name=f"{run.name}, {label}",
                        line={"color": color, "dash": dash},
                    )
                )
    if not figure.data:
        return None
    figure.update_layout(xaxis_title="epoch", yaxis={"title": "accuracy", "tickformat": ".0%"})
    return Chart(
        "training",
        "Training curves",
        "Training accuracy is measured on the fly, with the noise on; test accuracy at the points shown.",
        "Line chart of accuracy over epochs for " + ", ".join(run.name for run in runs) + ".",
        figure.to_plotly_json(),
    )


def _axis_toggle() -> dict[str, Any]:
    linear = {"xaxis.type": "linear", "yaxis.type": "linear", "xaxis.range": [0, 1], "yaxis.range": [0, 1]}
    log = {"xaxis.type": "log", "yaxis.type": "log", "xaxis.range": [-3.5, 0], "yaxis.range": [-3.5, 0]}
    return {
        "type": "buttons",
        "direction": "right",
        "x": 1,
        "xanchor": "right",
        "y": 1.12,
        "yanchor": "bottom",
        "buttons": [
            {"label": "linear", "method": "relayout", "args": [linear]},
            {"label": "logarithmic", "method": "relayout", "args": [log]},
        ],
    }


def _cycle(values: Sequence[str], number: int) -> str:
    return values[number % len(values)]
