"""Images on disk equal those in memory, and their file is whole or absent."""

import io
import logging
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from resperturb.data import load_pair, storage
from resperturb.data.canaries import concatenated, make_canaries
from resperturb.data.images import ImageSet
from resperturb.data.rows import Rows
from resperturb.errors import ResperturbError, UsageError

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RESPERTURB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "images"


def pictures(n: int, *shape: int) -> np.ndarray:
    return RNG.integers(0, 256, (n, *(shape or (6, 6, 3))), dtype=np.uint8)


def png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def table(file: Path, images: list[np.ndarray], **columns: list[object]) -> Path:
    labels = {"label": [i % 2 for i in range(len(images))]}
    pq.write_table(
        pa.table({"image": [png(image) for image in images], **labels, **columns}), file, row_group_size=50
    )
    return file


def image_folder(folder: Path, n: int = 20) -> Path:
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
        for number, image in enumerate(pictures(n)):
            Image.fromarray(image).save(folder / name / f"{number:03}.png")
    return folder


def kept(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if path.suffix != ".lock")


def same(spec: Path | str, **options: object) -> tuple[ImageSet, ImageSet]:
    """Load from disk, and assert that it is what is loaded into memory."""
    on_disk = load_pair(str(spec), data_in="disk", **options)
    for one, other in zip(on_disk, load_pair(str(spec), data_in="memory", **options), strict=True):
        assert isinstance(one.images, Rows)
        assert isinstance(other.images, torch.Tensor)
        assert one.images[:].equal(other.images)
        assert one.labels.equal(other.labels)
        assert (one.classes, one.size, one.channels) == (other.classes, other.size, other.channels)
        assert one.fingerprint == other.fingerprint
    return on_disk


def test_a_table_an_image_folder_and_an_archive_are_the_same_on_disk(tmp_path):
    images = list(pictures(150))
    same(table(tmp_path / "a.parquet", images, patient=[f"p{i // 5}" for i in range(150)]), group_column="patient")
    same(tmp_path / "a.parquet", limit=31)
    same(tmp_path / "a.parquet", image_size=4)
    same(image_folder(tmp_path / "folder"))
    np.savez(tmp_path / "a.npz", images=pictures(20), labels=[0, 1] * 10)
    same(tmp_path / "a.npz")
    same(tmp_path / "a.npz", image_size=4)
    same("fashion-sample", limit=50)


def test_colour_that_comes_late_or_in_one_part_only_is_the_same_on_disk(tmp_path):
    grey, colour = list(pictures(90, 6, 6)), list(pictures(10))
    (tmp_path / "late").mkdir()
    table(tmp_path / "late" / "train.parquet", grey + colour)
    table(tmp_path / "late" / "test.parquet", grey[:10])
    train, test = same(tmp_path / "late")
    assert train.channels == test.channels == 3


def test_members_and_canaries_are_the_same_on_disk(tmp_path):
    file = table(tmp_path / "a.parquet", list(pictures(120)))
    found = []
    for data_in in ("disk", "memory"):
        train, _ = load_pair(str(file), data_in=data_in)
        canaries = make_canaries(train, np.arange(40), {"mislabelled": 5, "near_duplicate": 4, "blank": 3}, seed=1)
        found.append(concatenated(train.select(np.arange(40, 80)), canaries.images).select([50, 0, 45, 3]))
    assert isinstance(found[0].images, Rows)
    assert found[0].images[:].equal(found[1].images)
    assert found[0].fingerprint == found[1].fingerprint


def test_images_are_decoded_once(tmp_path, cache, caplog):
    caplog.set_level(logging.INFO, "resperturb.data.storage")
    file = table(tmp_path / "a.parquet", list(pictures(60)))
    load_pair(str(file), data_in="disk")
    assert [re.search(r"decoding (\d+) images once .* into (.*), where", m)[1] for m in caplog.messages] == [
        "48",
        "12",
    ]
    before = {name: (cache / name).stat().st_ino for name in kept(cache)}
    assert len(before) == 2
    caplog.clear()
    load_pair(str(file), data_in="disk")
    assert caplog.messages == []
    assert {name: (cache / name).stat().st_ino for name in kept(cache)} == before


def test_only_the_owner_may_read_them(tmp_path, cache):
    load_pair(str(table(tmp_path / "a.parquet", list(pictures(60)))), data_in="disk")
    assert cache.stat().st_mode & 0o077 == 0
    assert all((cache / name).stat().st_mode & 0o077 == 0 for name in kept(cache))


