"""No mistake of a user's, and no damage to a file, ends in a traceback or goes on for ever."""

import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from resperturb.cli import main
from resperturb.training.run import Run

FUZZ = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@contextmanager
def impatient(seconds: int = 120) -> Iterator[None]:
    def give_up(number: int, frame: Any) -> None:
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def resperturb(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """Run the command line in this process; what is not an exit with a message is an error of the test."""
    code: object = 0
    before, sys.argv = sys.argv, ["resperturb", *map(str, arguments)]
    try:
        with impatient():
            main()
    except SystemExit as ended:
        code = ended.code or 0
    finally:
        sys.argv = before
    printed = capsys.readouterr()
    assert isinstance(code, int)
    assert "Traceback" not in printed.err + printed.out
    assert not any(character in printed.out + printed.err for character in ("\x1b[2J", "\u202e"))
    return code, printed.err


def is_a_mistake(outcome: tuple[int, str]) -> None:
    code, said = outcome
    assert code in (1, 2)
    assert "Error" in said
    assert len(said) < 2000


@pytest.fixture
def run(attacked_run: Run, tmp_path: Path) -> Path:
    shutil.copytree(attacked_run.path, tmp_path / "run")
    (tmp_path / "run" / "attacks").mkdir(exist_ok=True)
    return tmp_path / "run"


def without_digests(run: Path) -> None:
    """Make it a run of an older version, whose files are checked by their schemas alone."""
    values = json.loads((run / "result.json").read_text())
    for name in ("schema", "digests", "checksum"):
        values.pop(name, None)
    (run / "result.json").write_text(json.dumps(values))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
DEEP = "[" * 100_000 + "]" * 100_000


def put(value: Any, path: list[Any], new: Any) -> Any:
    """Replace what is at a path inside of JSON."""
    if not path:
        return new
    if isinstance(value, dict):
        return {key: put(item, path[1:], new) if key == path[0] else item for key, item in value.items()}
    return [put(item, path[1:], new) if index == path[0] else item for index, item in enumerate(value)]


def paths_in(value: Any) -> list[list[Any]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [[], *([key, *rest] for key, item in inside for rest in paths_in(item))]


@pytest.mark.parametrize("name", ["config.json", "result.json", "metrics.jsonl"])
@FUZZ
@given(data=st.data())
def test_json_that_is_not_what_it_should_be(
    run: Path, name: str, data: st.DataObject, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: (run / path).read_bytes() for path in ("config.json", "result.json", "metrics.jsonl")}
    without_digests(run)
    try:
        content = (run / name).read_text().splitlines()[0] if name == "metrics.jsonl" else (run / name).read_text()
        values = json.loads(content)
        changed = put(values, data.draw(st.sampled_from(paths_in(values))), data.draw(JSON))
        (run / name).write_text(json.dumps(changed))
        code, said = resperturb(capsys, "report", run, "-o", run.parent / "report.html")
        assert code == 0 or (code in (1, 2) and "Error" in said and len(said) < 2000)
    finally:
        for path, content_before in before.items():
            (run / path).write_bytes(content_before)


@pytest.mark.parametrize("name", ["config.json", "result.json", "metrics.jsonl", "model.safetensors"])
@FUZZ
@given(data=st.data())
def test_bytes_that_were_changed(
    run: Path, name: str, data: st.DataObject, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (run / name).read_bytes()
    start = data.draw(st.integers(0, min(len(before) - 1, 3000)))
    junk = data.draw(st.binary(min_size=1, max_size=8))
    changed = before[:start] + junk + before[start + len(junk) :]
    if changed == before:
        return
    (run / name).write_bytes(changed)
    try:
        code, said = resperturb(capsys, "compare", run)
        if name != "config.json":  # space may be added there
            is_a_mistake((code, said))
        assert code == 0 or "Error" in said
    finally:
        (run / name).write_bytes(before)


@pytest.mark.parametrize("name", ["config.json", "result.json", "metrics.jsonl"])
@pytest.mark.parametrize("content", ["", "[]", "{}", "nonsense", DEEP, "\x00", '{"a": 1' + "0" * 5000 + "}"])
def test_files_that_hold_something_else(
    run: Path, name: str, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / name).write_text(content)
    is_a_mistake(resperturb(capsys, "report", run, "-o", run.parent / "report.html"))
    without_digests(run) if name == "metrics.jsonl" else None
    code, said = resperturb(capsys, "report", run, "-o", run.parent / "report.html")
    assert code in (0, 1, 2)
    assert code == 0 or "Error" in said


def test_scores_that_are_none(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [path, *_] = (run / "attacks").glob("*.npz")
    for content in (b"", b"PK\x03\x04", path.read_bytes()[:-30]):
        path.write_bytes(content)
        is_a_mistake(resperturb(capsys, "report", run, "-o", run.parent / "report.html"))
    np.savez(path, members=np.zeros(0), nonmembers=np.array(["a"]))
    is_a_mistake(resperturb(capsys, "report", run, "-o", run.parent / "report.html"))


def test_pipes_are_not_waited_for(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "result.json").unlink()
    os.mkfifo(run / "result.json")
    is_a_mistake(resperturb(capsys, "compare", run))
    os.mkfifo(run.parent / "pipe")
    is_a_mistake(resperturb(capsys, "verify", run.parent / "pipe"))


def test_a_report_replaces_no_device_and_no_link(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert resperturb(capsys, "report", run, "-o", "/dev/null")[0] == 0
    assert Path("/dev/null").is_char_device()
    target, link = run.parent / "there.html", run.parent / "link.html"
    link.symlink_to(target)
    assert resperturb(capsys, "report", run, "-o", link)[0] == 0
    assert link.is_symlink()
    assert target.read_text().startswith("<!")
    os.mkfifo(run.parent / "pipe")
    is_a_mistake(resperturb(capsys, "report", run, "-o", run.parent / "pipe"))


@pytest.mark.parametrize("name", ["a[red]b", "[@click=x]y", "x\x1b[2Jy", "tail\\", "new\nline", "\u202egnp"])
def test_names_are_shown_and_do_nothing(run: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    run.rename(run.parent / name)
    for command in (["compare"], ["verify"], ["evaluate", "--noise-off"], ["report", "-o", "/dev/null"]):
        assert resperturb(capsys, *command, run.parent / name) == (0, "")
    is_a_mistake(resperturb(capsys, "compare", run.parent / f"{name}no"))


@pytest.mark.parametrize(
    "options",
    [
        ["--seed", 2**70],
        ["--seed", -1],
        ["--split-seed", 2**70],
        ["--subset-seed", 2**70],
        ["--model", "resnet" + "9" * 30],
        ["--lr", "nan"],
        ["--out", "/dev/null/run"],
        ["--out", "x" * 300],
        ["--data", "~nosuchuser/x"],
        ["--data", "no\x00such"],
    ],
)
def test_options_that_cannot_be(options: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["train", "--data", "fashion-sample", "--limit", 40, "--epochs", 1, "--runs", tmp_path]
    is_a_mistake(resperturb(capsys, *common, *options))


def test_a_last_batch_of_one_tiny_image(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (20, 4, 4), dtype=np.uint8)
    np.savez(tmp_path / "data.npz", images=images, labels=np.arange(20) % 2)
    options = ["--batch-size", 1, "--epochs", 1, "--runs", tmp_path / "runs"]
    code, said = resperturb(capsys, "train", "--data", tmp_path / "data.npz", *options)
    is_a_mistake((code, said))
    assert "--norm group" in said
