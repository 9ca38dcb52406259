"""The tables that several commands print."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from resperturb.report.collect import ReportedRun


def comparison(runs: "Sequence[ReportedRun]") -> "Table":
    """One line a run: noise, what the strongest attack found, accuracies."""
    from rich.table import Table

    table = Table()
    table.add_column("run")
    for heading in ("gamma", "attack AUC (95%)", "TPR at 1% FPR", "train acc.", "test acc.", "gap"):
        table.add_column(heading, justify="right")
    for run in runs:
        line = run.to_dict()
        attack = line.get("attack")
        leak = ("not attacked", "")
        if attack is not None:
            low, high = attack["auc_interval"]
            leak = (f"{attack['auc']:.3f} ({low:.3f} to {high:.3f})", f"{attack['tpr_at_1_percent_fpr']:.3f}")
        table.add_row(
            run.name,
            f"{run.gamma:g}",
            *leak,
            *(f"{line[key]:.3f}" for key in ("train_accuracy", "test_accuracy", "gap")),
        )
    return table
