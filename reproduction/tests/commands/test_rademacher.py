import json
from pathlib import Path

import numpy as np
import pytest
import typer
from resperturb_reproduction.commands.rademacher import register
from typer.testing import CliRunner, Result

from resperturb.errors import UsageError


def run(*arguments: str | Path) -> Result:
    app = typer.Typer()
    register(app)
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    path = tmp_path / "inputs.npy"
    np.save(path, np.random.default_rng(0).random((40, 8, 8)))
    return path


def test_the_ratio_falls_as_gamma_grows(inputs: Path) -> None:
    found = json.loads(run("--data", inputs, "--gamma", "0.5", "--gamma", "1", "--draws", "50", "--json").stdout)
    ratios = [row["ratio"] for row in found["classes"]]
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[0] == 1
    assert found["classes"][1]["standard_error"] > 0


def test_a_person_reads_that_nobody_is_protected(inputs: Path) -> None:
    result = run("--data", inputs, "--gamma", "0.5", "--draws", "50")
    assert result.exit_code == 0
    assert "Protects nobody" in result.stdout


def test_a_missing_file_is_named() -> None:
    result = run("--data", "nowhere.npy", "--gamma", "1")
    assert isinstance(result.exception, UsageError)
    assert "nowhere.npy is not a readable .npy file" in str(result.exception)
