"""How accurate the models are, on records that they were trained on and on others."""

from collections.abc import Sequence

from resperturb.report.charts import training_curves
from resperturb.report.collect import ReportedModel
from resperturb.report.section import Section, Table, register_section


@register_section("accuracy")
def accuracy(runs: Sequence[ReportedModel]) -> Section:
    """Show the accuracies, the gap between them, and how they came about."""
    rows = []
    for run in runs:
        one = run.subject
        accuracies = (f"{value:.3f}" for value in (one.train_accuracy, one.test_accuracy, one.gap))
        rows.append((run.name, *accuracies, run.defence))
    table = Table(("model", "training accuracy", "test accuracy", "gap", "defence"), rows)
    curves = training_curves(runs)
    return Section("How accurate is it?", table=table, charts=() if curves is None else (curves,))
