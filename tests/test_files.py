"""A file is there whole or not at all."""

import json
import math
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from resperturb.errors import BusyError, ResperturbError
from resperturb.files import held, read_json, write_bytes, write_json


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


def test_json_names_what_it_has_no_number_for_and_reads_it_back(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", Bound(math.inf, (1, 2)))
    assert json.loads((tmp_path / "a.json").read_text()) == {"epsilon": "inf", "sizes": [1, 2]}
    assert read_json(Bound, tmp_path / "a.json") == Bound(math.inf, (1, 2))


@pytest.mark.parametrize("text", ["", "[]", '{"epsilon": "much"}', "[" * 100_000, '{"epsilon": 1.0}', "\x00"])
def test_a_damaged_file_is_refused_in_one_sentence_with_its_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ResperturbError, match="a.json"):
        read_json(Bound, tmp_path / "a.json")
