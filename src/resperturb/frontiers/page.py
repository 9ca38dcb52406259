"""The page of a frontier: the figure, the choice under constraints, comparisons, numbers, and what was done."""

from importlib.resources import files

from resperturb.frontiers.curve import CANARY_AUC, CANARY_TPR, LABELS_AUC, PRIMARY, RATES, WEIGHTS_AUC, tpr_name
from resperturb.frontiers.defence import DEFENCES
from resperturb.frontiers.figure import figure
from resperturb.frontiers.result import FrontierResult, SettingResult, check_limits
from resperturb.report.page import environment

# The endpoints of the table, as far as they were measured; those of single kinds of canaries are in the JSON.
SHOWN = (PRIMARY, *(tpr_name(fpr) for fpr in RATES), CANARY_AUC, CANARY_TPR, WEIGHTS_AUC, LABELS_AUC)
Table = tuple[list[str], list[list[str]]]


def render(result: FrontierResult, **limits: float | None) -> str:
    """Return the page of a frontier, HTML that loads nothing; ``limits`` are those of its ``recommend``."""
    from markupsafe import Markup

    given = check_limits(limits)
    endpoints = {"max_auc": PRIMARY, "max_canary_tpr": CANARY_TPR}
    lines = {endpoints[name]: limit for name, limit in given.items() if name in endpoints}
    template = environment("resperturb.frontiers").get_template("frontier.html")
    return template.render(
        result=result,
        figure=Markup(figure(result, lines)),
        css=Markup((files("resperturb.report") / "templates" / "report.css").read_text()),
        choice=result.choice(**limits),
        compared=comparison_tables(result),
        settings=settings_table(result),
    )


def settings_table(result: FrontierResult) -> Table:
    """Return the columns and the rows of the table of settings."""
    shown = [name for name in SHOWN if any(name in setting.final.leaks for setting in result.settings)]

    def cells(setting: SettingResult) -> list[str]:
        leaks = setting.final.leaks
        values = [leaks[name].words() if name in leaks else "" for name in shown]
        exposed = "too few models" if setting.exposed is None else str(setting.exposed)
        return [setting.name, setting.final.accuracy.words(), *values, setting.guarantee, exposed]

    columns = ["setting", "test accuracy", *shown, "epsilon", "exposed records"]
    return columns, [cells(setting) for setting in result.settings]


def comparison_tables(result: FrontierResult) -> dict[str, Table]:
    """Return a table of comparisons by endpoint and kind of comparator, under its title."""
    found: dict[str, Table] = {}
    for one in result.comparisons:
        formal = DEFENCES[one.against].title.partition(",")[0] if one.against in DEFENCES else one.against
        other = formal or "ordinary regularisation"
        title = f"{one.endpoint[0].upper()}{one.endpoint[1:]}, against {other}"
        joint = f"difference, {100 * result.confidence:g}% joint interval"
        columns = ["setting", "test accuracy", joint, "verdict", "compared with"]
        low, high = one.difference.interval
        difference = f"{one.difference.mean:+.3f} [{low:+.3f}, {high:+.3f}]"
        row = [one.setting, f"{one.accuracy:.3f}", difference, one.verdict, " or ".join(one.comparators)]
        found.setdefault(title, (columns, []))[1].append(row)
    return found
