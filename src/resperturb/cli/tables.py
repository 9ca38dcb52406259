"""The tables that several commands print."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from resperturb.report.collect import ReportedModel


def comparison(runs: "Sequence[ReportedModel]") -> "Table":
    """One line per run: what the strongest attack found, accuracies, what is proven and what was shown of epsilon."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from resperturb.cli.output import visible
    from resperturb.privacy.guarantee import number
    from resperturb.report.wording import not_comparable

    caption = (
        "AUC of the strongest attack; 0.5 is a coin toss. Each epsilon rests on assumptions and protects something "
        "particular: see the report, or --json."
    )
    why = not_comparable(runs)
    if why:
        caption += f" {why}"
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), caption=caption, caption_justify="left")
    table.add_column("run\n  noise", overflow="fold")
    headings = ("AUC\n95%", "TPR at\n1% FPR", "train\nacc.", "test\nacc.", "epsilon\nproven", "epsilon\nshown")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for run in runs:
        leak, named = "not\nattacked", ""
        if run.worst is not None:
            low, high = run.worst.interval
            leak = f"{run.worst.auc:.3f}\n{low:.3f}-{high:.3f}"
            point = (run.most_found(0.01) or run.worst).tpr(0.01)
            named = "too few" if point is None else "tied" if point.tied else f"{point.tpr:.3f}"
        guaranteed = run.guarantee.claimed_epsilon
        upper = "none" if guaranteed == float("inf") else f"<= {number(guaranteed)}"
        table.add_row(
            Text(visible(f"{run.name}\n  {run.noise}")),
            leak,
            named,
            f"{run.train_accuracy:.3f}",
            f"{run.test_accuracy:.3f}",
            upper,
            "" if run.lower is None else "apart" if why else f">= {run.lower.epsilon:.3f}",
        )
    return table
