"""The command line: parse, call the library, print. One module per command."""

import gc
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from resperturb.cli import (
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
from resperturb.registry import installed_entries

# What `resperturb --help` shows: the commands by panel, each in at most 60 characters.
PANELS: dict[str, dict[Callable[..., None], str]] = {
    "Start": {
        demo.demo: "See networks trained, audited and decided about in a minute",
        train.train: "Train a network, or a head with a guarantee, on your images",
        audit.audit: "Measure how much a model reveals about its training set",
    },
    "Decide and release": {
        report.report: "Write a page about models: decision, leakage, proof",
        gate.gate: "Decide by a policy; the exit code is the decision",
        report.compare: "Print models side by side",
        card.card: "Write a model card with its privacy section",
        evidence.evidence: "Answer the clauses of a public text from an audit",
        verify.verify: "Check that the files of a run or an audit are unchanged",
    },
    "Measure": {
        frontier.frontier: "Find the defence that costs least for the leak you accept",
        evaluate.evaluate: "Measure a run's accuracy, its noise averaged or off",
        audit_scores.audit_scores: "Bound epsilon from below by the scores of your own attack",
    },
}


# They end within two seconds, of which collecting garbage while torch is imported would take 14%.
SHORT = ("gate", "compare", "card", "evidence", "verify")


class _Commands(TyperGroup):
    """The commands of this package, and those that other installed packages add.

    An entry point of the group ``resperturb.commands`` is a function that registers commands on a ``typer.Typer``.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        added = typer.Typer()
        for entry in installed_entries(tuple(sys.path)).select(group="resperturb.commands"):
            entry.load()(added)
        self.commands = {**self.commands, **typer.main.get_group(added).commands}


app = typer.Typer(
    name="resperturb",
    cls=_Commands,
    help="Measure how much a classifier reveals about its training set, reduce it, and decide about a release.",
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


for _panel, _commands in PANELS.items():
    for _command, _line in _commands.items():
        _kind = train.Command if _command is train.train else TyperCommand
        _name = _command.__name__.replace("_", "-")
        app.command(_name, cls=_kind, short_help=_line, rich_help_panel=_panel)(_command)
app.add_typer(
    budget.budget_app,
    name="budget",
    short_help="Say which epsilon can be proven, or the noise that it needs",
    rich_help_panel="Expert",
)


@contextmanager
def _shown_log() -> Iterator[None]:
    """Print progress and warnings of the library on stderr, from one process only."""
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
    if sys.argv[1:2] and sys.argv[1] in SHORT:
        gc.disable()
    try:
        with _shown_log():
            app()
    except SystemExit as ended:
        if ended.code == 130:  # Ctrl-C
            print("Stopped. What was trained is kept: rerun the same command to resume.", file=sys.stderr)
        raise
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except (ResperturbError, OSError, MemoryError) as error:
        from resperturb.cli.output import fail

        # Of the processes of one training, which all know the error, one says it.
        if not isinstance(error, ResperturbError) or os.environ.get("LOCAL_RANK", "0") == "0":
            fail(_said(error))
        sys.exit(getattr(error, "exit_code", 1))


def _said(error: BaseException) -> str:
    if isinstance(error, OSError):
        where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        return f"{where}{error.strerror or error}."
    if isinstance(error, MemoryError):
        return (
            f"there is not enough memory for this ({error or 'none is left'}); ask for less, or for smaller images."
        )
    return str(error)
