import json
import subprocess
import sys

import numpy as np
import pytest
import typer
from PIL import Image
from resperturb_reproduction.commands.sde import register
from typer.testing import CliRunner

from resperturb.errors import UsageError


@pytest.fixture(scope="module")
def picture(tmp_path_factory):
    path = tmp_path_factory.mktemp("images") / "mine.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 24, 3), dtype=np.uint8)).save(path)
    return path


def run(*arguments):
    app = typer.Typer()
    register(app)
    return CliRunner().invoke(app, [*map(str, arguments)])


def test_json_is_one_object_with_settings_errors_and_files(picture, tmp_path):
    result = run("--image", picture, "--strategy", "multiplicative", "--gamma", 0.5, "--dt", 0.05, "--seed", 7,
                 "--out", tmp_path / "figures", "--json")  # fmt: skip
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert (answer["strategy"], answer["gamma"], answer["dt"], answer["seed"]) == ("multiplicative", 0.5, 0.05, 7)
    assert answer["source"] == str(picture)
    assert answer["errors"]["known_noise"]["relative_l2"] < answer["errors"]["paper"]["relative_l2"]
    written = {path.name for path in (tmp_path / "figures").iterdir()}
    assert {path.rsplit("/", 1)[1] for path in answer["files"]} == written
    assert written == {f"sde-multiplicative.{kind}" for kind in ("png", "svg", "json")}
    stored = json.loads((tmp_path / "figures" / "sde-multiplicative.json").read_text())
    assert stored == {key: value for key, value in answer.items() if key != "files"}


def test_the_table_is_for_a_person(picture, tmp_path):
    result = run("--image", picture, "--dt", 0.1, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    for words in ("additive noise, gamma 1", "Relative L2 error", "PSNR", "[0, 1]", "Wrote"):
        assert words in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--gamma", "-1"), "gamma = -1"),
        (("--dt", "0.03"), "dt = 0.03"),
        (("--strategy", "both"), "Unknown strategy 'both'"),
        (("--image", "nothing.png"), "no image file at nothing.png"),
    ],
)
def test_a_wrong_request_says_what_is_wrong(tmp_path, arguments, message):
    result = run(*arguments, "--out", tmp_path)
    assert isinstance(result.exception, UsageError)
    assert message in str(result.exception)
    assert not list(tmp_path.iterdir())


def test_a_wrong_folder_is_noticed_before_the_work(tmp_path):
    (tmp_path / "file").write_text("in the way")
    result = run("--out", tmp_path / "file" / "figures")
    assert isinstance(result.exception, UsageError)
    assert "cannot be made a folder" in str(result.exception)


def test_a_mistake_ends_in_one_line_and_exit_code_2(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-m", "resperturb", "sde", "--strategy", "both", "--out", str(tmp_path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr.strip() == "Error: Unknown strategy 'both': use additive or multiplicative."
