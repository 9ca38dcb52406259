"""The charts of single attacks: what they find at which price, and the scores they go by."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from resperturb.bounds.attack_metrics import TruePositiveRate, attack_metrics
from resperturb.bounds.metrics import roc_points
from resperturb.report import charts
from resperturb.report.charts import Chart, Option, Table, Toggle, colour, interval, rounded
from resperturb.report.collect import ReportedModel
from resperturb.report.scored import ScoredAttack
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
    """Draw the ROC curve of the strongest attack on each run with its interval, and of all attacks if asked."""
    found = _scored(runs)
    if not found:
        return None
    data = [_band(number, attack) for number, _, attack in found]
    data += [_curve(number, attack, run.name, {"color": colour(number)}) for number, run, attack in found]
    data.append(charts.line([1e-4, 1], [1e-4, 1], "guessing", charts.DOTTED))
    toggles = [Toggle("axes", (Option("linear", layout=_axes("linear")), Option("logarithmic", layout=_axes("log"))))]
    others = [(number, run, attack) for number, run, _ in found for attack in run.scored[1:]]
    if 0 < len(others) <= MOST_CURVES:
        strongest = [True] * len(data) + [False] * len(others)
        for number, run, attack in others:
            curve = _curve(number, attack, f"{run.name}, {attack.name}", {"color": colour(number, 60), "width": 1})
            data.append(curve | {"showlegend": False, "visible": False})
        toggles.append(Toggle("attacks", (Option("strongest", strongest), Option("all", [True] * len(data)))))
    worded = "; ".join(f"{run.name}, {attack.name}: AUC {attack.auc:.3f}" for _, run, attack in found)
    kinds = " and ".join(sorted({whom(attack.candidates) for _, _, attack in found}))
    return Chart(
        "roc",
        "ROC curves",
        f"True over false positive rate on {kinds}, with exact 95% intervals at each threshold. Logarithmic axes "
        "show the confident end, where false positives are rare: that is where a leak hurts.",
        f"ROC curves of the strongest attack on each run. {worded}.",
        {"data": data, "layout": _axes("linear")},
        tuple(toggles),
        height=30,
        numbers=_rates_table(found),
    )


def _rates_table(found: Sequence[tuple[int, ReportedModel, ScoredAttack]]) -> Table:
    """The curves of all attacks at a few false positive rates, and the intervals of the strongest."""
    headings = ("model", "attack", *(f"TPR at {100 * rate:g}% FPR" for rate in TABLE_RATES))
    rows = []
    for _, run, _ in found:
        for attack in run.scored:
            scores = attack.scores
            metrics = attack_metrics(scores.members, scores.nonmembers, rates=TABLE_RATES)
            cells = (_cell(metrics.at_fpr(rate), attack is run.scored[0]) for rate in TABLE_RATES)
            rows.append((run.name, attack.name, *cells))
    return Table(headings, tuple(rows))


def _cell(point: TruePositiveRate | None, with_interval: bool) -> str:
    if point is None or point.tied:
        return "too few" if point is None else "tied"
    return f"{point.tpr:.3f}" + (f" ({interval(point.interval)})" if with_interval else "")


def score_distributions(runs: Sequence[ReportedModel]) -> Chart | None:
    """Draw the scores that the strongest attack gives to members and to non-members."""
    found = [(run, _scaled(attack)) for _, run, attack in _scored(runs)]
    data: list[dict[str, Any]] = []
    rows = []
    for run, scaled in found:
        edges = scaled.edges
        groups = (("members", scaled.members), ("non-members", scaled.nonmembers))
        for number, (label, scores) in enumerate(groups):
            shares = np.histogram(np.clip(scores, edges[0], edges[-1]), edges)[0] / scores.size
            steps = charts.line(np.repeat(edges, 2)[1:-1], np.repeat(shares, 2), label, _style(number))
            data.append(steps | {"fill": "tozeroy", "fillcolor": colour(number, 25)})
            rows.append((run.name, label, *map(scaled.words, np.quantile(scores, QUANTILES, method="nearest"))))
    if not data:
        return None
    medians = (
        f"{run.name}: {scaled.words(np.median(scaled.members))} and {scaled.words(np.median(scaled.nonmembers))}"
        for run, scaled in found
    )
    return Chart(
        "scores",
        "What the attack sees",
        "Scores of the strongest attack on each run; probabilities are on a logit scale. Where the two shapes "
        "coincide it cannot distinguish members from non-members. The outermost steps hold everything beyond them.",
        f"Distributions of the attack's scores of members and of non-members, with medians {'; '.join(medians)}.",
        {
            "data": _first_run_only(data),
            "layout": {
                "xaxis": found[0][1].axis("score"),
                "yaxis": {"title": {"text": "share"}, "tickformat": "~%", "rangemode": "tozero"},
            },
        },
        _run_toggle(found, "score"),
        numbers=Table(("model", "scores of", *(f"{100 * share:g}% below" for share in QUANTILES)), tuple(rows)),
    )


def _scored(runs: Sequence[ReportedModel]) -> list[tuple[int, ReportedModel, ScoredAttack]]:
    """The models whose scores are kept, with their place among all and the strongest attack."""
    return [(number, run, run.scored[0]) for number, run in enumerate(runs) if run.scored]


def _logit_of_log(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """The logit of probabilities that are given by their logarithms."""
    return np.asarray(scores - np.log(np.maximum(-np.expm1(scores), 1e-300)))


def _band(number: int, attack: ScoredAttack) -> dict[str, Any]:
    """The interval of the true positive rate at each false positive rate that a threshold has."""
    found = attack_metrics(attack.scores.members, attack.scores.nonmembers, rates=BAND_RATES).tpr_at_fpr
    points = [point for point in found if not point.tied]
    rates = [point.fpr for point in points]
    lows, highs = [point.interval.low for point in points], [point.interval.high for point in points]
    return {
        "type": "scatter",
        "x": _drawable([*rates, *reversed(rates)]),
        "y": _drawable([*highs, *reversed(lows)]),
        "fill": "toself",
        "fillcolor": colour(number, 18),
        "line": {"width": 0, "color": colour(number, 18)},
        "mode": "lines",
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _curve(number: int, attack: ScoredAttack, name: str, style: dict[str, Any]) -> dict[str, Any]:
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


@dataclass(frozen=True, eq=False)
class _Scaled:
    """The scores of an attack as they are drawn; ``logit`` says that they are probabilities on a logit scale."""

    members: NDArray[np.float64]
    nonmembers: NDArray[np.float64]
    logit: bool

    @property
    def edges(self) -> NDArray[np.float64]:
        """Steps over the range that all but a few scores lie in."""
        scores = np.concatenate([self.members, self.nonmembers])
        finite = scores[np.isfinite(scores)]
        low, high = np.quantile(finite, [0.005, 0.995]) if finite.size else (0.0, 0.0)
        if low == high:
            low, high = low - 0.5, high + 0.5
        return np.linspace(low, high, BINS + 1)

    def axis(self, title: str) -> dict[str, Any]:
        """The axis of the scores: where they are probabilities, its ticks say which."""
        if not self.logit:
            return {"title": {"text": title}}
        low, high = self.edges[0], self.edges[-1]
        ticks = [share for share in TICKS if low <= logit(share) <= high]
        return {
            "title": {"text": f"{title} (probability, logit scale)"},
            "tickvals": rounded(float(logit(share)) for share in ticks),
            "ticktext": [f"{100 * share:g}%" for share in ticks],
        }

    def words(self, score: float) -> str:
        """A score as the axis names it.

        >>> _Scaled(np.zeros(1), np.zeros(1), True).words(logit(0.99987))
        '99.987%'
        """
        if not self.logit:
            return f"{score:.3g}"
        rest = float(f"{100 * expit(-score):.2g}")
        return f"{100 - rest:.12g}%" if rest < 1 else f"{100 * expit(score):.3g}%"


def _scaled(attack: ScoredAttack) -> _Scaled:
    """Put probabilities and log-probabilities, most of which lie at one end, on a logit scale; leave other scores."""
    scores = attack.scores
    both = np.concatenate([scores.members, scores.nonmembers])
    if both.min() > 0 and both.max() < 1:
        return _Scaled(logit(scores.members), logit(scores.nonmembers), True)
    if np.isfinite(both).all() and both.min() < 0 and both.max() <= 0:
        return _Scaled(_logit_of_log(scores.members), _logit_of_log(scores.nonmembers), True)
    return _Scaled(scores.members, scores.nonmembers, False)


def _style(number: int) -> dict[str, Any]:
    return {"color": colour(number), "dash": charts.dash(number), "width": 1.5}


def _first_run_only(data: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Two lines per run; at first only those of the first run are seen."""
    return [trace | {"visible": number < 2} for number, trace in enumerate(data)]


def _run_toggle(found: Sequence[tuple[ReportedModel, _Scaled]], title: str) -> tuple[Toggle, ...]:
    """Buttons that show the two lines of one run at a time, over the scale of its scores."""
    if len(found) < 2:
        return ()
    places = range(2 * len(found))
    options = (
        Option(run.name, [place // 2 == number for place in places], {"xaxis": scaled.axis(title)})
        for number, (run, scaled) in enumerate(found)
    )
    return (Toggle("run", tuple(options)),)
