"""Names and signatures of what is public; mypy checks its types by tests/public_types.py."""

import ast
import inspect
from collections import Counter
from pathlib import Path

import resperturb

ROOT = Path(__file__).parents[1] / "src"


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
