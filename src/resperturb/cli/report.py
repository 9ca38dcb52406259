"""``resperturb report`` and ``resperturb compare``: models side by side, as a page and as a table."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from resperturb.cli.output import JsonOption, PolicyOption, ReviewersOption, emit, shown_rate

if TYPE_CHECKING:
    from rich.table import Table

    from resperturb.bounds.result import LowerBound
    from resperturb.report.collect import ReportedModel


Runs = Annotated[list[Path], typer.Argument(help="Folders of finished runs or of audits.")]
Order = Literal["given", "name", "leakage", "accuracy", "epsilon"]


def report(
    runs: Runs,
    out: Annotated[Path, typer.Option("--out", "-o", help="The page.")] = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    show_records: Annotated[
        bool,
        typer.Option("--show-records", help="Show pictures of the most exposed records. They are private data."),
    ] = False,
    policy: PolicyOption = None,
    for_reviewers: ReviewersOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write one self-contained HTML page about models.

    It shows the decision by a policy, what they leak, how accurate they are, what is proven, what was tried and how
    they were made. It loads nothing from the network and can be mailed and printed.

    Example: `resperturb report runs/plain runs/noisy -o report.html`
    """
    from resperturb.files import write_bytes
    from resperturb.report.collect import open_models
    from resperturb.report.page import render
    from resperturb.report.policy import read_policy

    wanted = None if policy is None else read_policy(policy)
    found = open_models(runs)
    write_bytes(out, render(found, title, show_records, wanted, for_reviewers).encode())
    payload = {"report": str(out), "models": [run.to_dict() for run in found]}
    emit(payload, as_json, lambda console: console.print(f"Open {out} in a browser.", markup=False))


def compare(
    runs: Runs,
    sort: Annotated[Order, typer.Option(help="Order of the rows; the best first.")] = "given",
    as_json: JsonOption = False,
) -> None:
    """Print models side by side: what differs, the strongest attack, accuracies, epsilon proven and shown.

    Folders that hold neither a finished run nor an audit are skipped, and named. `resperturb report` writes a page.

    Example: `resperturb compare runs/* --sort leakage`
    """
    from resperturb.errors import UsageError
    from resperturb.report.collect import open_models

    if missing := [str(path) for path in runs if not path.exists()]:
        raise UsageError(f"there is no {', '.join(missing)}.")
    finished = [path for path in runs if any((path / name).exists() for name in ("result.json", "audit.json"))]
    if not finished:
        raise UsageError(f"there is no finished run and no audit among {', '.join(map(str, runs))}.")
    if skipped := [str(path) for path in runs if path not in finished]:
        typer.echo(f"Skipped, neither a finished run nor an audit: {', '.join(skipped)}", err=True)
    found = _sorted(open_models(finished), sort)
    payload = {"models": [run.to_dict() for run in found]}
    emit(payload, as_json, lambda console: _show(console, found))


def _sorted(models: "list[ReportedModel]", order: Order) -> "list[ReportedModel]":
    """Order models; those that were not audited come last by leakage and by the epsilon that was shown."""
    keys: dict[str, Callable[[ReportedModel], Any]] = {
        "name": lambda one: one.name,
        "leakage": lambda one: float("inf") if one.strongest is None else one.strongest.auc,
        "accuracy": lambda one: -one.subject.test_accuracy,
        "epsilon": lambda one: one.guarantee.claimed_epsilon,
    }
    return models if order == "given" else sorted(models, key=keys[order])


def _show(console: Any, runs: "list[ReportedModel]") -> None:
    from resperturb.report.wording import refutation, unequal

    console.print(comparison(runs))
    for said in (*map(refutation, runs), unequal(runs)):
        if said:
            console.print(said, markup=False)


def comparison(runs: "Sequence[ReportedModel]") -> "Table":
    """Make a table of one row per model: what differs, leakage, accuracies, and epsilon proven and shown."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from resperturb.cli.output import visible
    from resperturb.report.collect import facts_table
    from resperturb.report.wording import accuracy_words, measured_alike, not_comparable, whom

    kinds = {whom(run.strongest.kind, run.unit) for run in runs if run.strongest is not None}
    of = f" on {', '.join(sorted(kinds))}" if kinds else ""
    caption = (
        f"AUC of the strongest attack{of}; 0.5 is guessing. Below a proven epsilon: the largest AUC that any attack "
        "can have. Each epsilon rests on assumptions and protects something particular: see the report, or --json."
    )
    ways = measured_alike(runs)
    if why := not_comparable(runs):
        caption += f" {why}"
    rows = facts_table(runs)
    if others := [row.label for row in rows if row.differs and row.label not in ("noise", "method")]:
        caption += f" The models also differ in: {', '.join(others)}."
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), caption=caption, caption_justify="left")
    table.add_column("model\n  what differs", overflow="fold", min_width=14 if len(ways) < 3 else None)
    headings = ["AUC\n95%", "TPR at\n1% FPR", "test acc.\n(train)", "epsilon\nproven"]
    shown = [f"shown\nas {number}" for number in range(1, len(ways) + 1)]
    for heading in [*headings, *(shown if len(ways) > 1 else ["epsilon\nshown"])]:
        table.add_column(heading, justify="right", no_wrap=True)
    for run in runs:
        leak, named = "not\naudited", ""
        if run.strongest is not None:
            low, high = run.strongest.interval
            leak, named = f"{run.strongest.auc:.3f}\n{low:.3f}-{high:.3f}", shown_rate(run.tpr)
        table.add_row(
            Text(visible(f"{run.name}\n  {run.subject.defence or run.subject.description}")),
            leak,
            named,
            f"{run.subject.test_accuracy:.3f}\n({accuracy_words(run.subject.train_accuracy)})",
            _proven(run),
            *([_shown(run, way) for way in ways] or [_shown(run, None)]),
        )
    return table


def _proven(run: "ReportedModel") -> str:
    """What is proven, for swaps too where the lower bound is one for swaps, and the largest AUC that it allows."""
    from resperturb.privacy.guarantee import TELLING_AUC, number

    epsilon, tested = run.guarantee.claimed_epsilon, run.guarantees[-1]
    if epsilon == float("inf"):
        return "none"
    swap = f"\n<= {number(tested.claimed_epsilon)} swap" if "converted_from" in tested.details else ""
    auc = f"\nAUC {run.guarantee.max_auc:.3f}" if run.guarantee.max_auc < TELLING_AUC else ""
    return f"<= {number(epsilon)}{swap}{auc}"


def _shown(run: "ReportedModel", way: "LowerBound | None") -> str:
    """The lower bound in the column of bounds that were measured as `way` says."""
    if run.bound is None:
        return "" if run.lower is None else "no bound"
    return f">= {run.bound.epsilon:.2f}" if way is not None and run.bound.comparable(way) else ""
