"""What every command prints: one JSON object on stdout, or a table for a person."""

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from resperturb.files import plain

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")]


def emit(payload: Mapping[str, Any], as_json: bool, show: Callable[[Any], None]) -> None:
    """Print ``payload`` as JSON, or let ``show`` draw it on a rich console."""
    if as_json:
        typer.echo(json.dumps(plain(payload), allow_nan=False))
    else:
        from rich.console import Console

        show(Console(highlight=False))


# With fewer members or non-members than this luck alone gives any AUC.
FEW = 20


def true_positives(measured: Mapping[str, Any], rate: str) -> str:
    """Show a true positive rate, unless the false positive rate is too small to be seen among so few non-members.

    >>> true_positives({"tpr_at_fpr": {"0.01": {"tpr": 0.5}}, "nonmembers": 30}, "0.01")
    'too few'
    """
    from resperturb.auditing.metrics import can_be_seen

    if not can_be_seen(float(rate), measured["nonmembers"]):
        return "too few"
    return f"{measured['tpr_at_fpr'][rate]['tpr']:.3f}"


def warn_of_few(console: Any, measured: Mapping[str, Any]) -> None:
    """Say so if an attack was measured on so few that its numbers say next to nothing."""
    members, others = measured["members"], measured["nonmembers"]
    if min(members, others) < FEW:
        console.print(
            f"[bold yellow]Only {members} members and {others} others were asked about:[/] with fewer than {FEW} of "
            "each, luck alone can give any of these numbers."
        )


def fail(error: Exception) -> None:
    """Say what is wrong on stderr, in one message."""
    from rich.console import Console

    Console(stderr=True, highlight=False, soft_wrap=True).print(f"[bold red]Error:[/] {escaped(error)}")


def escaped(text: object) -> str:
    """Write a name as it is, for a rich console: brackets are no markup, and control characters do nothing.

    >>> escaped("runs/[red]\x1b[2J")
    'runs/\\\\[red]\\\\x1b[2J'
    """
    from rich.markup import escape

    return escape(visible(str(text)))


def visible(text: str) -> str:
    """Show control characters, which could rewrite a terminal, as the codes that they are; keep line ends.

    >>> visible("a\x1b[2J\u202eb")
    'a\\\\x1b[2J\\\\u202eb'
    """
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)
