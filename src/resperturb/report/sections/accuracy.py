"""How accurate the models are, on records that they were trained on and on others."""

from collections.abc import Sequence

from resperturb.report.charts import training_curves
from resperturb.report.collect import ReportedModel
from resperturb.report.section import Section, Table, register_section
from resperturb.report.wording import LEFT_OUT, accuracy_words


@register_section("accuracy")
def accuracy(runs: Sequence[ReportedModel]) -> Section:
    """Show the accuracies, the gap between them, and how they came about."""
    rows = []
    for run in runs:
        one = run.subject
        accuracies = map(accuracy_words, (one.train_accuracy, one.test_accuracy, one.gap))
        rows.append((run.name, *accuracies, run.defence))
    table = Table(("model", "training accuracy", "test accuracy", "gap", "defence"), rows)
    curves = training_curves(runs)
    why = (LEFT_OUT,) if any(run.subject.train_accuracy is None for run in runs) else ()
    return Section("How accurate is it?", why, table, () if curves is None else (curves,))
