"""`resperturb audit-scores`: what attack scores from anywhere show about a model."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from resperturb.cli.output import JsonOption, VerboseOption, emit, shown_rate

if TYPE_CHECKING:
    from resperturb.bounds.summary import ScoreAudit

Design = Literal["coins", "independent", "one-model"]
_FILE = "a .npy file, or a text file with one number per line"


def audit_scores(
    members: Annotated[Path, typer.Argument(help=f"Scores of records the model was trained on: {_FILE}.")],
    nonmembers: Annotated[Path, typer.Argument(help=f"Scores of records it never saw: {_FILE}.")],
    delta: Annotated[float, typer.Option(help="The delta at which to bound epsilon.")] = 1e-5,
    confidence: Annotated[float, typer.Option(help="The confidence of every bound and interval.")] = 0.95,
    design: Annotated[
        Design | None,
        typer.Option(
            help="How the scores were made. coins: one training, each canary put in by its own fair coin; "
            "independent: a model trained anew for each score; one-model: one model, no coins."
        ),
    ] = None,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure an attack by its scores, and bound epsilon from below.

    A higher score must mean: more likely a member. Negate losses before saving them.

    Example: `resperturb audit-scores members.npy nonmembers.npy --design coins`
    """
    from resperturb.bounds.scores import read_scores
    from resperturb.bounds.summary import audit_scores as audit

    found = audit(
        read_scores(members),
        read_scores(nonmembers),
        delta=delta,
        confidence=confidence,
        design=design,
    )
    emit(found.to_dict(), as_json, lambda console: _show(found, console, verbose))


def _show(found: "ScoreAudit", console: Any, verbose: bool) -> None:
    metrics, sure = found.metrics, f"{100 * found.confidence:.6g}%"
    low, high = metrics.auc_interval
    console.print(
        f"{metrics.members} members, {metrics.nonmembers} non-members; delta {found.delta:g}, {sure} confidence\n"
        f"AUC {metrics.auc:.4f} ({low:.4f} to {high:.4f}), balanced accuracy {metrics.balanced_accuracy:.4f}, "
        f"TPR at 1% FPR {shown_rate(metrics.at_fpr(0.01))}"
    )
    if verbose:
        _show_tables(found, console)
    for unmet in dict.fromkeys(line for bound in found.bounds.values() if bound for line in bound.unmet):
        console.print(f"Not met: {unmet}")
    if not found.delta:
        console.print("Not defined: at delta 0 no Gaussian mechanism has an epsilon.")
    recommended = found.bounds[found.recommended] if found.recommended else None
    epsilon = f", epsilon at least [bold]{recommended.epsilon:.4f}[/]" if recommended else ""
    console.print(f"Recommended: {found.recommended or 'no bound'}{epsilon}. {found.why}")
    for line in (*(recommended.assumptions if recommended else ()), *(found.caveats if verbose else ())):
        console.print(f"- {line}")
    if not verbose:
        console.print("The rates, the other bounds and their caveats: --verbose.")


def _show_tables(found: "ScoreAudit", console: Any) -> None:
    from rich.table import Table

    from resperturb.bounds.registry import BOUNDS

    metrics = found.metrics
    rates = Table("false positive rate", "true positive rate", "interval", box=None)
    for at in metrics.tpr_at_fpr:
        ends = f"{at.interval.low:.4f} to {at.interval.high:.4f}"
        rates.add_row(f"{at.fpr:.1%}", shown_rate(metrics.at_fpr(at.fpr)), ends)
    bounds = Table("bound", "epsilon at least", "assumes", "", box=None)
    for name, bound in found.bounds.items():
        value = "not defined" if bound is None else f"{bound.epsilon:.4f}"
        assumes = "a fair coin for each canary" if BOUNDS[name].design == "coins" else "independent scores"
        remark = "not met" if bound and bound.unmet else "recommended" if name == found.recommended else ""
        bounds.add_row(name, value, assumes, remark)
    for table in (rates, bounds):
        console.print()
        console.print(table)
    console.print()
