from collections.abc import Sequence

from resperturb.report.collect import ReportedModel
from resperturb.report.section import Section, Table, register_section


@register_section("access")
def access(runs: Sequence[ReportedModel]) -> Section | None:
    """The largest AUC by each kind of access, by model."""
    largest = {
        (run.name, attack.access): attack.auc
        for run in runs
        if run.audit is not None
        for attack in reversed(run.audit.attacks)  # the strongest last
    }
    if not largest:
        return None
    rows = [(name, way, f"{auc:.3f}") for (name, way), auc in sorted(largest.items())]
    return Section("What does each kind of access give away?", table=Table(("run", "access", "largest AUC"), rows))
