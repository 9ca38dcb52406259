"""The tables that several commands print."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from resperturb.bounds.result import LowerBound
    from resperturb.report.collect import ReportedModel


def comparison(runs: "Sequence[ReportedModel]") -> "Table":
    """One line per run: what the strongest attack found, accuracies, what is proven and what was shown of epsilon."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from resperturb.cli.output import visible
    from resperturb.report.wording import measured_alike, not_comparable

    caption = (
        "AUC of the strongest attack; 0.5 is a coin toss. Each epsilon rests on assumptions and protects something "
        "particular: see the report, or --json."
    )
    ways = measured_alike(runs)
    if why := not_comparable(runs):
        caption += f" {why}"
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), caption=caption, caption_justify="left")
    table.add_column("run\n  noise", overflow="fold")
    headings = ["AUC\n95%", "TPR at\n1% FPR", "train\nacc.", "test\nacc.", "epsilon\nproven"]
    shown = [f"shown\nas {number}" for number in range(1, len(ways) + 1)]
    for heading in [*headings, *(shown if len(ways) > 1 else ["epsilon\nshown"])]:
        table.add_column(heading, justify="right", no_wrap=True)
    for run in runs:
        leak, named = "not\nattacked", ""
        if run.worst is not None:
            low, high = run.worst.interval
            leak = f"{run.worst.auc:.3f}\n{low:.3f}-{high:.3f}"
            point = run.tpr(0.01)
            named = "too few" if point is None else "tied" if point.tied else f"{point.tpr:.3f}"
        table.add_row(
            Text(visible(f"{run.name}\n  {run.noise}")),
            leak,
            named,
            f"{run.train_accuracy:.3f}",
            f"{run.test_accuracy:.3f}",
            _proven(run),
            *("" if run.lower is None or not run.lower.comparable(way) else _shown(run.lower) for way in ways),
            *([] if ways else [""]),
        )
    return table


def _proven(run: "ReportedModel") -> str:
    """What is proven, and below it what that is for swaps where the lower bound is one for swaps."""
    from resperturb.privacy.guarantee import number

    epsilon, tested = run.guarantee.claimed_epsilon, run.guarantees[-1]
    if epsilon == float("inf"):
        return "none"
    swap = f"\n<= {number(tested.claimed_epsilon)} swap" if "converted_from" in tested.details else ""
    return f"<= {number(epsilon)}{swap}"


def _shown(bound: "LowerBound") -> str:
    return f">= {bound.epsilon:.2f}"
