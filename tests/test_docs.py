"""The documentation is true: its commands exist and run, its examples run, its links work."""

import importlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

from resperturb.auditing import read_audit
from resperturb.cli import app
from resperturb.data import load_pair
from resperturb.models import library

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    """Return the code blocks of a page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def commands(page: Path) -> list[list[str]]:
    """Return the commands of a page, word by word."""
    lines = [line for block in blocks(page, "console") for line in block.splitlines()]
    return [shlex.split(line.removeprefix("$ "), comments=True) for line in lines if line.startswith("$ ")]


def every_command() -> Iterator[Any]:
    for page in PAGES:
        for command in commands(page):
            yield pytest.param(command, id=f"{page.relative_to(ROOT)}: {' '.join(command)}"[:120])


@pytest.fixture(scope="module")
def image_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the tutorial, with images of the built-in sample: trousers and boots for two diagnoses."""
    folder = tmp_path_factory.mktemp("tutorial")
    train, test = load_pair("fashion-sample")
    for part, images, count in (("train", train, 100), ("test", test, 20)):
        for name, label in (("benign", "Trouser"), ("malignant", "Ankle boot")):
            target = folder / "patches" / part / name
            target.mkdir(parents=True)
            chosen = (images.labels == images.classes.index(label)).nonzero().flatten()[:count]
            for number, pixels in enumerate(images.images[chosen, 0].numpy()):
                Image.fromarray(pixels).save(target / f"{number:03}.png")
    return folder


