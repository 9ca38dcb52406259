"""A registry finds the entries of its package and of other installed packages, and lists them."""

import sys
from pathlib import Path

import pytest

from resperturb.errors import UsageError
from resperturb.registry import Registry


def make_package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = folder / "shapes_for_test"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from resperturb.registry import Registry\n"
        "shapes = Registry('shape', group='resperturb.test_shapes', package='shapes_for_test')\n"
    )
    (package / "circle.py").write_text(
        "from shapes_for_test import shapes\n\n@shapes.register('circle')\nclass Circle: ...\n"
    )
    for module in [name for name in sys.modules if name.startswith("shapes_for_test")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.syspath_prepend(str(folder))


def installed(folder: Path, name: str, target: str) -> None:
    """Write what pip writes when it installs a package with an entry point."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[resperturb.test_shapes]\n{name} = {target}\n")


def test_every_module_of_the_package_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_package(tmp_path, monkeypatch)
    from shapes_for_test import shapes  # type: ignore[import-not-found]

    assert shapes.names() == ("circle",)


def test_another_package_adds_one_and_a_broken_one_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_package(tmp_path, monkeypatch)
    (tmp_path / "other_package.py").write_text(
        "from shapes_for_test import shapes\n\n@shapes.register('star')\nclass Star: ...\n"
    )
    installed(tmp_path, "other", "other_package")
    installed(tmp_path, "broken", "no_such_module_at_all")
    from shapes_for_test import shapes

    assert shapes.names() == ("circle", "star")
    with pytest.raises(UsageError, match="unknown shape 'square'.*no_such_module_at_all"):
        shapes["square"]


def test_a_name_is_given_once() -> None:
    shapes = Registry[object]("shape", group="resperturb.none")

    @shapes.register("circle")
    class One: ...

    shapes.register("circle")(One)
    with pytest.raises(UsageError, match="already"):

        @shapes.register("circle")
        class Other: ...
