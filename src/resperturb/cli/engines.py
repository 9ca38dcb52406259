"""The options that say where trainings run, for every command that has many of them."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from resperturb.engine import Engine

EngineOption = Annotated[
    Literal["local", "ray"],
    typer.Option("--engine", help="Where trainings run: local (processes of this machine) or ray (a cluster)."),
]
RayAddressOption = Annotated[
    str | None,
    typer.Option(
        "--ray-address",
        help="The Ray cluster to join: HOST:PORT, or auto for the one of this machine.",
        show_default="RAY_ADDRESS, or a cluster of this machine for the time of the command",
    ),
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


def engine_of(name: str, address: str | None, cpus: int | None, gpus: float | None) -> "Engine":
    """Give the engine that the options ask for.

    >>> engine_of("ray", "10.0.0.1:6379", None, None)
    RayEngine(address='10.0.0.1:6379', cpus=1, gpus=None, tries=5)
    >>> engine_of("local", "10.0.0.1:6379", None, None)
    Traceback (most recent call last):
    ...
    resperturb.errors.UsageError: --ray-address is for --engine ray; add that, or leave it out.
    """
    from resperturb.errors import UsageError

    if name == "ray":
        from resperturb.engine.ray import RayEngine

        return RayEngine(address, 1 if cpus is None else cpus, gpus)
    for option, value in (("--ray-address", address), ("--ray-cpus", cpus), ("--ray-gpus", gpus)):
        if value is not None:
            raise UsageError(f"{option} is for --engine ray; add that, or leave it out.")
    from resperturb.engine.local import local

    return local
