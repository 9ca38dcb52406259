"""What is proven and what was shown, on one axis."""

import math
from collections.abc import Sequence
from typing import Any

from resperturb.bounds.result import LowerBound
from resperturb.privacy.guarantee import MEANINGFUL_UP_TO, WEAK_UP_TO, number
from resperturb.report.charts import Chart, Table, shown
from resperturb.report.collect import ReportedModel
from resperturb.report.wording import measured_alike, not_comparable

# The axis is logarithmic, so an epsilon of 0 is drawn at its left end, and an infinite one at its right.
LEFT = 0.01
LEAST_RIGHT = 100.0


def bounds(runs: Sequence[ReportedModel]) -> Chart | None:
    """Draw the upper and the lower bound on epsilon of every run that has either."""
    drawn = [run for run in runs if run.lower is not None or _upper(run) < math.inf]
    if not drawn:
        return None
    finite = [upper for run in drawn if (upper := _upper(run)) < math.inf]
    right = 10 ** math.ceil(math.log10(3 * max([*finite, LEAST_RIGHT / 3])))
    ways, why = measured_alike(drawn), not_comparable(drawn)
    rows = [_row(run, len(drawn) - number, right, ways) for number, run in enumerate(drawn)]
    data: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": [x for row in rows for x in (row["low"], row["high"], None)],
            "y": [y for row in rows for y in (row["y"], row["y"], None)],
            "line": {"color": "@faint", "width": 2},
            "hoverinfo": "skip",
            "showlegend": False,
        },
        {
            "type": "scatter",
            "mode": "text",
            "x": [LEFT] * len(rows),
            "y": [row["y"] + 0.22 for row in rows],
            "text": [row["text"] for row in rows],
            "textposition": "top right",
            "hoverinfo": "skip",
            "showlegend": False,
            "cliponaxis": False,
        },
        _markers(
            "shown by an attack (lower bound)",
            [row for row in rows if row["shown"]],
            "low",
            {"color": "@1", "symbol": "triangle-right", "size": 15},
        ),
        _markers(
            "proven (upper bound)",
            [row for row in rows if row["high"] < right],
            "high",
            {"color": "@0", "symbol": "triangle-left", "size": 15},
        ),
        _markers(
            "nothing is proven: it may be any number",
            [row for row in rows if row["high"] == right],
            "high",
            {"color": "@faint", "symbol": "arrow-right", "size": 15},
        ),
    ]
    zones = (
        ("meaningful", LEFT, MEANINGFUL_UP_TO, 4),
        ("weak", MEANINGFUL_UP_TO, WEAK_UP_TO, 10),
        ("vacuous", WEAK_UP_TO, right, 18),
    )
    return Chart(
        "bounds",
        "Epsilon: proven and shown",
        "The true epsilon of a model lies between what an attack has shown and what a proof allows, each under the "
        f"assumptions below. Up to {MEANINGFUL_UP_TO:g} a bound is meaningful, up to {WEAK_UP_TO:g} weak, beyond it "
        f"promises nothing of use. A lower bound at the left end is 0: nothing was shown. {why or ''}".strip(),
        "Upper and lower bounds on epsilon. " + "; ".join(row["worded"] for row in rows) + ".",
        {
            "data": [trace for trace in data if trace["x"]],
            "layout": {
                "xaxis": {
                    "title": {"text": "epsilon"},
                    "type": "log",
                    "dtick": 1,  # decades; between them plotly would write 2 and 5 again and again
                    "range": [math.log10(LEFT), math.log10(right)],
                },
                "yaxis": {"visible": False, "range": [0.5, len(rows) + 0.9]},
                "shapes": [_zone(low, high, shade) for _, low, high, shade in zones],
                "annotations": [_zone_name(low, high, word) for word, low, high, _ in zones],
            },
        },
        height=10 + 5 * len(rows),
        numbers=Table(("model", "shown", "proven", "together"), tuple(map(_line, drawn))),
    )


def _upper(run: ReportedModel) -> float:
    return run.guarantees[-1].claimed_epsilon


def _line(run: ReportedModel) -> tuple[str, ...]:
    upper, lower = _upper(run), run.lower
    return (
        run.name,
        "not audited" if lower is None else f"at least {number(lower.epsilon)}",
        "nothing" if upper == math.inf else f"at most {_counted(run)}",
        "" if run.audit is None else run.audit.verdict,
    )


def _counted(run: ReportedModel) -> str:
    """What is proven; where it is drawn for swaps, beside the epsilon that the training was made for."""
    first, last = run.guarantees[0], run.guarantees[-1]
    if "converted_from" not in last.details:
        return number(last.claimed_epsilon)
    return f"{number(first.claimed_epsilon)} ({number(last.claimed_epsilon)} for swaps, drawn)"


def _row(run: ReportedModel, y: int, right: float, ways: Sequence[LowerBound]) -> dict[str, Any]:
    upper, lower = _upper(run), run.lower
    alike = [place for place, way in enumerate(ways, start=1) if lower is not None and lower.comparable(way)]
    which = f" (measured as {alike[0]})" if len(ways) > 1 and alike else ""
    found = "" if lower is None else f"shown {number(lower.epsilon)}{which}, "
    proven = "nothing proven" if upper == math.inf else f"proven {_counted(run)}"
    refuted = ": <b>refuted</b>" if run.refuted else ""
    return {
        "y": y,
        "low": LEFT if lower is None else max(LEFT, lower.epsilon),
        "high": min(upper, right),
        "shown": lower is not None,
        "text": f"<b>{shown(run.name)}</b><br>{found}{proven}{refuted}",
        "worded": f"{run.name}: {found}{proven}" + (", refuted" if run.refuted else ""),
    }


def _markers(name: str, rows: Sequence[dict[str, Any]], end: str, marker: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [row[end] for row in rows],
        "y": [row["y"] for row in rows],
        "marker": marker,
        "cliponaxis": False,
        "hovertemplate": "%{x:.3g}<extra></extra>",
    }


def _zone(low: float, high: float, shade: int) -> dict[str, Any]:
    return {
        "type": "rect",
        "x0": low,
        "x1": high,
        "y0": 0,
        "y1": 1,
        "yref": "paper",
        "layer": "below",
        "line": {"width": 0},
        "fillcolor": f"@faint/{shade}",
    }


def _zone_name(low: float, high: float, word: str) -> dict[str, Any]:
    # Annotations count in powers of ten on a logarithmic axis, shapes do not.
    middle = (math.log10(low) + math.log10(high)) / 2
    return {
        "x": middle,
        "y": 0,
        "yref": "paper",
        "yanchor": "bottom",
        "text": word,
        "showarrow": False,
        "font": {"color": "@faint", "size": 10},
    }
