"""The page of a frontier: the figure, the choice under constraints, comparisons, numbers, and what was done."""

from datetime import UTC, datetime
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from resperturb.files import write_bytes
from resperturb.frontier.curve import CANARY_TPR, PRIMARY
from resperturb.frontier.figure import figure
from resperturb.frontier.result import FrontierResult, Recommendation, SettingResult


def write_page(path: Path, result: FrontierResult, **limits: float | None) -> None:
    """Write the page of a frontier as one HTML file that loads nothing.

    Args:
        path: The file.
        result: What was found.
        limits: Limits of :meth:`FrontierResult.recommend`.
    """
    write_bytes(path, render(result, **limits).encode())


def render(result: FrontierResult, **limits: float | None) -> str:
    """Return the page of :func:`write_page`."""
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("resperturb.frontier", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    given = {name: limit for name, limit in limits.items() if limit is not None}
    endpoints = {"max_auc": PRIMARY, "max_canary_tpr": CANARY_TPR}
    lines = {endpoints[name]: limit for name, limit in given.items() if name in endpoints}
    choice: Recommendation | None = result.recommend(**given) if given else None
    return environment.get_template("frontier.html").render(
        result=result,
        figure=Markup(figure(result, lines, titled=False)),
        css=Markup((files("resperturb.report") / "templates" / "report.css").read_text()),
        choice=choice,
        columns=columns(result),
        rows=[cells(result, setting) for setting in result.settings],
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=version("resperturb"),
    )


def columns(result: FrontierResult) -> list[str]:
    """Name the columns of the table of settings."""
    return ["setting", "test accuracy", *result.settings[0].final.leaks, "epsilon", "exposed records"]


def cells(result: FrontierResult, setting: SettingResult) -> list[str]:
    """Write one setting as a row of that table."""
    leaks = setting.final.leaks
    shown = [leaks[name].words() if name in leaks else "" for name in result.settings[0].final.leaks]
    epsilon = "none" if setting.epsilon is None else f"{setting.epsilon:.3g}"
    exposed = "too few models" if setting.exposed is None else str(setting.exposed)
    return [setting.name, setting.final.accuracy.words(), *shown, epsilon, exposed]
