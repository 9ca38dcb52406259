"""One self-contained HTML page: open it, mail it, print it. It loads nothing from anywhere."""

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from resperturb.bounds.audit_result import RECORD
from resperturb.errors import UsageError
from resperturb.report import bounds_chart, charts, score_charts, wording
from resperturb.report.collect import ReportedModel, kinds_of
from resperturb.report.gate import RESIDUAL, STATES, decide
from resperturb.report.policy import Policy, default_policy
from resperturb.report.section import sections_of

if TYPE_CHECKING:
    import jinja2

TITLE = "What these models leak"
MOST_RECORDS = 12


@dataclass(frozen=True)
class Shown:
    """A member that the strongest attack names first: its picture, and how many non-members score as high."""

    source: str
    alt: str
    words: str


@dataclass(frozen=True)
class FactRow:
    """A setting, its value for every model, and whether these differ."""

    label: str
    values: tuple[str, ...]
    differs: bool


def render(
    runs: Sequence[ReportedModel],
    title: str | None = None,
    show_records: bool = False,
    policy: Policy | None = None,
    for_reviewers: bool = False,
) -> str:
    """Return the report of models as a page, in which everything that came from a user is escaped.

    Args:
        runs: The models.
        title: Title of the page; the model's name if None and there is one.
        show_records: Show pictures of private records.
        policy: The policy of the first page; the default policy if None.
        for_reviewers: Also name data, seeds and the whole configuration, which may help an attacker.
    """
    if not runs:
        raise UsageError("a report needs at least one finished run or audit.")
    templates = environment()
    drawn = [charts.leak_against_accuracy(runs), score_charts.roc(runs), score_charts.score_distributions(runs)]
    leak = [chart for chart in drawn if chart is not None]
    sections = sections_of(runs)
    figures = [*leak, *(chart for section in sections.values() for chart in section.charts)]
    own = files("resperturb.report")
    script = (own / "templates" / "report.js").read_text()
    plotly = (own / "vendor" / "plotly-basic.min.js").read_text()
    wanted = policy or default_policy()
    worst = list(STATES).index
    return templates.get_template("report.html").render(
        title=title or (runs[0].name if len(runs) == 1 else TITLE),
        decisions=sorted((decide(run, wanted) for run in runs), key=lambda one: worst(one.outcome)),
        policy=wanted,
        residual=RESIDUAL,
        own_policy=policy is not None,
        wording=wording,
        kinds_of=kinds_of,
        runs=runs,
        charts=leak,
        bounds=bounds_chart.bounds(runs),
        marks=[(bounds_chart.place(start), f"{start:g}", word) for start, word in bounds_chart.MARKS],
        sections=sections,
        figures=[_data(chart) for chart in figures],
        exposed=[(run, found) for run in runs if show_records and (found := exposed_records(run))],
        facts=facts_table(runs, for_reviewers),
        raw=[(run.name, run.subject.raw) for run in runs if for_reviewers and run.subject.raw],
        plotly=plotly,
        script=script,
        script_sources=" ".join(_source(code) for code in (plotly, script)),
    )


def environment() -> "jinja2.Environment":
    """Return what fills in the templates of pages."""
    import jinja2

    made = jinja2.Environment(
        loader=jinja2.PackageLoader("resperturb.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["script_json"] = script_json
    made.filters["pretty"] = lambda value: json.dumps(value, indent=2, ensure_ascii=False)
    made.globals["made"] = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    made.globals["version"] = version("resperturb")
    return made


def facts_table(runs: Sequence[ReportedModel], for_reviewers: bool = False) -> list[FactRow]:
    """Set the settings of the models side by side; a setting that no model has is left out."""
    columns = [{fact.label: fact for fact in run.subject.facts} for run in runs if run.subject.facts]
    rows = []
    for label, first in columns[0].items() if columns else ():
        values = tuple(column[label].value if label in column else "" for column in columns)
        if any(values) and (for_reviewers or not first.reviewers_only):
            rows.append(FactRow(label, values, first.compared and len(set(values)) > 1))
    return rows


def exposed_records(run: ReportedModel) -> list[Shown]:
    """Find the members that the strongest attack on records names first, with their pictures: private data."""
    found = next((one for one in run.scored if one.kind == RECORD), None)
    if found is None:
        return []
    scores = run.scores(found)
    members, nonmembers = scores.members, scores.nonmembers
    first = np.argsort(-members, kind="stable")[:MOST_RECORDS]
    shown = []
    for place, picture in zip(first, run.subject.pictures(first, members.size), strict=False):
        above = int(np.sum(nonmembers >= members[place]))
        ahead = f"{above} of {nonmembers.size} nonmembers score as high"
        if not above:
            ahead = f"ahead of all {nonmembers.size} nonmembers"
        source = "data:image/png;base64," + base64.b64encode(picture.png).decode()
        alt = f"Training image {picture.place}, class {picture.label}"
        shown.append(Shown(source, alt, f"image {picture.place}, “{picture.label}”: {ahead}"))
    return shown


def script_json(value: Any) -> Any:
    """Write JSON that is safe inside a script element, whatever text is in it.

    >>> str(script_json({"name": "</script>"}))
    '{"name":"\\\\u003c/script>"}'
    """
    from markupsafe import Markup

    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))


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
