"""An error names the extra that an optional part needs."""

import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from resperturb.extras import EXTRAS

WITHOUT = f"import sys; sys.modules.update(dict.fromkeys({EXTRAS['train']!r})); "


def fails(code: str, *arguments: str) -> tuple[int, str]:
    done = subprocess.run([sys.executable, "-c", WITHOUT + code, *arguments], capture_output=True, text=True)
    return done.returncode, " ".join(done.stderr.split())


def test_the_libraries_of_an_extra_are_those_that_it_installs() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    found = packages_distributions()
    for extra, libraries in EXTRAS.items():
        wanted = {requirement.partition(">")[0] for requirement in project["optional-dependencies"][extra]}
        wanted -= {"resperturb[train]"}
        assert all(wanted & {name.lower() for name in found[library]} for library in libraries)
        assert len(wanted) == len(libraries)
        assert not wanted & {requirement.partition(">")[0] for requirement in project["dependencies"]}


@pytest.mark.parametrize("command", [("train", "--data", "fashion-sample"), ("demo",), ("evaluate", "run")])
def test_a_command_whose_libraries_are_missing_says_which_extra_installs_them(command: tuple[str, ...]) -> None:
    code, said = fails("from resperturb.cli import main; main()", *command)
    assert code == 2
    assert "pip install 'resperturb[train]'" in said
    assert "opacus, dp_accounting, datasets, pyarrow, PIL" in said
    assert "Traceback" not in said


def test_the_accounting_of_sampled_batches_needs_them_too() -> None:
    arguments = ["budget", "dpsgd", "--records", "1000", "--batch-size", "100", "--epochs", "1"]
    code, said = fails("from resperturb.cli import main; main()", *arguments, "--noise-multiplier", "1")
    assert code == 2
    assert "needs dp_accounting: pip install 'resperturb[train]'" in said
