"""No user's mistake and no damaged file ends in a traceback or a hang."""

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
from hypothesis.extra.numpy import array_shapes, arrays

from resperturb.cli import main
from resperturb.errors import ResperturbError
from resperturb.files import SEAL, sealed
from resperturb.report.policy import default_text
from resperturb.sealed import write_bound_arrays
from resperturb.training.run import Run

FUZZ = settings(
    max_examples=12,
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
    """Run the command line in this process; anything but an exit with a message fails the test."""
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


@pytest.fixture(scope="module")
def audited(attacked_run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with every file that a run can have, and the files that belong next to it."""
    folder = tmp_path_factory.mktemp("audited") / "run"
    shutil.copytree(attacked_run.path, folder)
    (folder.parent / "policy.yaml").write_text(default_text())
    return folder


@pytest.fixture
def run(audited: Path, tmp_path: Path) -> Path:
    shutil.copytree(audited, tmp_path / "run")
    shutil.copy(audited.parent / "policy.yaml", tmp_path)
    return tmp_path / "run"


def without_digests(run: Path) -> None:
    """Make it a run of an older version, whose files are checked by their schemas alone."""
    values = json.loads((run / "result.json").read_text())
    for name in ("schema", "digests", "checksum"):
        values.pop(name, None)
    (run / "result.json").write_text(json.dumps(values))


@contextmanager
def changed(run: Path, pattern: str) -> Iterator[Path]:
    """Yield the first file of a pattern, to be changed, and restore it afterwards."""
    path = sorted(run.glob(pattern))[0] if pattern != "policy.yaml" else run.parent / pattern
    before = {one: one.read_bytes() for one in (path, run / "result.json")}
    try:
        yield path
    finally:
        for one, content in before.items():
            one.write_bytes(content)


def ends_well_or_in_a_sentence(capsys: pytest.CaptureFixture[str], *arguments: object) -> int:
    code, said = resperturb(capsys, *arguments)
    if code and arguments[0] not in ("verify", "gate"):  # whose exit code is what they found
        is_a_mistake((code, said))
    assert code in (0, 1, 2)
    return code


def read_by(run: Path, name: str) -> list[list[object]]:
    """The commands that read a file of a run."""
    page = ["report", run, "-o", run.parent / "report.html"]
    return {
        "policy.yaml": [["card", run, "-o", run.parent / "card.md", "--policy", run.parent / "policy.yaml"]],
        "model.safetensors": [["evaluate", run]],
        "audit/models/*.npz": [["verify", run, "--json"]],
        "config.json": [["compare", run]],
        "result.json": [["compare", run], ["verify", run, "--json"]],
        "audit/scores/*.npy": [["compare", run]],
        "audit/audit.json": [page, ["card", run, "-o", run.parent / "card.md"], ["gate", run, "--json"]],
    }.get(name, [page])


FILES = ("config.json", "result.json", "metrics.jsonl", "model.safetensors", "audit/audit.json", "policy.yaml")
BOUND = ("audit/plan.json", "audit/scores/schema.json", "audit/scores/*.npy", "audit/models/*.npz")
TEXT = st.text(st.characters(), max_size=5)  # with halves of characters, which are no text
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
DEEP = "[" * 100_000 + "]" * 100_000


def put(value: Any, path: list[Any], new: Any) -> Any:
    """Replace the value at a path inside JSON."""
    if not path:
        return new
    if isinstance(value, dict):
        return {key: put(item, path[1:], new) if key == path[0] else item for key, item in value.items()}
    return [put(item, path[1:], new) if index == path[0] else item for index, item in enumerate(value)]


def paths_in(value: Any) -> list[list[Any]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [[], *([key, *rest] for key, item in inside for rest in paths_in(item))]


def resealed(value: Any) -> bytes:
    """Write JSON with a matching checksum, so that only its schema can refuse it."""
    if isinstance(value, dict) and "checksum" in value:
        value = {**value, "checksum": SEAL}
    return sealed(json.dumps(value).encode())


@pytest.mark.parametrize(
    "name", ["config.json", "result.json", "metrics.jsonl", "audit/audit.json", "audit/plan.json"]
)
@FUZZ
@given(data=st.data())
def test_malformed_json_gives_no_traceback(
    run: Path, name: str, data: st.DataObject, capsys: pytest.CaptureFixture[str]
) -> None:
    with changed(run, name) as path:
        if name in ("config.json", "result.json", "metrics.jsonl"):
            without_digests(run)
        values = json.loads(path.read_text().splitlines()[0] if name == "metrics.jsonl" else path.read_text())
        new = put(values, data.draw(st.sampled_from(paths_in(values))), data.draw(JSON))
        path.write_bytes(resealed(new))
        ends_well_or_in_a_sentence(capsys, *data.draw(st.sampled_from(read_by(run, name))))


@pytest.mark.parametrize("name", [*FILES, *BOUND])
@FUZZ
@given(data=st.data())
def test_bytes_that_were_changed(
    run: Path, name: str, data: st.DataObject, capsys: pytest.CaptureFixture[str]
) -> None:
    with changed(run, name) as path:
        before = path.read_bytes()
        start = data.draw(st.integers(0, len(before) - 1))
        junk = data.draw(st.binary(min_size=1, max_size=8))
        after = before[:start] + (junk + before[start + len(junk) :] if data.draw(st.booleans()) else b"")
        path.write_bytes(after)
        code = ends_well_or_in_a_sentence(capsys, *data.draw(st.sampled_from(read_by(run, name))))
        # Space may be added to files without a checksum, and an archive has bytes that are never read.
        if after != before and name not in ("config.json", "policy.yaml") and path.suffix != ".npz":
            assert code in (1, 2)


@pytest.mark.parametrize("name", [*FILES, *BOUND])
def test_files_that_hold_something_else(run: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with changed(run, name) as path:
        for content in ("", "[]", "{}", "nonsense", DEEP, "\x00", '{"a": 1' + "0" * 5000 + "}", "a: 2020-99-99"):
            path.write_text(content)
            assert ends_well_or_in_a_sentence(capsys, *read_by(run, name)[0])


ARRAYS = arrays(
    st.sampled_from([np.float64, np.float32, np.int64, np.bool_, np.dtype("U2"), np.complex128, np.uint8]),
    array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
)


@pytest.mark.parametrize("name", ["audit/models/*.npz"])
@settings(FUZZ, max_examples=10)
@given(data=st.data())
def test_malformed_arrays_give_no_traceback(
    run: Path, name: str, data: st.DataObject, capsys: pytest.CaptureFixture[str]
) -> None:
    with changed(run, name) as path:
        with np.load(path) as file:
            values = {key: file[key] for key in file.files}
        binding = json.loads(str(values.pop("binding")))
        for key in data.draw(st.sets(st.sampled_from(sorted(values)), min_size=1)):
            values[key] = data.draw(ARRAYS)
        write_bound_arrays(path, values, binding["digests"])
        ends_well_or_in_a_sentence(capsys, "audit", run, "--one-run")


@FUZZ
@given(data=st.data())
def test_checkpoints_that_are_damaged(
    data: st.DataObject, unfinished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = unfinished / "checkpoint.safetensors"
    before = path.read_bytes()
    length = int.from_bytes(before[:8], "little")
    header = json.loads(before[8 : 8 + length])
    if data.draw(st.booleans()):  # what it says, with a checksum that fits
        header["__metadata__"]["checksum"] = SEAL
        where = data.draw(
            st.sampled_from([each for each in paths_in(header) if each != ["__metadata__", "checksum"]])
        )
        text = json.dumps(put(header, where, data.draw(JSON))).encode()
        after = sealed(len(text).to_bytes(8, "little") + text + before[8 + length :])
    else:
        start = data.draw(st.integers(0, len(before) - 1))
        after = before[:start] + data.draw(st.binary(min_size=1, max_size=8))
    path.write_bytes(after)
    try:
        code = ends_well_or_in_a_sentence(capsys, *RESUMED, "--out", unfinished)
        assert code or not path.exists()
    finally:
        path.write_bytes(before)
        for name in ("result.json", "model.safetensors"):
            (unfinished / name).unlink(missing_ok=True)


RESUMED = ["train", "--data", "fashion-sample", "--limit", 40, "--epochs", 1, "--seeded-noise"]


@pytest.fixture
def unfinished(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that was stopped at its end, with its last checkpoint."""

    def stop(*_: Any) -> None:
        raise ResperturbError("stopped")

    with monkeypatch.context() as stopping:
        stopping.setattr("resperturb.training.loop._finish", stop)
        is_a_mistake(resperturb(capsys, *RESUMED, "--out", tmp_path / "unfinished"))
    return tmp_path / "unfinished"


def test_pipes_are_not_waited_for(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("metrics.jsonl", "model.safetensors", "result.json"):
        (run / name).unlink()
        os.mkfifo(run / name)
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
