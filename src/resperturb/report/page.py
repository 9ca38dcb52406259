"""One self-contained HTML page: open it, mail it, print it. It loads nothing from anywhere."""

import base64
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from resperturb.bounds.audit_result import RECORD
from resperturb.errors import UsageError
from resperturb.privacy.guarantee import MEANINGFUL_UP_TO, WEAK_UP_TO, number
from resperturb.report import charts, wording
from resperturb.report.collect import ReportedModel, facts_table, kinds_of
from resperturb.report.gate import RESIDUAL, STATES, decide
from resperturb.report.policy import Policy, default_policy
from resperturb.report.section import SECTIONS

if TYPE_CHECKING:
    import jinja2

TITLE = "What these models leak"
MOST_RECORDS = 12
# The scale of epsilon is logarithmic, so 0 is drawn at its left end and infinity at its right. It is marked with
# epsilons, and what bounds from each to the next are worth.
LEFT, RIGHT = 0.01, 100.0
MARKS = ((LEFT, "meaningful"), (MEANINGFUL_UP_TO, "weak"), (WEAK_UP_TO, "vacuous"))


def render(
    runs: Sequence[ReportedModel],
    title: str | None = None,
    show_records: bool = False,
    policy: Policy | None = None,
    for_reviewers: bool = False,
) -> str:
    """Return the report of models as a page, in which everything that came from a user is escaped.

    Args:
        title: Title of the page; the model's name if None and there is one.
        show_records: Show pictures of private records.
        policy: The policy of the first page; the default policy if None.
        for_reviewers: Also show data, seeds, the whole configuration and every training accuracy, which may help an
            attacker.
    """
    if not runs:
        raise UsageError("a report needs at least one finished run or audit.")
    if not for_reviewers:
        runs = [run.published() for run in runs]
    templates = environment()
    leak = [chart for chart in [charts.roc(runs)] if chart is not None]
    sections = {name: section for name in SECTIONS if (section := SECTIONS[name](runs)) is not None}
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
        bounds=bounds(runs),
        marks=[(place(start), f"{start:g}", word) for start, word in MARKS],
        sections=sections,
        figures=[{"key": one.key, **one.figure, "layouts": one.layouts} for one in figures],
        exposed=[(run, found) for run in runs if show_records and (found := exposed_records(run))],
        facts=facts_table(runs, for_reviewers),
        raw=[(run.name, run.subject.raw) for run in runs if for_reviewers and run.subject.raw],
        plotly=plotly,
        script=script,
        script_sources=" ".join(_source(code) for code in (plotly, script)),
    )


def environment(package: str = "resperturb.report") -> "jinja2.Environment":
    """Return what fills in the templates of a package."""
    import jinja2

    made = jinja2.Environment(
        loader=jinja2.PackageLoader(package, "templates"),
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


@dataclass(frozen=True)
class Bounds:
    """The bounds of a model in words, and their places on the scale; ``high`` is None where nothing is proven."""

    name: str
    shown: str
    proven: str
    together: str
    low: float
    high: float | None


def place(epsilon: float) -> float:
    """Place an epsilon on the scale: 0 is its left end, 1 its right.

    >>> place(0.0), place(1.0), place(1e9)
    (0.0, 0.5, 1.0)
    """
    share = math.log10(max(epsilon, LEFT) / LEFT) / math.log10(RIGHT / LEFT)
    return min(1.0, share)


def bounds(runs: Sequence[ReportedModel]) -> list[Bounds]:
    """Give the upper and the lower bound on epsilon of every model that has either."""
    found = []
    ways = wording.measured_alike(runs)
    for run in runs:
        first, last = run.guarantees[0], run.guarantees[-1]
        upper, lower = last.claimed_epsilon, run.bound
        if lower is None and upper == math.inf:
            continue
        proven = "nothing" if upper == math.inf else f"≤ {number(upper)}"
        if "converted_from" in last.details:  # drawn for swaps, next to the epsilon that the training was made for
            proven = f"≤ {number(first.claimed_epsilon)} ({number(upper)} for swaps, drawn)"
        shown = "not audited" if run.lower is None else "no bound"
        shown = shown if lower is None else f"≥ {number(lower.epsilon)}"
        if lower is not None and len(ways) > 1:
            shown += f" (measured as {next(n for n, way in enumerate(ways, 1) if lower.comparable(way))})"
        low, high = 0.0 if lower is None else place(lower.epsilon), None if upper == math.inf else place(upper)
        found.append(Bounds(run.name, shown, proven, "" if run.audit is None else run.audit.verdict, low, high))
    return found


def exposed_records(run: ReportedModel) -> list[tuple[str, str, str]]:
    """Find the members that the strongest attack on records names first: private data.

    Returns:
        Of each its picture, an alternative text, and how many non-members score as high.
    """
    found = next((one for one in run.scored if one.kind == RECORD), None)
    if found is None:
        return []
    scores = run.scores(found)
    first = np.argsort(-scores.members, kind="stable")[:MOST_RECORDS]
    shown = []
    for row, picture in zip(first, run.subject.pictures(first, scores.members.size), strict=False):
        above = int(np.sum(scores.nonmembers >= scores.members[row]))
        ahead = f"{above} of {scores.nonmembers.size} nonmembers score as high"
        source = "data:image/png;base64," + base64.b64encode(picture.png).decode()
        alt = f"Training image {picture.place}, class {picture.label}"
        shown.append((source, alt, f"image {picture.place}, “{picture.label}”: {ahead}"))
    return shown


def script_json(value: Any) -> Any:
    """Write JSON that is safe inside a script element, whatever text is in it.

    >>> str(script_json({"name": "</script>"}))
    '{"name":"\\\\u003c/script>"}'
    """
    from markupsafe import Markup

    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))


def _source(code: str) -> str:
    """Name a script in the page's security policy: no other script may run in it."""
    digest = hashlib.sha256(code.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
