"""The page of a frontier: the figure, the choice under constraints, comparisons, numbers, and what was done."""

from datetime import UTC, datetime
from importlib.metadata import version
from importlib.resources import files

from resperturb.frontiers.curve import CANARY_AUC, CANARY_TPR, LABELS_AUC, PRIMARY, RATES, WEIGHTS_AUC, tpr_name
from resperturb.frontiers.figure import figure
from resperturb.frontiers.result import FrontierResult, SettingResult, check_limits


def render(result: FrontierResult, **limits: float | None) -> str:
    """Return the page of a frontier: HTML that loads nothing.

    Args:
        result: What was found.
        limits: Limits of :meth:`FrontierResult.recommend`.
    """
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("resperturb.frontiers", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    given = check_limits(limits)
    endpoints = {"max_auc": PRIMARY, "max_canary_tpr": CANARY_TPR}
    lines = {endpoints[name]: limit for name, limit in given.items() if name in endpoints}
    return environment.get_template("frontier.html").render(
        result=result,
        figure=Markup(figure(result, lines, titled=False)),
        css=Markup((files("resperturb.report") / "templates" / "report.css").read_text()),
        choice=result.choice(**limits),
        columns=columns(result),
        rows=[cells(result, setting) for setting in result.settings],
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=version("resperturb"),
    )


# The endpoints of the table, as far as they were measured; those of single kinds of canaries are in the JSON.
SHOWN = (PRIMARY, *(tpr_name(fpr) for fpr in RATES), CANARY_AUC, CANARY_TPR, WEIGHTS_AUC, LABELS_AUC)


def shown(result: FrontierResult) -> list[str]:
    """List the endpoints of the table."""
    return [name for name in SHOWN if any(name in setting.final.leaks for setting in result.settings)]


def columns(result: FrontierResult) -> list[str]:
    """Name the columns of the table of settings."""
    return ["setting", "test accuracy", *shown(result), "epsilon", "exposed records"]


def cells(result: FrontierResult, setting: SettingResult) -> list[str]:
    """Write one setting as a row of that table."""
    leaks = setting.final.leaks
    values = [leaks[name].words() if name in leaks else "" for name in shown(result)]
    epsilon = "none" if setting.epsilon is None else f"{setting.epsilon:.3g}"
    exposed = "too few models" if setting.exposed is None else str(setting.exposed)
    return [setting.name, setting.final.accuracy.words(), *values, epsilon, exposed]
