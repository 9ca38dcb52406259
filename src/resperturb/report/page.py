"""One self-contained HTML page: open it, mail it, print it. It loads nothing from anywhere."""

import base64
import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from resperturb.errors import UsageError
from resperturb.files import write_bytes
from resperturb.report import charts, leak_charts, score_charts, wording
from resperturb.report.bounds_chart import bounds
from resperturb.report.collect import ReportedModel
from resperturb.report.decision import RESIDUAL, decision_of
from resperturb.report.exposed import exposed_records
from resperturb.report.facts import facts_table
from resperturb.report.policy import Policy, default_policy
from resperturb.report.section import sections_of


def write_report(
    path: Path,
    runs: Sequence[ReportedModel],
    title: str,
    show_records: bool = False,
    policy: Policy | None = None,
    for_reviewers: bool = False,
) -> None:
    """Write the report of ``runs``.

    Args:
        path: The page.
        runs: Whom it is about.
        title: Of the page.
        show_records: Show pictures of private records.
        policy: To decide by on the first page; the default policy if None.
        for_reviewers: Also name data, seeds and the whole configuration, which may help an attacker.
    """
    if not runs:
        raise UsageError("a report needs at least one finished run.")
    write_bytes(path, render(runs, title, show_records, policy, for_reviewers).encode())


def render(
    runs: Sequence[ReportedModel],
    title: str,
    show_records: bool = False,
    policy: Policy | None = None,
    for_reviewers: bool = False,
) -> str:
    """Return the page of :func:`write_report`; everything that came from a user is escaped in it."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("resperturb.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["script_json"] = script_json
    environment.filters["pretty"] = lambda value: json.dumps(value, indent=2, ensure_ascii=False)
    drawn = {
        "leak": _present(
            leak_charts.leak_against_accuracy(runs),
            score_charts.roc(runs),
            score_charts.low_false_positives(runs),
            score_charts.score_distributions(runs),
            score_charts.precision_and_recall(runs),
            leak_charts.leakage_over_queries(runs),
            leak_charts.leakage_over_gamma(runs),
            leak_charts.leakage_by_kind(runs),
        ),
        "proven": _present(bounds(runs)),
    }
    sections = sections_of(runs)
    figures = [
        *drawn["leak"],
        *(chart for section in sections.values() for chart in section.charts),
        *drawn["proven"],
    ]
    script = environment.loader.get_source(environment, "report.js")[0]  # type: ignore[union-attr]
    plotly = (files("resperturb.report") / "vendor" / "plotly-basic.min.js").read_text()
    return environment.get_template("report.html").render(
        title=title,
        headline=wording.headline(runs),
        decisions=[decision_of(run, policy or default_policy()) for run in runs],
        policy=policy or default_policy(),
        residual=RESIDUAL,
        own_policy=policy is not None,
        for_reviewers=for_reviewers,
        findings=[wording.finding(run) for run in runs] if len(runs) > 1 and any(r.attacks for r in runs) else [],
        alarms=[said for run in runs if (said := wording.refutation(run))],
        unequal=wording.unequal(runs),
        grouped=any(run.audit is not None and run.audit.groups for run in runs),
        caveat=wording.CAVEAT,
        whom=wording.whom,
        counted=wording.counted,
        runs=runs,
        charts=drawn,
        sections=sections,
        figures=[_data(chart) for chart in figures],
        exposed=[(run, found) for run in runs if show_records and (found := exposed_records(run))],
        facts=facts_table(runs, for_reviewers),
        plotly=plotly,
        script=script,
        script_sources=" ".join(_source(code) for code in (plotly, script)),
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )


def script_json(value: Any) -> Any:
    """Write JSON that is safe inside a script element, whatever text is in it.

    >>> str(script_json({"name": "</script>"}))
    '{"name":"\\\\u003c/script>"}'
    """
    from markupsafe import Markup

    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))


def _present(*drawn: charts.Chart | None) -> list[charts.Chart]:
    return [chart for chart in drawn if chart is not None]


def _data(chart: charts.Chart) -> dict[str, Any]:
    """What the page's script needs of a chart."""
    toggles = [
        [{"visible": option.visible, "layout": option.layout} for option in toggle.options]
        for toggle in chart.toggles
    ]
    return {"key": chart.key, **chart.figure, "toggles": toggles}


def _source(code: str) -> str:
    """Name a script in the page's security policy: no other script may run in it."""
    digest = hashlib.sha256(code.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
