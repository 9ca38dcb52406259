"""Options of several commands: where images are kept, and where trainings run."""

import os
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from resperturb.engine import Engine

# The name is the data layer's, which this module must not import: it would pull torch into `--help`.
DATA_IN_VARIABLE = "RESPERTURB_DATA_IN"


def _remember(chosen: str | None) -> str | None:
    # In the environment, so that processes which are started for the work know it too.
    if chosen is not None:
        os.environ[DATA_IN_VARIABLE] = chosen
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
EngineOption = Annotated[
    Literal["local", "ray"],
    typer.Option("--engine", help="Where trainings run: in processes of this machine, or on a Ray cluster."),
]
RayCpusOption = Annotated[
    int | None, typer.Option("--ray-cpus", min=1, help="Cores of a training in the cluster.", show_default="1")
]
RayGpusOption = Annotated[
    float | None,
    typer.Option(
        "--ray-gpus",
        min=0,
        help="GPUs of a training in the cluster; 0.25 lets four share one.",
        show_default="1 where there are any",
    ),
]


def engine_of(name: str, cpus: int | None, gpus: float | None) -> "Engine":
    """Give the engine that the options ask for; Ray itself reads RAY_ADDRESS.

    >>> engine_of("ray", 4, None)
    RayEngine(address=None, cpus=4, gpus=None, tries=5)
    >>> engine_of("local", 4, None)
    Traceback (most recent call last):
    ...
    resperturb.errors.UsageError: --ray-cpus is for --engine ray; add that, or leave it out.
    """
    from resperturb.errors import UsageError

    if name == "ray":
        from resperturb.engine.ray import RayEngine

        return RayEngine(None, 1 if cpus is None else cpus, gpus)
    for option, value in (("--ray-cpus", cpus), ("--ray-gpus", gpus)):
        if value is not None:
            raise UsageError(f"{option} is for --engine ray; add that, or leave it out.")
    from resperturb.engine.local import local

    return local
