"""What every command prints: one JSON object on stdout, or a table for a person."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")]


def plain(value: Any) -> Any:
    """Make ``value`` JSON: tuples become lists; a number that is not finite becomes its name.

    >>> plain({"epsilon": math.inf, "sizes": (1, 2)})
    {'epsilon': 'inf', 'sizes': [1, 2]}
    """
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, str | bool | int) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Sequence):
        return [plain(v) for v in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    return str(value)


def emit(payload: Mapping[str, Any], as_json: bool, show: Callable[[Any], None]) -> None:
    """Print ``payload`` as JSON, or let ``show`` draw it on a rich console."""
    if as_json:
        typer.echo(json.dumps(plain(payload), allow_nan=False))
    else:
        from rich.console import Console

        show(Console(highlight=False))


def fail(error: Exception) -> None:
    """Say what is wrong on stderr, in one message."""
    from rich.console import Console

    Console(stderr=True, highlight=False, soft_wrap=True).print(f"[bold red]Error:[/] {_escaped(error)}")


def _escaped(error: Exception) -> str:
    from rich.markup import escape

    return escape(str(error))