def test_a_changed_image_is_noticed_even_if_its_size_and_time_are_as_before(tmp_path):
    folder = image_folder(tmp_path / "folder")
    before = [part.fingerprint for part in load_pair(str(folder), data_in="disk")]
    victim = sorted((folder / "a").iterdir())[0]
    size, times = victim.stat().st_size, (victim.stat().st_atime_ns, victim.stat().st_mtime_ns)
    content = np.asarray(Image.open(victim)).copy()
    for shade in range(256):  # another image whose file has the same length
        content[0, 0] = shade
        if len(png(content)) == size and png(content) != victim.read_bytes():
            break
    victim.write_bytes(png(content))
    os.utime(victim, ns=times)
    assert victim.stat().st_size == size
    assert [part.fingerprint for part in same(folder)] != before


def test_files_that_a_table_only_names_are_read_every_time(tmp_path, cache):
    for number, image in enumerate(pictures(20)):
        Image.fromarray(image).save(tmp_path / f"{number}.png")
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"image": [f"{i}.png" for i in range(20)], "label": [i % 2 for i in range(20)]}), file)
    before, _ = same(file)
    assert kept(cache) == []
    for number in range(20):
        Image.fromarray(pictures(1)[0]).save(tmp_path / f"{number}.png")
    after, _ = same(file)
    assert before.fingerprint != after.fingerprint


def test_a_damaged_file_is_made_again(tmp_path, cache):
    file = table(tmp_path / "a.parquet", list(pictures(60)))
    load_pair(str(file), data_in="disk")
    for name, damage in zip(kept(cache), (b"", (cache / kept(cache)[1]).read_bytes()[:500]), strict=True):
        (cache / name).write_bytes(damage)
    same(file)


def test_an_error_while_decoding_leaves_nothing(tmp_path, cache):
    file = tmp_path / "a.parquet"
    images = [png(image) for image in pictures(60)]
    images[40] = images[40][:60]
    pq.write_table(pa.table({"image": images, "label": [i % 2 for i in range(60)]}), file)
    with pytest.raises(UsageError, match="row 40 of .*corrupt"):
        load_pair(str(file), data_in="disk")
    assert kept(cache) == []


LOAD = """
import logging, sys
logging.basicConfig(level=logging.INFO)
from resperturb.data import load_pair
load_pair(sys.argv[1], data_in='disk')
"""


def test_a_killed_process_leaves_no_half_of_a_file(tmp_path, cache):
    file = table(tmp_path / "a.parquet", list(pictures(300, 128, 128, 3)))
    process = subprocess.Popen([sys.executable, "-c", LOAD, str(file)])
    while not (cache.is_dir() and any(name.endswith(".part") for name in kept(cache))):
        assert process.poll() is None
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    left = kept(cache)
    assert [name for name in left if not name.endswith(".part")] == [], "the process was too quick for this test"
    same(file)
    assert not any(name.endswith(".part") for name in kept(cache))


def test_processes_that_need_the_same_images_share_the_work(tmp_path, cache):
    file = table(tmp_path / "a.parquet", list(pictures(60, 64, 64, 3)))
    processes = [
        subprocess.Popen([sys.executable, "-c", LOAD, str(file)], stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    said = [process.communicate()[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert sum(text.count(": decoding") for text in said) == 2  # the training part once, the test part once
    same(file)


def test_a_disk_that_is_too_small_is_refused_before_anything_is_decoded(tmp_path, cache, monkeypatch):
    file = table(tmp_path / "a.parquet", list(pictures(60)))
    monkeypatch.setattr(storage, "_SPARE_BYTES", 1 << 60)
    with pytest.raises(
        ResperturbError, match=r"48 images .* need .* GiB decoded, and .*images has .*RESPERTURB_CACHE"
    ):
        load_pair(str(file), data_in="disk")
    assert kept(cache) == []


def test_a_disk_that_fills_up_is_a_message_not_a_crash(tmp_path, cache):
    file = table(tmp_path / "a.parquet", list(pictures(60, 64, 64, 3)))
    # A file may not grow beyond 100 kB: the same to the program as a disk without room.
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n{LOAD}"
    done = subprocess.run([sys.executable, "-c", limited, str(file)], capture_output=True, text=True)
    assert done.returncode == 1
    assert re.search(r"ResperturbError: The decoded images cannot be kept in .*RESPERTURB_CACHE", done.stderr)
    assert kept(cache) == []


def test_a_cache_that_cannot_be_written_is_refused(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RESPERTURB_CACHE", str(tmp_path / "file"))
    with pytest.raises(ResperturbError, match=r"Not a directory.*RESPERTURB_CACHE"):
        load_pair("fashion-sample", data_in="disk", limit=50)


def test_the_environment_names_the_folder_unless_the_caller_does(monkeypatch):
    monkeypatch.setenv("RESPERTURB_DATA_IN", "disk")
    assert isinstance(load_pair("fashion-sample", limit=50)[0].images, Rows)
    assert isinstance(load_pair("fashion-sample", limit=50, data_in="memory")[0].images, torch.Tensor)
    monkeypatch.setenv("RESPERTURB_DATA_IN", "cloud")
    with pytest.raises(UsageError, match=r"'cloud'.*--data-in"):
        load_pair("fashion-sample", limit=50)
