"""The reproduction is a user of the library: what it cannot import from a package, no other user could either."""

import ast
import importlib
from pathlib import Path

import pytest
import resperturb_reproduction
import typer

from resperturb.cli import app

ROOT = Path(resperturb_reproduction.__file__).parent
# Modules that have no list of public names; commands share how they parse and print.
SHARED = ("checks", "cli", "errors", "files", "heap", "progress", "sealed")


def private_imports(file: Path) -> list[str]:
    """Return what a file imports from the library that is no public name of one of its packages."""
    found = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("resperturb."):
            package = str(node.module).split(".")[1]
            public = () if package in SHARED else importlib.import_module(f"resperturb.{package}").__all__
            for alias in node.names:
                if package not in SHARED and (node.module != f"resperturb.{package}" or alias.name not in public):
                    found.append(f"line {node.lineno}: {node.module}.{alias.name}")
    return found


@pytest.mark.parametrize("file", sorted(ROOT.rglob("*.py")), ids=lambda file: str(file.relative_to(ROOT)))
def test_only_public_names_of_the_library_are_imported(file: Path) -> None:
    assert private_imports(file) == []


def test_an_import_of_a_private_module_would_be_seen(tmp_path: Path) -> None:
    file = tmp_path / "f.py"
    file.write_text("def f():\n    from resperturb.training.loop import train\n")
    assert private_imports(file) == ["line 2: resperturb.training.loop.train"]


def test_the_commands_join_those_of_the_library() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert {"audit", "audit-poison", "check", "reproduce", "sde"} <= set(commands)
