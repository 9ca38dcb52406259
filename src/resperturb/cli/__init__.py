"""The command line: parse, call the library, print. One module per command."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from resperturb.cli import (
    attack,
    audit,
    audit_scores,
    budget,
    card,
    demo,
    evaluate,
    evidence,
    frontier,
    gate,
    report,
    train,
    verify,
)
from resperturb.errors import ResperturbError
from resperturb.heap import tune_process


class _Commands(TyperGroup):
    """The commands of this package, and those that other installed packages add.

    An entry point of the group ``resperturb.commands`` is a function that registers commands on a ``typer.Typer``.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        added = typer.Typer()
        for entry in entry_points(group="resperturb.commands"):
            entry.load()(added)
        self.commands.update(typer.main.get_group(added).commands)


app = typer.Typer(
    name="resperturb",
    cls=_Commands,
    help="Train residual networks that leak less, attack them hard, and state honestly what may be claimed.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(version("resperturb"))
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


# In the order of `resperturb --help`.
for _command in (
    demo,
    train,
    evaluate,
    verify,
    attack,
    report,
    audit,
    audit_scores,
    frontier,
    gate,
    card,
    evidence,
    budget,
):
    _command.register(app)


# The exit code of Ctrl-C.
INTERRUPTED = 130


@contextmanager
def _shown_log() -> Iterator[None]:
    """Print what the library tells of its work, and its warnings, on stderr; one process speaks for all."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger = logging.getLogger("resperturb")
    logger.addHandler(handler)
    logger.propagate = False  # Opacus gives the root logger a handler of its own, which would say everything again
    logger.setLevel(logging.INFO if os.environ.get("RANK", "0") == "0" else logging.WARNING)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = True


def main() -> None:
    """Run the command line; a user's mistake ends in one message, never in a traceback."""
    tune_process()
    try:
        with _shown_log():
            app()
    except ResperturbError as error:
        from resperturb.cli.output import fail

        fail(error)
        sys.exit(error.exit_code)
    except SystemExit as ended:
        if ended.code == INTERRUPTED:
            print("Stopped. What was trained is kept: rerun the same command to resume.", file=sys.stderr)
        raise
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        from resperturb.cli.output import fail

        where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        fail(f"{where}{error.strerror or error}.")
        sys.exit(1)
    except MemoryError as error:
        from resperturb.cli.output import fail

        fail(f"there is not enough memory for this ({error or 'none is left'}); ask for less, or for smaller images.")
        sys.exit(1)
