"""A file is whole or absent."""

import json
import math
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from resperturb.errors import BusyError, ResperturbError, UsageError
from resperturb.files import held, leftovers, parse_yaml, read_json, write_bytes, write_json
from resperturb.report.policy import read_policy


@contextmanager
def no_room_for_more_than(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@dataclass(frozen=True)
class Bound:
    epsilon: float
    sizes: tuple[int, ...]


def test_a_full_disk_leaves_the_old_file_and_no_rubbish(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    write_bytes(path, b"good")
    with no_room_for_more_than(1000), pytest.raises(ResperturbError, match="could not write .*checkpoint"):
        write_bytes(path, b"x" * 5000)
    assert path.read_bytes() == b"good"
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(ResperturbError, match=r"could not write .*file/result\.json"):
        write_json(tmp_path / "file" / "result.json", {})
    for folder in (tmp_path, Path()):
        with pytest.raises(ResperturbError, match="it is a folder"):
            write_json(folder, {})


def test_a_stream_that_goes_to_a_file_is_added_to(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    with open(log, "a") as file:
        write_bytes(Path(f"/dev/fd/{file.fileno()}"), b"whole\n")
        write_bytes(Path(f"/proc/self/fd/{file.fileno()}"), b"again\n")
    assert log.read_text() == "before\nwhole\nagain\n"


def test_a_folder_that_is_held_is_for_one_process_and_its_owner(tmp_path: Path) -> None:
    with held(tmp_path / "new" / "folder"):
        assert (tmp_path / "new" / "folder").stat().st_mode & 0o777 == 0o700
        with pytest.raises(BusyError, match="another process is at work in"), held(tmp_path / "new" / "folder"):
            pass
    with held(tmp_path / "new" / "folder"):
        pass


def test_others_may_read_what_the_umask_lets_them(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        write_json(tmp_path / "result.json", {"a": 1})
    finally:
        os.umask(before)
    assert (tmp_path / "result.json").stat().st_mode & 0o777 == 0o644


def test_json_names_numbers_it_cannot_hold_and_reads_them_back(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", Bound(math.inf, (1, 2)))
    assert json.loads((tmp_path / "a.json").read_text()) == {"epsilon": "inf", "sizes": [1, 2]}
    assert read_json(Bound, tmp_path / "a.json") == Bound(math.inf, (1, 2))


@pytest.mark.parametrize("text", ["", "[]", '{"epsilon": "much"}', "[" * 100_000, '{"epsilon": 1.0}', "\x00"])
def test_a_damaged_file_is_refused_in_one_sentence_with_its_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ResperturbError, match="a.json"):
        read_json(Bound, tmp_path / "a.json")


KILLED = """
import os, sys
from pathlib import Path
from resperturb import files

os.fsync = lambda handle: os.kill(os.getpid(), 9)
files.write_bytes(Path(sys.argv[1]), b"half")
"""


def killed_while_writing(path: Path) -> list[Path]:
    """Kill a process while it writes a file, and return what it left in the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    assert subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False).returncode == -9
    [left] = [found for found in path.parent.iterdir() if found.suffix == ".tmp"]
    return [left]


@pytest.mark.parametrize("name", ["audit.json", "attacks/rmia.json", "scores/members.npy"])
def test_leftovers_of_a_killed_process_are_removed_when_the_folder_is_opened_under_its_lock(
    tmp_path: Path, name: str
) -> None:
    [left] = killed_while_writing(tmp_path / name)
    (tmp_path / ".mine.tmp").touch()  # another process's
    with held(tmp_path):
        assert not left.exists()
    assert (tmp_path / ".mine.tmp").exists()


def test_leftovers_of_a_killed_process_are_removed_when_the_same_file_is_written(tmp_path: Path) -> None:
    killed_while_writing(tmp_path / "report.html")
    other = killed_while_writing(tmp_path / "other" / "report.html")
    write_bytes(tmp_path / "report.html", b"whole")
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["report.html"]
    assert all(path.exists() for path in other)


def test_a_file_that_is_being_written_is_no_leftover(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda handle: seen.append(len(leftovers(tmp_path))))
    write_bytes(tmp_path / "a", b"whole")
    assert seen == [0]


@pytest.mark.parametrize("text", ["a: 1\na: 2", "limits: {auc: 0.6, auc: 0.9}"])
def test_a_key_that_is_given_twice_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is given twice"):
        parse_yaml(text, "the policy")


@pytest.mark.parametrize("text", ["yes", "no", "on", "010", "0x10", "0o10", "1:30", "1_000", "2026-01-01"])
def test_values_that_yaml_1_1_would_convert_are_text(text: str) -> None:
    assert parse_yaml(f"a: {text}", "the policy") == {"a": text}


def test_numbers_booleans_and_null_are_those_of_json() -> None:
    found = parse_yaml("[0, -3, 12, 0.6, 1e-5, 1.5E3, .5, 1., true, False, null, ~, [], {}, 'x', -.inf]", "x")
    assert found == [0, -3, 12, 0.6, 1e-5, 1500.0, 0.5, 1.0, True, False, None, None, [], {}, "x", -math.inf]


@pytest.mark.parametrize("value", ["yes", "true", ".inf", ".nan", "010", "1:30", "'0.6'"])
def test_a_limit_of_a_policy_is_a_finite_number(tmp_path: Path, value: str) -> None:
    (tmp_path / "policy.yaml").write_text(f"limits:\n  auc: 0.6\n  epsilon_proven: {value}\n")
    with pytest.raises(UsageError, match="limits.epsilon_proven"):
        read_policy(tmp_path / "policy.yaml")
