"""The option that says where images are kept."""

import os
from typing import Annotated, Literal

import typer

# The name is the data layer's, which this module must not import: it would pull torch into `--help`.
VARIABLE = "RESPERTURB_DATA_IN"


def _remember(chosen: str | None) -> str | None:
    # In the environment, so that processes which are started for the work know it too.
    if chosen is not None:
        os.environ[VARIABLE] = chosen
    return chosen


DataInOption = Annotated[
    Literal["memory", "disk"] | None,
    typer.Option(
        "--data-in",
        callback=_remember,
        show_default="memory",
        help="Keep decoded images in memory, or in a file that is mapped.",
    ),
]
