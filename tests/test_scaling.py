"""The page on scaling shows what its formula gives, with what was measured."""

import doctest
import importlib.util
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def projection() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("projection", ROOT / "benchmarks" / "projection.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "projection", module)  # dataclasses look themselves up
        spec.loader.exec_module(module)
        yield module


def test_the_formula_gives_what_its_examples_say(projection: ModuleType) -> None:
    found = doctest.testmod(projection)
    assert found.attempted >= 6
    assert not found.failed


def test_the_tables_of_the_page_are_computed(projection: ModuleType, tmp_path: Path) -> None:
    page = ROOT / "docs" / "how-to" / "several-devices.md"
    copy = tmp_path / "page.md"
    shutil.copy(page, copy)
    projection.write_page(copy, projection.present())
    again = copy.read_text()
    assert "| 66 | 8.0 h | 1.0 h | 595 |" in again
    assert page.read_text() == again, "run `python benchmarks/projection.py --page docs/how-to/several-devices.md`"


def test_a_run_gives_its_own_numbers(projection: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text('{"records": 1000, "seconds": 50}')
    (tmp_path / "config.json").write_text('{"epochs": 20}')
    audit = projection.of_run(tmp_path, projection.Audit())
    assert audit.images_per_second == 400
    assert audit.training_seconds == pytest.approx(50)
    assert audit.hours(33) == pytest.approx(2 * (50 + audit.asking_seconds) / 3600)
