"""What every command prints: one JSON object on stdout, or a table for a person."""

import json
import unicodedata
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from resperturb.files import plain

if TYPE_CHECKING:
    from rich.console import Console

    from resperturb.bounds.attack_metrics import AttackMetrics

# Seeds are added to, and torch takes 64 bits.
LARGEST_SEED = 2**62

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")]

VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Print the tables too.")]


def emit(payload: Mapping[str, Any], as_json: bool, show: Callable[[Any], None]) -> None:
    """Print ``payload`` as JSON, or let ``show`` draw it on a rich console."""
    if as_json:
        typer.echo(json.dumps(plain(payload), allow_nan=False))
    else:
        show(terminal())


def terminal(**options: Any) -> "Console":
    """Give a console of rich on which no name, whatever characters are in it, can do more than be read."""
    from rich.console import Console

    class Terminal(Console):
        def render_str(self, text: str, **kwargs: Any) -> Any:
            return super().render_str(visible(text), **kwargs)

    return Terminal(**{"highlight": False, **options})


def shown_rate(metrics: "AttackMetrics", fpr: float) -> str:
    """Show a true positive rate, or why there is none: too few non-members for so low a rate, or tied scores.

    >>> from resperturb.bounds import attack_metrics
    >>> shown_rate(attack_metrics([1.0, 2.0], [0.0] * 30), 0.01)
    'too few'
    """
    point = metrics.at_fpr(fpr)
    if point is None:
        return "too few"
    return "tied" if point.tied else f"{point.tpr:.3f}"


def fail(error: object) -> None:
    """Say what is wrong on stderr, in one message."""
    terminal(stderr=True, soft_wrap=True).print(f"[bold red]Error:[/] {escaped(error)}")


def escaped(name: object) -> str:
    """Write a name as it is where rich would read markup in it, or where a control character would act.

    >>> escaped("runs/[red]")
    'runs/\\\\[red]'
    """
    from rich.markup import escape

    return escape(visible(str(name)))


def visible(text: str) -> str:
    """Show control characters, which could rewrite a terminal, as the codes that they are; keep line ends and tabs.

    >>> visible("a\\x1b[2J")
    'a\\\\x1b[2J'
    """
    return "".join(_shown(character) for character in text)


def _shown(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return character
    return character.encode("unicode_escape").decode()
