import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from resperturb.bounds import audit_scores
from resperturb.cli import app
from resperturb.errors import UsageError

RNG = np.random.default_rng(0)
MEMBERS, NONMEMBERS = RNG.normal(1, 1, 400), RNG.normal(0, 1, 400)


@pytest.fixture
def files(tmp_path):
    np.save(tmp_path / "members.npy", MEMBERS)
    np.savetxt(tmp_path / "nonmembers.txt", NONMEMBERS)
    return [str(tmp_path / "members.npy"), str(tmp_path / "nonmembers.txt")]


def run(*arguments):
    return CliRunner().invoke(app, ["audit-scores", *arguments], catch_exceptions=True)


def test_json_is_the_audit_and_nothing_else(files):
    result = run(*files, "--delta", "1e-4", "--confidence", "0.9", "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    expected = audit_scores(MEMBERS, NONMEMBERS, delta=1e-4, confidence=0.9).to_dict()
    assert found == json.loads(json.dumps(expected))
    assert list(found["epsilon_lower"]) == ["clopper_pearson", "gdp", "one_run"]
    assert [at["fpr"] for at in found["tpr_at_fpr"]] == [0, 0.001, 0.01, 0.1]
    assert (found["members"], found["nonmembers"]) == (400, 400)
    assert (found["delta"], found["confidence"]) == (1e-4, 0.9)
    assert all(bound["assumptions"] for bound in found["bounds"].values())
    assert any("fair coin" in line for line in found["caveats"])


def test_infinite_scores_make_valid_json(tmp_path):
    np.save(tmp_path / "in.npy", np.full(50, np.inf))
    np.save(tmp_path / "out.npy", np.full(50, -np.inf))
    result = run(str(tmp_path / "in.npy"), str(tmp_path / "out.npy"), "--json")
    assert json.loads(result.stdout)["bounds"]["clopper_pearson"]["threshold"] == "-inf"


def test_a_reader_sees_the_recommended_bound_and_its_assumptions(files):
    result = run(*files, "--design", "independent")
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    assert "400 members, 400 non-members; delta 1e-05, 95% confidence" in text
    assert "Recommended: clopper_pearson, epsilon at least" in text
    assert "same population" in text


def test_tables_are_shown_on_request(files):
    short, long = (run(*files, "--design", "coins", *more).stdout for more in ([], ["--verbose"]))
    assert len(short.splitlines()) <= 15
    assert "interval" not in short
    assert "interval" in long


def test_the_coins_design_recommends_one_run(files):
    assert "Recommended: one_run, epsilon" in run(*files, "--design", "coins").stdout


def test_without_a_design_nothing_is_recommended_and_the_designs_are_named(files):
    text = " ".join(run(*files).stdout.split())
    assert "Recommended: no bound." in text
    assert all(design in text for design in ("coins", "independent", "one-model"))


def test_no_gaussian_bound_is_shown_at_delta_zero(files):
    assert "not defined" in run(*files, "--delta", "0", "--verbose").stdout


def test_help_shows_an_example():
    assert "resperturb audit-scores members.npy nonmembers.npy" in " ".join(run("--help").stdout.split())


@pytest.mark.parametrize(
    ("content", "said"),
    [(np.array([1.0, np.nan]), "bad.npy: 1 of 2 scores are NaN"), (np.ones((2, 2)), "shape"), (None, "No such file")],
)
def test_a_bad_file_ends_in_one_message_on_stderr_and_exit_code_2(files, tmp_path, content, said):
    if content is not None:
        np.save(tmp_path / "bad.npy", content)
    command = [sys.executable, "-m", "resperturb", "audit-scores", str(tmp_path / "bad.npy"), files[1], "--json"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (2, "")
    assert said in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("wrong", [["--delta", "1"], ["--delta", "-0.1"], ["--confidence", "95"]])
def test_impossible_options_are_refused(files, wrong):
    result = run(*files, *wrong)
    assert result.exit_code != 0
    assert wrong[0].removeprefix("--") in str(result.exception)


def test_only_regular_files_of_a_bounded_size_are_read(files, tmp_path):
    os.mkfifo(tmp_path / "pipe.npy")
    (tmp_path / "device.txt").symlink_to("/dev/zero")
    with open(tmp_path / "huge.npy", "wb") as huge:
        huge.truncate(1 << 40)
    (tmp_path / "claims.npy").write_bytes(
        b"\x93NUMPY\x01\x00\x76\x00"
        + b"{'descr': '<f8', 'fortran_order': False, 'shape': (1099511627776,), }".ljust(117)
        + b"\n"
    )
    said = {"pipe.npy": "regular", "device.txt": "regular", "huge.npy": "more than", "claims.npy": "not a file of"}
    for name, why in said.items():
        result = run(files[0], str(tmp_path / name))
        assert isinstance(result.exception, UsageError)
        assert why in str(result.exception)


def test_names_that_are_not_utf_8_are_read_and_shown(files, tmp_path):
    named = os.fsencode(tmp_path) + b"/m\xff.npy"
    shutil.copy(files[0], named)
    command = [sys.executable, "-m", "resperturb", "audit-scores", named, files[1]]
    assert subprocess.run([*command, "--json"], capture_output=True, check=True).stdout
    broken = os.fsencode(tmp_path) + b"/\xfe.npy"
    done = subprocess.run([*command[:3], "audit-scores", broken, files[1]], capture_output=True, text=True)
    assert (done.returncode, "Traceback" in done.stderr, "Error" in done.stderr) == (2, False, True)
