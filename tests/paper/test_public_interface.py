"""The reproduction is a user of the library: what it cannot import from a package, no other user could either."""

import ast
from pathlib import Path

import pytest

import resperturb.paper

ROOT = Path(resperturb.paper.__file__).parent
# Commands are a part of the command line, whose modules share how they parse and print.
SHARED_BY_COMMANDS = ("resperturb.cli.budget", "resperturb.cli.engines", "resperturb.cli.output")


def imported(file: Path) -> set[str]:
    """The modules of the library that a file imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return {name for name in found if name.split(".")[0] == "resperturb" and not name.startswith("resperturb.paper")}


@pytest.mark.parametrize("file", sorted(ROOT.rglob("*.py")), ids=lambda file: str(file.relative_to(ROOT)))
def test_only_packages_of_the_library_are_imported(file: Path) -> None:
    shared = SHARED_BY_COMMANDS if file.parent.name == "commands" else ()
    private = {name for name in imported(file) if name.count(".") > 1 and name not in shared}
    assert not private


def test_an_import_of_a_private_module_would_be_seen(tmp_path: Path) -> None:
    file = tmp_path / "f.py"
    file.write_text("def f():\n    from resperturb.training.loop import train\n")
    assert imported(file) == {"resperturb.training.loop"}
