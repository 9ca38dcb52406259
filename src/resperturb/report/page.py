"""One self-contained HTML page: open it, mail it, print it. It loads nothing from anywhere."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from resperturb.errors import UsageError
from resperturb.files import write_bytes
from resperturb.report import charts
from resperturb.report.collect import ReportedRun

# Below this the 95% interval of an attack's AUC touches a coin toss for all that a user can tell.
COIN_TOSS = 0.5


def write_report(path: Path, runs: Sequence[ReportedRun], title: str) -> None:
    """Write the report of ``runs`` to ``path``."""
    if not runs:
        raise UsageError("a report needs at least one finished run.")
    write_bytes(path, render(runs, title).encode())


def render(runs: Sequence[ReportedRun], title: str) -> str:
    """Return the page; everything that came from a user is escaped in it."""
    import jinja2
    from plotly.offline import get_plotlyjs

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("resperturb.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["script_json"] = script_json
    drawn = [
        charts.leak_against_accuracy(runs),
        charts.roc(runs),
        charts.generalisation_gap(runs),
        charts.training_curves(runs),
    ]
    return environment.get_template("report.html").render(
        title=title,
        verdict=verdict(runs),
        runs=runs,
        charts=[chart for chart in drawn if chart is not None],
        plotly=get_plotlyjs(),
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )


def verdict(runs: Sequence[ReportedRun]) -> str:
    """Say in a few sentences what the attacks found, no more than they showed."""
    sentences = []
    attacked = [(run, run.worst) for run in runs if run.worst is not None]
    for run, attack in attacked:
        low, high = attack.summary["auc_interval"]
        leaks = "leaks" if low > COIN_TOSS else "was not seen to leak"
        sentences.append(
            f"“{run.name}” {leaks} under the {attack.name} attack: AUC {attack.summary['auc']:.3f} "
            f"({low:.3f} to {high:.3f}), at a test accuracy of {run.run.result['test_accuracy']:.3f}."
        )
    if not attacked:
        return "No attack was run on these models, so nothing can be said about what they leak."
    sentences.append(
        "An attack that finds a leak shows it; one that finds none proves nothing, for a stronger one may exist."
    )
    return " ".join(sentences)


def script_json(value: Any) -> Any:
    """Write JSON that is safe inside a script element, whatever text is in it.

    >>> str(script_json({"name": "</script>"}))
    '{"name": "\\\\u003c/script>"}'
    """
    from markupsafe import Markup
    from plotly.utils import PlotlyJSONEncoder

    text = json.dumps(value, cls=PlotlyJSONEncoder)
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))
