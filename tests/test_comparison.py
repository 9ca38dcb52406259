"""The page of other tools has the measured numbers, by the scripts of this repository."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "benchmarks" / "comparison"
RESULT = json.loads((ROOT / "docs" / "results" / "comparison.json").read_text())


@pytest.fixture(scope="module")
def measure() -> ModuleType:
    spec = importlib.util.spec_from_file_location("measure", SCRIPTS / "measure.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_of_the_page_are_those_of_the_result(measure: ModuleType) -> None:
    page = (ROOT / "docs" / "comparison.md").read_text()
    for table in measure.tables(RESULT).split("\n\n"):
        assert table in page


def test_the_lines_of_glue_are_those_of_the_scripts_today(measure: ModuleType) -> None:
    for name, tool in RESULT["tools"].items():
        assert tool["glue_lines"] == measure.lines_of_code((SCRIPTS / tool["script"]).read_text()), name


def test_only_lines_with_code_are_glue(measure: ModuleType) -> None:
    assert measure.lines_of_code('"""Says."""\n\nimport os  # why\n# more\nx = [\n    1,\n]\n') == 4
    assert measure.lines_of_code('def f():\n    """Says."""\n    return """a\nb"""\n') == 3
