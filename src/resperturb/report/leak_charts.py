"""The charts of leakage: beside what one pays for less of it, over the ways to ask, and by who is asked about."""

from collections.abc import Sequence
from typing import Any

from resperturb.audits import KeptAttack
from resperturb.bounds.attack_metrics import AttackMetrics
from resperturb.report import charts
from resperturb.report.charts import Chart, Table, attacked, colour, interval, rounded, shown, symbol
from resperturb.report.collect import ReportedModel
from resperturb.report.wording import unequal, whom

AUC_TITLE = "attack AUC (0.5 is a coin toss)"


def leak_against_accuracy(runs: Sequence[ReportedModel]) -> Chart | None:
    """Draw every attacked run as a point, and the frontier: the runs that no other beats in both.

    Runs that were not attacked alike have no frontier, and an AUC below one half is no better than a coin toss.
    """
    found = attacked(runs)
    if not found:
        return None
    points = [(attack.auc, run.test_accuracy) for _, run, attack in found]
    data: list[dict[str, Any]] = []
    best = frontier([(max(0.5, auc), accuracy) for auc, accuracy in points])
    if len(best) > 1 and not unequal(runs):
        x, y = zip(*(points[place] for place in best), strict=True)
        data.append(charts.line(x, y, "frontier: no other run is better in both", charts.DOTTED | {"shape": "hv"}))
    lows, highs = zip(*(attack.interval for _, _, attack in found), strict=True)
    ends = min(0.48, min(lows) - 0.03), max(0.55, *highs) + 0.05
    for (number, run, attack), (auc, accuracy), position in zip(found, points, _positions(points, ends), strict=True):
        data.append(
            {
                "type": "scatter",
                "x": rounded([auc]),
                "y": rounded([accuracy]),
                "mode": "markers+text",
                "name": shown(run.name),
                "text": [shown(charts.short(run.name))],
                "textposition": position,
                "error_x": charts.bars([auc], [attack.interval], colour(number)),
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
    return Chart(
        "frontier",
        "Accuracy against leakage",
        "The upper left is the best place: accurate, and attacked no better than by a coin toss. The bars are 95% "
        "intervals of the AUC of the strongest attack that was run.",
        f"Test accuracy against attack AUC. {worded}.",
        {
            "data": data,
            "layout": {
                "xaxis": {
                    "title": {"text": AUC_TITLE},
                    "range": list(ends),
                },
                "yaxis": {
                    "title": {"text": "test accuracy"},
                    "tickformat": "~%",
                    "range": [min(accuracies) - 0.25 * spread, max(accuracies) + 0.25 * spread],
                },
                "shapes": [_coin_toss("x")],
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
    """Draw what is found by asking once, asking often, and taking the noise away."""
    asked = [(number, run) for number, run in enumerate(runs) if run.ways]
    if not any(len(run.ways) > 1 for _, run in asked):
        return None
    data, worded, rows = [], [], []
    for number, run in asked:
        rows += [(run.name, way.way, way.attack, f"{way.auc:.3f}", interval(way.interval)) for way in run.ways]
        values = [way.auc for way in run.ways]
        data.append(
            charts.line([], values, run.name, {"color": colour(number), "dash": charts.dash(number)})
            | {
                "x": [way.way for way in run.ways],
                "mode": "lines+markers",
                "hovertext": [shown(way.attack) for way in run.ways],
                "error_y": charts.bars(values, [way.interval for way in run.ways], colour(number)),
                "marker": {"size": 9, "symbol": symbol(number), "color": colour(number)},
            }
        )
        worded.append(f"{run.name}: " + ", ".join(f"{way.way} {way.auc:.3f}" for way in run.ways))
    longest = max((run.ways for _, run in asked), key=len)
    ways = [way.way for way in longest]
    return Chart(
        "queries",
        "Leakage over the number of queries",
        "The AUC of the strongest attack for each way to ask. Averaging many answers shrinks the noise, and whoever "
        "holds the weights can switch it off: if the line rises, the noise hides a leak rather than preventing it.",
        "Attack AUC by way of asking. " + "; ".join(worded) + ".",
        {
            "data": data,
            "layout": {
                "xaxis": {"type": "category", "categoryarray": ways, "categoryorder": "array"},
                "yaxis": {"title": {"text": "attack AUC"}},
                "shapes": [_coin_toss("y")],
            },
        },
        numbers=Table(("run", "asked", "strongest attack", "AUC", "95%"), tuple(rows)),
    )


def leakage_over_gamma(runs: Sequence[ReportedModel]) -> Chart | None:
    """Draw leakage and, below it, accuracy over the level of noise, for runs that differ in nothing else."""
    data: list[dict[str, Any]] = []
    worded: list[str] = []
    rows: list[tuple[str, ...]] = []
    for title, series in _series(runs).items():
        color, gammas = colour(len(worded)), [run.gamma for run, _ in series]
        leaks = [attack.auc for _, attack in series]
        accuracies = [run.test_accuracy for run, _ in series]
        data.append(
            charts.line(gammas, leaks, f"{title}: attack AUC", {"color": color})
            | {
                "mode": "lines+markers",
                "marker": {"size": 9},
                "error_y": charts.bars(leaks, [attack.interval for _, attack in series], color),
            }
        )
        data.append(
            charts.line(gammas, accuracies, f"{title}: test accuracy", {"color": color, "dash": "dot"})
            | {"mode": "lines+markers", "marker": {"size": 9, "symbol": "square"}, "yaxis": "y2"}
        )
        rows += [
            (title, f"{run.gamma:g}", f"{attack.auc:.3f}", interval(attack.interval), f"{run.test_accuracy:.3f}")
            for run, attack in series
        ]
        said = (f"{gamma:g} AUC {leak:.3f}" for gamma, leak in zip(gammas, leaks, strict=True))
        worded.append(f"{title}: gamma {', '.join(said)}")
    if not data:
        return None
    return Chart(
        "gamma",
        "Leakage over gamma",
        "Runs that differ in nothing but the level of the noise (and perhaps the seed); 0 is without any.",
        "Attack AUC and test accuracy over gamma. " + "; ".join(worded) + ".",
        {
            "data": data,
            "layout": {
                "xaxis": {"title": {"text": "gamma"}, "rangemode": "tozero", "anchor": "y2"},
                "yaxis": {"title": {"text": "attack AUC"}, "domain": [0.54, 1]},
                "yaxis2": {"title": {"text": "test accuracy"}, "domain": [0, 0.46], "tickformat": "~%"},
                "shapes": [_coin_toss("y")],
            },
        },
        height=34,
        numbers=Table(("runs", "gamma", "AUC", "95%", "test accuracy"), tuple(rows)),
    )


def _series(runs: Sequence[ReportedModel]) -> dict[str, list[tuple[ReportedModel, KeptAttack]]]:
    """Runs that differ in the level of one kind of noise alone, those without noise among them, by name."""
    alike: dict[str, list[tuple[ReportedModel, KeptAttack]]] = {}
    for _, run, attack in attacked(runs):
        if run.run is None:
            continue
        rest = run.run.config.model_dump_json(exclude={"perturbation", "seed"})
        alike.setdefault(rest, []).append((run, attack))
    found: dict[str, list[tuple[ReportedModel, KeptAttack]]] = {}
    for group in alike.values():
        for strategy in sorted({run.strategy for run, _ in group} - {"none"}):
            series = [pair for pair in group if pair[0].strategy in (strategy, "none")]
            if len({run.gamma for run, _ in series}) > 1:
                title = f"{strategy}, {_network(series[0][0])}"
                title += f" ({len(found) + 1})" if title in found else ""
                found[title] = sorted(series, key=lambda pair: (pair[0].gamma, pair[1].auc))
    return found


def leakage_by_kind(runs: Sequence[ReportedModel]) -> Chart | None:
    """Draw what the strongest attack finds of records and of each kind of canary."""
    data, worded, rows = [], [], []
    for number, run in enumerate(runs):
        best: dict[str, AttackMetrics] = {}
        for attack in () if run.audit is None else run.audit.attacks:
            for kind, metrics in attack.metrics.items():
                if kind not in best or metrics.auc > best[kind].auc:
                    best[kind] = metrics
        if len(best) < 2:
            continue
        values = [metrics.auc for metrics in best.values()]
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": shown(run.name),
                "x": rounded(values),
                "y": [f"{whom(kind)} ({m.members}/{m.members + m.nonmembers})" for kind, m in best.items()],
                "error_x": charts.bars(values, [metrics.auc_interval for metrics in best.values()], colour(number)),
                "marker": {"size": 11, "symbol": symbol(number), "color": colour(number)},
            }
        )
        worded.append(f"{run.name}: " + ", ".join(f"{whom(kind)} {m.auc:.3f}" for kind, m in best.items()))
        rows += [
            (run.name, whom(kind), str(m.members), str(m.nonmembers), f"{m.auc:.3f}", interval(m.auc_interval))
            for kind, m in best.items()
        ]
    if not data:
        return None
    return Chart(
        "kinds",
        "Leakage of records and of canaries",
        "Canaries are records made to be remembered: they stand for the most exposed people in the data (how many of "
        "them were in, of how many). The AUC of the attack that did best on each kind, in hindsight, with 95% "
        "intervals.",
        "Attack AUC by kind of candidate. " + "; ".join(worded) + ".",
        {
            "data": data,
            "layout": {
                "xaxis": {"title": {"text": AUC_TITLE}, "range": [0, 1.05]},
                "yaxis": {"type": "category", "autorange": "reversed"},
                "shapes": [_coin_toss("x")],
            },
        },
        height=24,
        numbers=Table(("run", "candidates", "members", "non-members", "AUC", "95%"), tuple(rows)),
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


def _coin_toss(axis: str) -> dict[str, Any]:
    """A dotted line across the chart where the AUC is one half."""
    other = "y" if axis == "x" else "x"
    ends = {f"{axis}0": 0.5, f"{axis}1": 0.5, f"{other}0": 0, f"{other}1": 1, f"{other}ref": "paper"}
    return {"type": "line", **ends, "line": charts.DOTTED}


def _network(model: ReportedModel) -> str:
    return "" if model.run is None else model.run.config.network.public
