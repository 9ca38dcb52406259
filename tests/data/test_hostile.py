"""Forged files, waiting pipes and undecodable names end in one sentence, never in a traceback or a hang."""

import io
import json
import os
import shutil
import struct
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from resperturb.data import load_pair
from resperturb.data.decoding import Decoder
from resperturb.data.sources import folder as folders
from resperturb.errors import ResperturbError, UsageError

RNG = np.random.default_rng(0)


def png(kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.fromarray(RNG.integers(0, 256, (8, 8), dtype=np.uint8)).save(file, kind)
    return file.getvalue()


def image_folder(folder: Path, names: tuple[str, ...] = ("a", "b")) -> Path:
    for name in names:
        (folder / name).mkdir(parents=True)
        for i in range(5):
            (folder / name / f"{i}.png").write_bytes(png())
    return folder


def refused(spec: object, *parts: str, **options) -> None:
    with pytest.raises(ResperturbError) as raised:
        load_pair(str(spec), **options)
    message = str(raised.value)
    assert message.isprintable(), message
    for part in parts:
        assert part in message, message


# Nothing runs


POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n(ran) (/tmp/ran) (w) file closefile\n"


@pytest.mark.parametrize("name", ["1.eps", "1.png"])
def test_postscript_starts_no_ghostscript(tmp_path, monkeypatch, name):
    started = tmp_path / "started"
    (tmp_path / "bin").mkdir()
    for program in ("gs", "gswin32c"):
        (tmp_path / "bin" / program).write_text(f"#!/bin/sh\ntouch {started}\n")
        (tmp_path / "bin" / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    with pytest.raises(UsageError, match="no format known here"):
        Decoder().decode(POSTSCRIPT, name)
    assert not started.exists()


# Nothing hangs


def test_a_pipe_among_images_is_left_out_and_counted(tmp_path):
    image_folder(tmp_path)
    os.mkfifo(tmp_path / "a" / "pipe.png")
    train, _ = load_pair(str(tmp_path))
    assert train.summary is not None
    assert dict(train.summary.skipped) == {"pipes, devices or broken links": 1}


@pytest.mark.parametrize("name", ["x.parquet", "x.npz", "folder/metadata.csv", "folder/train.parquet", "pipe"])
def test_a_pipe_instead_of_a_file_is_refused_at_once(tmp_path, name):
    image_folder(tmp_path / "folder")
    os.mkfifo(tmp_path / name)
    spec = tmp_path / name if "/" not in name else tmp_path / "folder"
    refused(spec, group_column="patient")


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/full", "/dev/tty"])
def test_a_device_is_refused_at_once(tmp_path, device):
    (tmp_path / "x.npz").symlink_to(device)
    refused(tmp_path / "x.npz")
    (tmp_path / "x.parquet").symlink_to(device)
    refused(tmp_path / "x.parquet")


# Nothing is read that was not given


def table(file: Path, **columns) -> Path:
    pq.write_table(pa.table(columns), file)
    return file


@pytest.mark.parametrize("path", ["{outside}", "../outside.png", "link.png", "/dev/zero", "a\0b"])
def test_a_table_names_only_files_under_its_folder(tmp_path, path):
    outside, inside = tmp_path / "outside.png", tmp_path / "set"
    outside.write_bytes(png())
    inside.mkdir()
    (inside / "link.png").symlink_to(outside)
    (inside / "fine.png").write_bytes(png())
    paths = ["fine.png", str(inside / "fine.png"), path.format(outside=outside), "fine.png"] * 3
    file = table(inside / "a.parquet", image=paths, label=[0, 1] * 6)
    refused(file, "row 2", "only files next to the table")


def test_a_table_that_names_a_pipe_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    file = table(tmp_path / "a.parquet", image=["pipe.png"] * 10, label=[0, 1] * 5)
    refused(file, "pipe.png is no regular file")


# One image, one patient


def test_a_table_that_names_one_image_for_two_patients_is_refused(tmp_path):
    for i in range(10):
        (tmp_path / f"{i}.png").write_bytes(png())
    names = [f"{i}.png" for i in range(10)] + ["./3.png", "3.png"]
    patients = [f"p{i % 5}" for i in range(10)]
    labels = [i % 2 for i in range(12)]
    file = table(tmp_path / "a.parquet", image=names, label=labels, patient=[*patients, "p3", "p4"])
    refused(file, "'3.png' is named for two groups, 'p3' and 'p4'", group_column="patient")
    table(file, image=names, label=labels, patient=[*patients, "p3", "p3"])
    assert len(load_pair(str(file), group_column="patient")[0]) > 0


def test_metadata_that_names_one_image_for_two_patients_is_refused(tmp_path):
    image_folder(tmp_path)
    lines = ["file_name,patient", *(f"{name}/{i}.png,p{i}" for name in "ab" for i in range(5))]
    (tmp_path / "metadata.csv").write_text("\n".join([*lines, "a/2.png,p2"]))
    load_pair(str(tmp_path), group_column="patient")
    (tmp_path / "metadata.csv").write_text("\n".join([*lines, "a/2.png,p4"]))
    refused(tmp_path, "'a/2.png' for two groups, 'p2' and 'p4'", group_column="patient")


# Archives that lie


def npz(file: Path, **arrays: bytes) -> Path:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in arrays.items():
            archive.writestr(f"{name}.npy", content)
    return file


def npy(header: dict[str, object], content: bytes = b"") -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue() + content


def saved(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


LABELS = saved(np.arange(10) % 2)


@pytest.mark.parametrize("shape", [(10**6, 10**3, 10**3), (10**30, 8, 8), (10, -8, 8), (2**62, 2, 2)])
def test_an_array_that_claims_terabytes_is_refused_before_it_is_allocated(tmp_path, shape):
    claim = npy({"descr": "|u1", "fortran_order": False, "shape": shape}, bytes(640))
    refused(npz(tmp_path / "a.npz", images=claim, labels=LABELS), str(tmp_path / "a.npz"))


def test_an_archive_that_lies_about_its_sizes_is_refused(tmp_path):
    claim = npy({"descr": "|u1", "fortran_order": False, "shape": (2**20, 2**10, 2**10)})
    whole = npz(tmp_path / "a.npz", images=claim, labels=LABELS).read_bytes()
    lying = struct.pack("<I", 0xFFFFFFF0)
    (tmp_path / "a.npz").write_bytes(whole.replace(struct.pack("<I", len(claim)), lying))
    refused(tmp_path / "a.npz")


def test_an_array_larger_than_the_memory_is_refused(tmp_path, monkeypatch):
    from resperturb.data.sources import npz as source

    np.savez(tmp_path / "a.npz", images=np.zeros((10, 8, 8), np.uint8), labels=np.arange(10) % 2)
    monkeypatch.setattr(source, "physical_memory", lambda: 600)
    refused(tmp_path / "a.npz", "'images'", "parquet")


def test_an_encrypted_archive_is_refused(tmp_path):
    content = bytearray(
        npz(tmp_path / "a.npz", images=saved(np.zeros((10, 8, 8), np.uint8)), labels=LABELS).read_bytes()
    )
    for magic, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        start = content.find(magic)
        while start >= 0:
            content[start + at] |= 1
            start = content.find(magic, start + 1)
    (tmp_path / "a.npz").write_bytes(content)
    refused(tmp_path / "a.npz", "encrypted")


def test_an_archive_with_an_array_twice_is_refused(tmp_path):
    file = tmp_path / "a.npz"
    npz(file, images=saved(np.zeros((10, 8, 8))), labels=LABELS, labelz=LABELS)
    file.write_bytes(file.read_bytes().replace(b"labelz", b"labels"))
    refused(file, "two arrays 'labels'")


# Tables that are odd


def test_a_column_that_is_there_twice_is_refused(tmp_path):
    twice = pa.Table.from_arrays([pa.array([png()] * 10), *[pa.array([0, 1] * 5)] * 2], ["image", "label", "label"])
    pq.write_table(twice, tmp_path / "a.parquet")
    refused(tmp_path / "a.parquet", "two columns 'label'")
    image_folder(tmp_path / "folder")
    (tmp_path / "folder" / "metadata.csv").write_text("file_name,patient,patient\na/1.png,1,2\n")
    refused(tmp_path / "folder", "'patient'", "more than one", group_column="patient")


def test_labels_that_are_no_text_are_refused(tmp_path):
    odd = pa.array([b"ill", b"w\xffll"] * 5)
    file = table(tmp_path / "a.parquet", image=[png()] * 10, label=odd)
    refused(file, "row 1", "'w\\udcffll'", "not UTF-8")
    unchecked = pa.StringArray.from_buffers(10, odd.buffers()[1], odd.buffers()[2])
    table(file, image=[png()] * 10, label=unchecked)
    refused(file, "not UTF-8")
    np.savez(tmp_path / "a.npz", images=np.zeros((10, 8, 8), np.uint8), labels=np.array([b"ill", b"w\xffll"] * 5))
    refused(tmp_path / "a.npz", "not UTF-8")


def test_declared_names_that_are_no_text_are_refused(tmp_path):
    names = {"info": {"features": {"label": {"names": ["a", "\ud800"]}}}}
    images = pa.table({"image": [png()] * 10, "label": [0, 1] * 5})
    pq.write_table(images.replace_schema_metadata({"huggingface": json.dumps(names)}), tmp_path / "a.parquet")
    refused(tmp_path / "a.parquet", "class name")


@pytest.mark.parametrize("name", [b"w\xffll", b"\x1b[31mred", b"two\nlines"])
def test_class_folders_whose_names_are_no_text_are_refused(tmp_path, name):
    image_folder(tmp_path)
    (tmp_path / "a").rename(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
    refused(tmp_path, "rename it")


def test_control_characters_in_names_reach_no_message(tmp_path):
    image_folder(tmp_path)
    (tmp_path / "a" / "\x1b]0;title\x07.png").write_bytes(b"junk")
    refused(tmp_path, r"\x1b]0;title\x07.png is corrupt")


def test_names_in_any_language_are_fine(tmp_path):
    assert load_pair(str(image_folder(tmp_path, ("gesund ä", "病気"))))[0].classes == ("gesund ä", "病気")


# Places that cannot be


@pytest.mark.parametrize("spec", ["~nosuchuser/x", "a\0b", "x" * 5000, "x/" * 3000 + "y", "\udcff", "./\x1b[31m"])
def test_names_that_are_no_paths_are_refused(spec):
    refused(spec)


@pytest.mark.parametrize("variable", ["RESPERTURB_DATA", "RESPERTURB_CACHE"])
def test_a_variable_with_an_unknown_home_is_refused(monkeypatch, variable):
    monkeypatch.setenv(variable, "~nosuchuser")
    spec = "cifar10" if variable == "RESPERTURB_DATA" else "fashion-sample"
    refused(spec, "~nosuchuser", data_in="disk")


def test_a_folder_that_may_not_be_read_is_said_to_be_one(tmp_path, monkeypatch):
    image_folder(tmp_path)
    (tmp_path / "a" / "locked").mkdir()
    scandir = os.scandir

    def locked(path):
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(folders.os, "scandir", locked)
    refused(tmp_path, str(tmp_path / "a" / "locked"), "Permission denied")


def test_a_folder_that_may_be_listed_and_not_entered_is_refused(tmp_path, monkeypatch):
    image_folder(tmp_path)

    def denied(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(folders.Path, "is_file", denied)
    refused(tmp_path, "Permission denied")


@pytest.mark.parametrize("size", [1_000_000, 10**30, 7072])
def test_an_image_size_that_no_machine_holds_is_refused(size):
    refused("fashion-sample", "image size", str(size), image_size=size)


@pytest.mark.parametrize("options", [["x.npz"], ["~nosuchuser"], ["fashion-sample", "--image-size", "1000000"]])
def test_the_command_line_ends_with_one_sentence(tmp_path, monkeypatch, capsys, options):
    from resperturb.cli import main

    monkeypatch.chdir(tmp_path)
    os.mkfifo(tmp_path / "x.npz")
    monkeypatch.setattr(sys, "argv", ["resperturb", "train", "--epochs", "1", "--data", *options])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("Error: ")


# Any bytes


def folder_of(content: bytes, name: str) -> Path:
    folder = Path(tempfile.mkdtemp())
    (folder / name).write_bytes(content)
    return folder


def loads_or_refuses(action: Callable[[], object]) -> bool:
    """Whether it works, or is refused in one printable sentence; anything else is raised."""
    try:
        action()
    except ResperturbError as error:
        return str(error).isprintable()
    return True


def _seeds() -> dict[str, bytes]:
    good = Path(tempfile.mkdtemp())
    try:
        table(good / "a.parquet", image=[png()] * 10, label=["a", "b"] * 5, patient=[str(i // 2) for i in range(10)])
        np.savez(good / "a.npz", images=np.zeros((10, 8, 8), np.uint8), labels=np.arange(10) % 2)
        return {file.name: file.read_bytes() for file in good.iterdir()}
    finally:
        shutil.rmtree(good)


SEEDS = _seeds()
CHANGES = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=8)


@pytest.mark.parametrize("name", sorted(SEEDS))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(changes=CHANGES, cut=st.integers(0, 60))
def test_damaged_files_load_or_are_refused(name, changes, cut):
    content = bytearray(SEEDS[name])
    for place, value in changes:
        content[place % len(content)] = value
    folder = folder_of(bytes(content[: len(content) - cut]), name)
    group_column = "patient" if name.endswith("parquet") else None
    try:
        assert loads_or_refuses(lambda: load_pair(str(folder / name), group_column=group_column, data_in="memory"))
    finally:
        shutil.rmtree(folder)


IMAGES = {kind: png(kind) for kind in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM")}


@pytest.mark.parametrize("kind", sorted(IMAGES))
@pytest.mark.filterwarnings("ignore")
@settings(max_examples=60, deadline=None)
@given(changes=CHANGES, cut=st.integers(0, 30))
def test_damaged_images_decode_or_are_refused(kind, changes, cut):
    content = bytearray(IMAGES[kind])
    for place, value in changes:
        content[place % len(content)] = value
    assert loads_or_refuses(lambda: Decoder(8).decode(bytes(content[: len(content) - cut]), "x"))


@settings(max_examples=100, deadline=None)
@given(content=st.binary(max_size=300), lead=st.sampled_from([b"", bytes(128) + b"DICM", b"PK\x03\x04", b"%!PS"]))
def test_any_bytes_are_refused_as_an_image(content, lead):
    with pytest.raises(UsageError, match="x") as raised:
        Decoder().decode(lead + content, "x")
    assert str(raised.value).isprintable()


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    content=st.one_of(
        st.binary(max_size=200), st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace"))
    )
)
def test_any_metadata_is_read_or_refused(content):
    folder = Path(tempfile.mkdtemp())
    try:
        image_folder(folder)
        (folder / "metadata.csv").write_bytes(b"file_name,patient\n" + content)
        refused(folder, group_column="patient")
    finally:
        shutil.rmtree(folder)


@settings(max_examples=100, deadline=None)
@given(spec=st.text(max_size=60))
def test_any_name_is_refused_in_one_sentence(spec):
    if "/" in spec or not spec.strip(". ~"):
        return
    refused(spec)
