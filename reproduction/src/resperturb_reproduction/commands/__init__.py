"""The commands that this package adds to ``resperturb`` by an entry point."""

import typer


def register(app: typer.Typer) -> None:
    """Add all commands to a command line."""
    from resperturb_reproduction.commands import audit_poison, check, reproduce, sde

    for command in (reproduce, sde, check, audit_poison):
        command.register(app)
