"""Sections of the report: each is one file with its registration, in this package or in another."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from resperturb.registry import Registry
from resperturb.report.charts import Chart
from resperturb.report.charts import Table as Table
from resperturb.report.collect import ReportedModel


@dataclass(frozen=True)
class Section:
    """A question as its title, then what answers it: paragraphs, a table, charts. All text is escaped in the page."""

    title: str
    paragraphs: tuple[str, ...] = ()
    table: Table | None = None
    charts: tuple[Chart, ...] = ()


Draw = Callable[[Sequence[ReportedModel]], Section | None]

SECTIONS: Registry[Draw] = Registry(
    "section of the report", group="resperturb.report_sections", package="resperturb.report.sections"
)
register_section = SECTIONS.register
