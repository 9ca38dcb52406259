"""A data source is one file with one registration; another package adds one through an entry point."""

import sys
from pathlib import Path

import pytest

from resperturb.data import data_sources, load_pair
from resperturb.errors import UsageError
from resperturb.registry import Registry

SOURCE = """
import numpy as np
from resperturb.data.records import Records
from resperturb.data.sources import Place, data_sources


@data_sources.register("digits")
class Digits:
    def accepts(self, place: Place) -> bool:
        return place.spec == "digits:"

    def read(self, place: Place):
        images = np.arange(20 * 64, dtype=np.uint16).reshape(20, 8, 8) % 256
        groups = None if place.columns.group is None else np.array([str(i // 2) for i in range(20)])
        where = tuple(f"digit {i}" for i in range(20))
        labels = tuple("even" if i % 2 == 0 else "odd" for i in range(20))
        return Records(images.astype(np.uint8), labels, groups, None, where, "digits", "1"), None
"""


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """The registry before its first use, with a package installed that offers a source."""
    (tmp_path / "digits_source.py").write_text(SOURCE)
    info = tmp_path / "digits-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: digits\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[resperturb.data_sources]\ndigits = digits_source\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "digits_source", raising=False)
    monkeypatch.setattr(data_sources, "_found", dict(data_sources._found))
    monkeypatch.setattr(data_sources, "_loaded", False)
    return data_sources


def test_every_kind_of_source_is_registered():
    assert {"folder", "hub", "npz", "parquet", "sample"} <= set(data_sources)


def test_a_source_of_another_package_is_read_with_groups_as_any_other(registry):
    train, test = load_pair("digits:", group_column="patient", image_size=4)
    assert "digits" in registry
    assert train.classes == ("even", "odd")
    assert train.size == (4, 4)
    assert not set(train.groups) & set(test.groups)
    assert str(train.summary).startswith("digits:: 20 images used")


def test_without_that_package_its_name_is_unknown():
    with pytest.raises(UsageError, match="'digits:'"):
        load_pair("digits:")