@pytest.mark.parametrize("data", ["fashion-sample", "./patches"])
def test_the_tutorial_runs(data: str, image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own files and commands, on few images; on a folder only up to the first audit."""
    page = ROOT / "docs" / "tutorial.md"
    [settings] = blocks(page, "yaml")
    [network] = blocks(page, "python")
    for told, small in (("fashion-sample ", f"{data} "), ("limit: 800", "limit: 240"), ("epochs: 15", "epochs: 2")):
        assert told in settings
        settings = settings.replace(told, small)
    (tmp_path / "patches").symlink_to(image_folder / "patches")
    (tmp_path / "tutorial.yaml").write_text(settings)
    (tmp_path / "my_nets.py").write_text(network)
    monkeypatch.chdir(tmp_path)
    told_commands = commands(page)
    audited = {words[2] for words in told_commands if words[1] == "audit"}
    trained = {words[words.index("--out") + 1] for words in told_commands if words[1] == "train"}
    assert audited == trained
    assert len({tuple(words[3:]) for words in told_commands if words[1] == "audit"}) == 1  # all alike
    for program, *arguments in told_commands if data == "fashion-sample" else told_commands[:2]:
        assert program == "resperturb"
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, (arguments, done.output, done.exception)
    if data == "fashion-sample":
        shown = (tmp_path / "report.html").read_text()
        assert all(f'<th scope="row">{Path(run).name}</th>' in shown for run in trained)
        assert "not attacked alike" not in shown


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    notebook = json.loads((ROOT / "examples" / "audit.ipynb").read_text())
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    space: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(cells):
        exec(compile(cell, f"cell {number}", "exec"), space)
    assert (tmp_path / "report.html").exists()
    assert (space["mine"].subject, space["plain"].subject) == ("this model", "models of this recipe")
    assert space["plain"].strongest.auc > space["regularised"].strongest.auc


def test_the_readme_links_to_files_that_exist_and_none_is_left_for_a_package_index() -> None:
    readme = (ROOT / "README.md").read_text()
    links = re.findall(r"\]\((?!https?://|#|\.\./)([^)]+)\)", readme)
    assert len(links) > 30
    assert [link for link in links if not (ROOT / link.partition("#")[0]).exists()] == []
    for repository in ("https://example.org/r", None):
        assert re.findall(r"\]\((?!https://)", load_tool("readme_for_index").for_index(readme, repository)) == []


def load_tool(name: str) -> ModuleType:
    """Import a file of tools/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("command", list(every_command()))
def test_every_command_in_the_documentation_exists(command: list[str]) -> None:
    program, *arguments = command
    if program == "make":
        assert re.search(rf"^{arguments[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    elif program in ("resperturb", "torchrun"):
        own = arguments[arguments.index("resperturb") + 1 :] if program == "torchrun" else arguments
        parse(typer.main.get_command(app), own)
    else:
        assert program in ("pip", "docker", "python", "python3", "git", "cd", "apt", "ls")
        if program == "pip":  # no package index has it
            assert not [word for word in arguments if word.startswith("resperturb")]


def parse(command: Any, arguments: list[str]) -> None:
    """Check a command line without running it: its names, its options and the kinds of their values."""
    while hasattr(command, "commands"):
        name, *arguments = arguments
        assert name in command.commands
        command = command.commands[name]
    with mock.patch.dict(os.environ):  # --data-in is remembered there
        command.make_context("resperturb", list(arguments))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_in_the_documentation_is_python(page: Path) -> None:
    for block in blocks(page, "python"):
        compile(block, str(page), "exec")


@pytest.mark.parametrize(
    ("page", "number"),
    [
        pytest.param(page, number, id=f"{page} {number}")
        for page in (
            "README.md",
            "docs/how-to/audit-your-training.md",
            "docs/how-to/audit-your-model.md",
            "docs/how-to/compare.md",
            "docs/how-to/train.md",
            "docs/how-to/patients.md",
            "docs/how-to/several-devices.md",
        )
        for number in range(len(blocks(ROOT / page, "python")))
    ],
)
def test_the_examples_run(page: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = blocks(ROOT / page, "python")[number]
    library("torchvision", "the examples")  # with any build of torch
    exec(compile(source, page, "exec"), {"__name__": "example"})


def test_every_extension_is_one_file_and_found_everywhere(tmp_path: Path) -> None:
    """Install the package of extensions, which names its files as entry points, and run the page's commands."""
    page, package = ROOT / "docs" / "extend.md", ROOT / "examples" / "extension"
    [shown] = blocks(page, "python")
    name, _, code = shown.partition("\n")
    assert (package / name.removeprefix("# ")).read_text() == code
    for file in package.glob("*.py"):
        shutil.copy(file, tmp_path)
        assert f"`{file.name}`" in page.read_text()
    project = tomllib.loads((package / "pyproject.toml").read_text())
    groups = project["project"]["entry-points"]
    modules = {path.stem for path in tmp_path.glob("*.py")}
    assert modules == {module for group in groups.values() for module in group.values()}
    assert modules == set(project["tool"]["setuptools"]["py-modules"])
    info = tmp_path / "extended-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: extended\nVersion: 1.0\n")
    lines = [f"[{group}]\n" + "\n".join(f"{k} = {v}" for k, v in of.items()) for group, of in groups.items()]
    (info / "entry_points.txt").write_text("\n".join(lines))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    (tmp_path / "members.txt").write_text("1\n" * 40)
    (tmp_path / "nonmembers.txt").write_text("-1\n" * 40)
    for _, *arguments in commands(page):
        command = [sys.executable, "-m", "resperturb", *arguments, "--json"]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["epsilon_lower"]["at_zero"] > 2
    made = "from resperturb import features; print(features.build('thumbnails:4').dimensions(3, (8, 8)))"
    done = subprocess.run([sys.executable, "-c", made], env=environment, capture_output=True, text=True)
    assert done.stdout == "48\n", done.stderr
    audit = read_audit(tmp_path / "runs" / "mine" / "audit")
    assert "calibrated" in {attack.name for attack in audit.attacks}
    config = (tmp_path / "runs" / "mine" / "config.json").read_text()
    assert all(name in config for name in ("relative", "perceptron:64", "stripes:200", "flooding"))
    assert "What does each kind of access give away?" in (tmp_path / "report.html").read_text()


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    start = (tmp_path / "site" / "index.html").read_text()
    assert "images/frontier.svg" in start
    assert not re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="?(?:https?:)?//', start)
    for page in (tmp_path / "site").rglob("*.html"):
        for picture in re.findall(r'<img[^>]+src="([^":]+)"', page.read_text()):
            assert picture.startswith("/") or (page.parent / picture).exists(), f"{page.name} shows no {picture}"
    commands_page = (tmp_path / "site" / "reference" / "commands.html").read_text()
    for command in typer.main.get_command(app).commands:  # type: ignore[attr-defined]
        assert f"resperturb {command}" in commands_page
    assert (
        "var __index" in (tmp_path / "site" / "search" / "search_index.js").read_text()[:20]
    )  # search without a server


def test_every_public_name_has_a_place_in_the_reference() -> None:
    """Each package with public names has a page, which shows the names of its ``__all__``."""
    initial = (ROOT / "src" / "resperturb").glob("*/__init__.py")
    packages = {file.parent.name for file in initial if "__all__ = [" in file.read_text()}
    pages = load_tool("docs_hooks").API.keys()
    assert pages == packages | {"registry"}
    menu = (ROOT / "mkdocs.yml").read_text()
    assert all(f"resperturb.{page}: reference/{page}.md\n" in menu for page in pages)
    assert all(importlib.import_module(f"resperturb.{package}").__all__ for package in packages)


def test_the_design_names_files_that_exist() -> None:
    named = re.findall(r"`([a-z_/]+(?:\.py|\.cpp|/))`", (ROOT / "docs" / "design.md").read_text())
    assert len(named) > 50
    roots = (ROOT / "src" / "resperturb", ROOT)
    assert [name for name in named if not any((root / name).exists() for root in roots)] == []
