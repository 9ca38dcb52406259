"""The charts of single attacks: what they find at which price, and the scores they go by."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, logit

from resperturb.bounds.arrays import Floats
from resperturb.bounds.attack_metrics import attack_metrics
from resperturb.bounds.audit_result import AttackScores
from resperturb.bounds.metrics import roc_points
from resperturb.report import charts
from resperturb.report.charts import Chart, Option, Table, Toggle, colour, rounded
from resperturb.report.collect import Finding, ReportedModel
from resperturb.report.wording import whom

# More curves than this are neither legible nor small.
MOST_CURVES = 40
BINS = 40
# Probabilities that an axis on a logit scale names, and the shares of scores that its table does.
TICKS = (1e-6, 1e-4, 0.01, 0.1, 0.5, 0.9, 0.99, 0.9999, 0.999999)
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
BAND_RATES = (0.0, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
TABLE_RATES = (0.001, 0.01, 0.1)


def roc(runs: Sequence[ReportedModel]) -> Chart | None:
    """Draw the ROC curve of the strongest attack on each model with its interval, and of all attacks if asked."""
    found = [(number, run) for number, run in enumerate(runs) if run.scored]
    if not found:
        return None
    data = [_band(number, run) for number, run in found if _independent(run)]
    data += [_curve(number, run, run.scored[0], run.name, {"color": colour(number)}) for number, run in found]
    data.append(charts.line([1e-4, 1], [1e-4, 1], "guessing", charts.DOTTED))
    toggles = [Toggle("axes", (Option("linear", layout=_axes("linear")), Option("logarithmic", layout=_axes("log"))))]
    others = [(number, run, one) for number, run in found for one in run.scored[1:]]
    if 0 < len(others) <= MOST_CURVES:
        strongest = [True] * len(data) + [False] * len(others)
        for number, run, one in others:
            name = f"{run.name}, {one.name}, {whom(one.kind, run.unit)}"
            curve = _curve(number, run, one, name, {"color": colour(number, 60), "width": 1})
            data.append(curve | {"showlegend": False, "visible": False})
        toggles.append(Toggle("attacks", (Option("strongest", strongest), Option("all", [True] * len(data)))))
    worded = "; ".join(f"{run.name}, {run.scored[0].name}: AUC {run.scored[0].auc:.3f}" for _, run in found)
    kinds = " and ".join(sorted({whom(run.scored[0].kind, run.unit) for _, run in found}))
    pooled = "" if all(_independent(run) for _, run in found) else " Scores of several targets are pooled, unbanded."
    return Chart(
        "roc",
        "ROC curves",
        f"True over false positive rate on {kinds}, with exact 95% intervals at each threshold.{pooled} Logarithmic "
        "axes show the confident end, where false positives are rare: that is where a leak hurts.",
        f"ROC curves of the strongest attack on each model, on {kinds}. {worded}.",
        {"data": data, "layout": _axes("linear")},
        tuple(toggles),
        height=30,
        numbers=Table(
            ("model", "attack", "on", *(f"TPR at {100 * rate:g}% FPR" for rate in TABLE_RATES)),
            [
                (run.name, one.name, whom(one.kind, run.unit), *_rates(run, one))
                for _, run in found
                for one in run.scored
            ],
        ),
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
            low, high = point.interval
            ends = f" ({low:.3f} to {high:.3f})" if one is run.scored[0] and _independent(run) else ""
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


def _curve(number: int, run: ReportedModel, one: Finding, name: str, style: dict[str, Any]) -> dict[str, Any]:
    scores = run.scores(one)
    fpr, tpr = roc_points(scores.members, scores.nonmembers, most=200)
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


def score_distributions(runs: Sequence[ReportedModel]) -> Chart | None:
    """Draw the scores that the strongest attack gives to members and to non-members, one model at a time."""
    found = [(run, _scaled(run.scores(run.scored[0]))) for run in runs if run.scored]
    if not found:
        return None
    data: list[dict[str, Any]] = []
    rows = []
    for run, scaled in found:
        edges = scaled.edges
        for number, (label, scores) in enumerate((("members", scaled.members), ("non-members", scaled.nonmembers))):
            shares = np.histogram(np.clip(scores, edges[0], edges[-1]), edges)[0] / scores.size
            style = {"color": colour(number), "dash": charts.dash(number), "width": 1.5}
            steps = charts.line(np.repeat(edges, 2)[1:-1], np.repeat(shares, 2), label, style)
            look = {"fill": "tozeroy", "fillcolor": colour(number, 25), "visible": len(data) < 2}
            data.append(steps | look)
            rows.append((run.name, label, *map(scaled.words, np.quantile(scores, QUANTILES, method="nearest"))))
    options = tuple(
        Option(run.name, [place // 2 == number for place in range(len(data))], {"xaxis": scaled.axis})
        for number, (run, scaled) in enumerate(found)
    )
    medians = "; ".join(f"{row[0]}, {row[1]}: {row[2 + QUANTILES.index(0.5)]}" for row in rows)
    kinds = " and ".join(sorted({whom(run.scored[0].kind, run.unit) for run, _ in found}))
    return Chart(
        "scores",
        "What the attack sees",
        f"Scores of the strongest attack, on {kinds}; probabilities are on a logit scale. Where the two shapes "
        "coincide it cannot distinguish members from non-members. The outermost steps hold everything beyond them.",
        f"Distributions of the attack's scores of members and of non-members. Medians: {medians}.",
        {
            "data": data,
            "layout": {
                "xaxis": found[0][1].axis,
                "yaxis": {"title": {"text": "share"}, "tickformat": "~%", "rangemode": "tozero"},
            },
        },
        (Toggle("model", options),) if len(options) > 1 else (),
        numbers=Table(("model", "scores of", *(f"{100 * share:g}% below" for share in QUANTILES)), rows),
    )


@dataclass(frozen=True, eq=False)
class _Scaled:
    """The scores of an attack as they are drawn; ``logit`` says that they are probabilities on a logit scale."""

    members: Floats
    nonmembers: Floats
    logit: bool

    @property
    def edges(self) -> Floats:
        """Steps over the range that all but a few scores lie in."""
        scores = np.concatenate([self.members, self.nonmembers])
        finite = scores[np.isfinite(scores)]
        low, high = np.quantile(finite, [0.005, 0.995]) if finite.size else (0.0, 0.0)
        if low == high:
            low, high = low - 0.5, high + 0.5
        return np.linspace(low, high, BINS + 1)

    @property
    def axis(self) -> dict[str, Any]:
        """The axis of the scores: where they are probabilities, its ticks say which."""
        if not self.logit:
            return {"title": {"text": "score"}}
        low, high = self.edges[0], self.edges[-1]
        ticks = [share for share in TICKS if low <= logit(share) <= high]
        return {
            "title": {"text": "score (probability, logit scale)"},
            "tickvals": rounded(float(logit(share)) for share in ticks),
            "ticktext": [f"{100 * share:g}%" for share in ticks],
        }

    def words(self, score: float) -> str:
        """A score as the axis names it.

        >>> _Scaled(np.zeros(1), np.zeros(1), True).words(logit(0.99987))
        '99.987%'
        """
        return f"{100 * expit(score):.7g}%" if self.logit else f"{score:.3g}"


def _scaled(scores: AttackScores) -> _Scaled:
    """Put probabilities and log-probabilities, most of which lie at one end, on a logit scale; leave other scores."""
    members, nonmembers = scores.members, scores.nonmembers
    both = np.concatenate([members, nonmembers])
    if both.min() > 0 and both.max() < 1:
        return _Scaled(logit(members), logit(nonmembers), True)
    if np.isfinite(both).all() and both.min() < 0 and both.max() <= 0:
        return _Scaled(_logit_of_log(members), _logit_of_log(nonmembers), True)
    return _Scaled(members, nonmembers, False)


def _logit_of_log(scores: Floats) -> Floats:
    """The logit of probabilities that are given by their logarithms."""
    return np.asarray(scores - np.log(np.maximum(-np.expm1(scores), 1e-300)))
