"""How accurate the models are, on records that they were trained on and on others."""

from collections.abc import Sequence

from resperturb.report.charts import generalisation_gap, training_curves
from resperturb.report.collect import ReportedModel
from resperturb.report.section import Section, Table, register_section


@register_section("accuracy")
def accuracy(runs: Sequence[ReportedModel]) -> Section:
    """Show the accuracies, the gap between them, and how they came about."""
    curves = training_curves(runs)
    return Section(
        "How accurate is it?",
        table=Table(
            ("run", "training accuracy", "test accuracy", "gap", "noise"),
            [
                (run.name, f"{run.train_accuracy:.3f}", f"{run.test_accuracy:.3f}", f"{run.gap:.3f}", run.noise)
                for run in runs
            ],
        ),
        charts=(generalisation_gap(runs), *(() if curves is None else (curves,))),
    )
