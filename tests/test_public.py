"""What is public says what it takes and what it gives; mypy checks its types by tests/public_types.py."""

import ast
import inspect
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import resperturb

ROOT = Path(__file__).parents[1] / "src"
PACKAGES = (
    "bounds",
    "data",
    "engine",
    "frontiers",
    "heads",
    "models",
    "perturbation",
    "privacy",
    "report",
    "training",
)


def exports(package: str) -> set[str]:
    tree = ast.parse((ROOT / "resperturb" / package / "__init__.py").read_text())
    lists = [node for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"]
    return {name for node in lists for name in ast.literal_eval(node.value)}


def public_functions() -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions that the packages of ``resperturb.__all__`` export, as their source has them."""
    for package in PACKAGES:
        exported = exports(package)
        for line in ast.walk(ast.parse((ROOT / "resperturb" / package / "__init__.py").read_text())):
            if not isinstance(line, ast.ImportFrom) or line.module is None:
                continue
            file = ROOT / f"{line.module.replace('.', '/')}.py"
            named = {alias.name for alias in line.names if (alias.asname or alias.name) in exported}
            for node in ast.parse(file.read_text()).body if file.exists() else ():
                if isinstance(node, ast.FunctionDef) and node.name in named:
                    yield f"{package}.{node.name}", node


FUNCTIONS = dict(public_functions())


def test_they_are_found() -> None:
    assert {"bounds.gdp", "perturbation.perturb", "training.train"} <= FUNCTIONS.keys()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_public_function_says_what_it_takes_and_returns(name: str) -> None:
    function = FUNCTIONS[name]
    said = ast.get_docstring(function) or ""
    if function.args.args or function.args.kwonlyargs:
        assert "Args:" in said
    assert function.returns is not None
    if ast.unparse(function.returns) != "None":
        assert "Returns:" in said or "Yields:" in said


def classes(folder: Path) -> list[str]:
    files = (ast.parse(file.read_text()) for file in folder.rglob("*.py"))
    found = [node.name for tree in files for node in tree.body if isinstance(node, ast.ClassDef)]
    return [name for name in found if not name.startswith("_")]


def test_two_meanings_never_share_the_name_of_a_class() -> None:
    used = Counter(classes(ROOT / "resperturb"))
    assert [name for name, count in used.items() if count > 1] == []


def test_help_shows_short_signatures() -> None:
    for name in resperturb.__all__:
        if inspect.isfunction(found := getattr(resperturb, name)):
            assert len(str(inspect.signature(found))) < 800, name
