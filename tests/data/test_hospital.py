"""Hospital images: 12 bits, DICOM, nested folders, not square; and the count of conversions."""

import io
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from resperturb.data import load_pair
from resperturb.data.decoding import Decoder
from resperturb.data.images import LoadSummary
from resperturb.errors import UsageError
from resperturb.models import library

RNG = np.random.default_rng(0)


def deep(high: int, shape: tuple[int, ...] = (8, 8)) -> np.ndarray:
    """Values from 0 to ``high``, both included."""
    values = RNG.integers(0, high + 1, shape).astype(np.uint16)
    values.flat[0], values.flat[1] = 0, high
    return values


def image_folder(folder: Path, images: dict[str, np.ndarray]) -> Path:
    for name, pixels in images.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / name)
    return folder


def scans(folder: Path, high: int = 4095) -> Path:
    return image_folder(folder, {f"{name}/{i}.png": deep(high) for name in ("ill", "well") for i in range(5)})


def summary_of(folder: Path, **options) -> LoadSummary:
    train, test = load_pair(str(folder), **options)
    assert train.summary is not None
    assert train.summary == test.summary
    return train.summary


# Patients in names, and the class that is looked for


def cells(folder: Path) -> Path:
    names = [
        f"{kind}/C{10 * of + patient}P1thin_cell_{i}.png"
        for of, kind in enumerate(("ill", "well"))
        for patient in range(5)
        for i in range(4)
    ]
    return image_folder(folder, {name: deep(255).astype(np.uint8) for name in names})


def test_a_pattern_finds_the_patient_in_the_names_of_files(tmp_path):
    train, test = load_pair(str(cells(tmp_path)), group_pattern=r"^C\d+")
    assert {*train.groups, *test.groups} == {f"C{number}" for number in (*range(5), *range(10, 15))}
    assert not {*train.groups} & {*test.groups}


def test_a_pattern_reduces_a_group_column(tmp_path):
    folder = image_folder(
        tmp_path, {f"{kind}/{kind}7-{i}/1.png": deep(255) for kind in ("ill", "well") for i in range(4)}
    )
    train, test = load_pair(str(folder), group_column="folder", group_pattern=r"-\d")
    assert {*train.groups, *test.groups} == {"-0", "-1", "-2", "-3"}


@pytest.mark.parametrize(("pattern", "said"), [("X[0-9]", "matches nothing in"), ("(", "no regular expression")])
def test_a_pattern_that_does_not_fit_is_refused(tmp_path, pattern, said):
    with pytest.raises(UsageError, match=said):
        load_pair(str(cells(tmp_path)), group_pattern=pattern)


def test_a_pattern_needs_names_of_files_or_a_column():
    with pytest.raises(UsageError, match="--group-column"):
        load_pair("fashion-sample", group_pattern="C")


def test_the_positive_class_is_the_second(tmp_path):
    folder = image_folder(
        tmp_path,
        {
            f"{kind}/{i}.png": np.full((8, 8), 200 * (kind == "ill"), np.uint8)
            for kind in ("ill", "well")
            for i in range(5)
        },
    )
    for positive in ("ill", "well"):
        train, _ = load_pair(str(folder), positive=positive)
        assert train.classes[1] == positive
        assert int(train.images[train.labels == 1].max()) == (200 if positive == "ill" else 0)
    with pytest.raises(UsageError, match="one of two classes"):
        load_pair(str(folder), positive="sick")
    with pytest.raises(UsageError, match="one of two classes"):
        load_pair("fashion-sample", positive="Bag")


# Bits


def test_twelve_bits_in_sixteen_are_17_grey_levels_and_that_is_said(tmp_path, caplog):
    train, _ = load_pair(str(scans(tmp_path)))
    assert int(train.images.max()) == 16
    assert "above 4095, so they come to 17 of 256 grey levels" in caplog.text
    assert "--bits 12" in caplog.text


def test_twelve_bits_keep_all_grey_levels(tmp_path, caplog):
    folder = scans(tmp_path)
    train, _ = load_pair(str(folder), bits=12)
    assert (int(train.images.min()), int(train.images.max())) == (0, 255)
    assert caplog.text == ""
    assert summary_of(folder, bits=12).converted == (("from 12 bits to 8 (asked for)", 10),)


def test_full_sixteen_bits_are_no_cause_for_advice(tmp_path, caplog):
    assert summary_of(scans(tmp_path, 65535)).converted == (("from 16 bits to 8", 10),)
    assert caplog.text == ""


def test_values_beyond_the_requested_bits_are_refused(tmp_path):
    with pytest.raises(UsageError, match=r"the value 4095, beyond the 10 bits \(0 to 1023\) .*--bits 12"):
        load_pair(str(scans(tmp_path)), bits=10)


@pytest.mark.parametrize("bits", [0, 17, 12.0, True])
def test_bits_are_one_to_sixteen(bits):
    with pytest.raises(UsageError, match="number of bits"):
        load_pair("fashion-sample", bits=bits)


def png_with_sbit(values: np.ndarray, bits: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(values).save(file, "PNG")
    whole = file.getvalue()
    body = b"sBIT" + bytes([bits])
    chunk = struct.pack(">I", 1) + body + struct.pack(">I", zlib.crc32(body))
    return whole[:33] + chunk + whole[33:]  # behind the header


def test_the_range_that_a_file_declares_is_taken():
    values = np.array([[0, 2048, 4095]], np.uint16)
    assert Decoder().decode(png_with_sbit(values, 12), "x").tolist() == [[0, 128, 255]]
    tiff = io.BytesIO()
    Image.fromarray(values).save(tiff, "TIFF", tiffinfo={281: 4095})
    assert Decoder().decode(tiff.getvalue(), "x").tolist() == [[0, 128, 255]]


def test_requested_bits_override_declared_ones():
    values = np.array([[0, 16383]], np.uint16)
    assert Decoder(bits=14).decode(png_with_sbit(values, 15), "x").tolist() == [[0, 255]]


def test_eight_bit_images_do_not_mind_the_bits():
    pixels = RNG.integers(0, 256, (4, 4), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    assert np.array_equal(Decoder(bits=12).decode(file.getvalue(), "x"), pixels)


def png_of_deep_colour(values: np.ndarray) -> bytes:
    """A PNG of 16 bits in each colour, which Pillow reads and does not write."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    height, width, _ = values.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    header = struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def test_colour_of_twelve_bits_is_not_darkened_in_silence():
    file = png_of_deep_colour(deep(4095, (4, 4, 3)))
    decoder = Decoder()
    assert decoder.decode(file, "x").max() == 15
    assert decoder.tally.brightest == 4095
    with pytest.raises(UsageError, match=r"scan.*16 bits in each colour.*convert it to 8 bits"):
        Decoder(bits=12).decode(file, "scan")


def test_arrays_of_twelve_bits_are_scaled_like_files(tmp_path, caplog):
    values = deep(4095, (20, 8, 8))
    np.savez(tmp_path / "a.npz", images=values, labels=[0, 1] * 10)
    scaled, _ = load_pair(str(tmp_path / "a.npz"), bits=12)
    assert int(scaled.images.max()) == 255
    assert caplog.text == ""
    plain, _ = load_pair(str(tmp_path / "a.npz"))
    assert int(plain.images.max()) == 16
    assert "--bits 12" in caplog.text
    resized, _ = load_pair(str(tmp_path / "a.npz"), bits=12, image_size=4)
    assert resized.size == (4, 4)


def test_the_summary_is_the_same_from_the_cache(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("RESPERTURB_CACHE", str(tmp_path / "cache"))
    folder = scans(tmp_path / "scans")
    first = summary_of(folder, data_in="disk")
    assert first == summary_of(folder, data_in="disk") == summary_of(folder, data_in="memory")
    assert first.advice
    assert summary_of(folder, data_in="disk", bits=12).advice == ()


# Folders


def test_folders_are_read_in_depth_and_the_class_is_the_folder_at_the_top(tmp_path):
    images = {
        f"{name}/p{patient}/{study}/{i}.png": RNG.integers(0, 256, (8, 8), dtype=np.uint8)
        for name, patients in (("ill", (0, 1, 2)), ("well", (3, 4, 5)))
        for patient in patients
        for study in ("a", "b")
        for i in range(2)
    }
    train, test = load_pair(str(image_folder(tmp_path, images)))
    assert train.classes == ("ill", "well")
    assert len(train) + len(test) == len(images)


def test_every_file_is_used_or_counted(tmp_path, caplog):
    folder = image_folder(
        tmp_path,
        {f"{name}/{i}.png": RNG.integers(0, 256, (8, 8), dtype=np.uint8) for name in "ab" for i in range(5)},
    )
    for name in ("a/notes.txt", "b/deep/report.PDF", "b/deep/.hidden.png", "a/LICENSE", "loose.png", "readme.md"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"junk")
    (folder / "a" / ".cache").mkdir()
    summary = summary_of(folder)
    assert (summary.train, summary.test) == (8, 2)
    assert dict(summary.skipped) == {
        ".md files": 1, ".pdf files": 1, ".txt files": 1, "files without a suffix": 1, "hidden files or folders": 2,
        "images outside the class folders": 1,
    }  # fmt: skip
    assert "10 images used (8 training, 2 test); skipped: 1 .md files, 1 .pdf files" in caplog.text
    assert dict(summary_of(folder, limit=4).skipped)["images beyond the limit"] == 4


@pytest.mark.parametrize("kind", ["TIFF", "GIF"])
def test_of_several_frames_the_first_is_taken_and_that_is_said(kind):
    frames = [Image.fromarray(RNG.integers(0, 256, (8, 8), dtype=np.uint8)) for _ in range(3)]
    one, many = io.BytesIO(), io.BytesIO()
    frames[0].save(one, kind)
    frames[0].save(many, kind, save_all=True, append_images=frames[1:])
    decoder = Decoder()
    assert np.array_equal(decoder.decode(many.getvalue(), "x"), decoder.decode(one.getvalue(), "x"))
    assert decoder.tally.converted["of several frames, the first taken"] == 1


def test_a_circle_of_links_ends(tmp_path):
    folder = scans(tmp_path)
    (folder / "ill" / "again").symlink_to(folder / "ill", target_is_directory=True)
    assert summary_of(folder, bits=12).train == 8


def test_folders_that_link_to_each_other_are_read_once(tmp_path):
    """Nine folders with links to the eight others have 9! ways through them."""
    folder = scans(tmp_path)
    places = [folder / "ill" / str(number) for number in range(9)]
    for place in places:
        place.mkdir()
    for place in places:
        for other in set(places) - {place}:
            (place / f"to{other.name}").symlink_to(other, target_is_directory=True)
    found = summary_of(folder, bits=12)
    assert found.train + found.test == 10
    assert dict(found.skipped)["links to folders that were read already"] == 72


def test_a_link_to_a_folder_above_is_not_followed(tmp_path):
    """The link leads to the images of all classes, and those of the test."""
    folder = scans(tmp_path)
    (folder / "ill" / "set").symlink_to(folder, target_is_directory=True)
    (folder / "well" / "above").symlink_to(tmp_path.parent, target_is_directory=True)
    found = summary_of(folder, bits=12)
    assert found.train + found.test == 10
    assert dict(found.skipped)["links to folders that hold this one"] == 2


def test_links_out_of_the_folder_are_counted_and_said(tmp_path):
    folder = scans(tmp_path / "set")
    elsewhere = tmp_path / "elsewhere"
    (folder / "ill").rename(elsewhere)
    (folder / "ill").symlink_to(elsewhere, target_is_directory=True)
    one = next(iter((folder / "well").iterdir()))
    one.rename(tmp_path / one.name)
    one.symlink_to(tmp_path / one.name)
    found = summary_of(folder, bits=12)
    assert dict(found.converted)["behind links out of the folder"] == len(list(elsewhere.iterdir())) + 1
    assert "behind links out of the folder" in str(found)


# Other than square


@pytest.mark.parametrize("shape", [(40, 60), (61, 37, 3), (20, 20), (9, 50), (7, 8, 3)])
@pytest.mark.parametrize("size", [16, 17])
def test_images_are_resized_and_cropped_as_torchvision_does(shape, size):
    transforms = library("torchvision.transforms", "the test")
    pixels = RNG.integers(0, 256, shape, dtype=np.uint8)
    expected = transforms.Compose([transforms.Resize(size), transforms.CenterCrop(size)])(Image.fromarray(pixels))
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    assert np.array_equal(Decoder(size).decode(file.getvalue(), "x"), np.asarray(expected))


def test_nothing_is_squashed(tmp_path):
    disc = np.hypot(*np.mgrid[-20:20, -40:40]) < 15
    decoded = Decoder(20).decode((disc * 255).astype(np.uint8), "x") > 127
    assert decoded.any(0).sum() == decoded.any(1).sum()


def test_an_image_too_long_to_resize_is_refused():
    with pytest.raises(UsageError, match=r"scan is 1000000x1, too long"):
        Decoder(224).decode(np.zeros((1, 1_000_000), np.uint8), "scan")


# DICOM


def dicom(file: Path, values: np.ndarray, bits: int = 12, **entries) -> Path:
    pydicom = pytest.importorskip("pydicom")
    meta = pydicom.dataset.FileMetaDataset()
    meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = pydicom.uid.CTImageStorage
    meta.MediaStorageSOPInstanceUID = pydicom.uid.generate_uid()
    data = pydicom.dataset.Dataset()
    data.file_meta = meta
    data.Rows, data.Columns = values.shape[:2]
    data.SamplesPerPixel = 3 if values.ndim == 3 else 1
    data.PhotometricInterpretation = "RGB" if values.ndim == 3 else "MONOCHROME2"
    if values.ndim == 3:
        data.PlanarConfiguration = 0
    data.BitsAllocated = 8 * values.dtype.itemsize
    data.BitsStored, data.HighBit = bits, bits - 1
    data.PixelRepresentation = int(values.dtype.kind == "i")
    for name, value in entries.items():
        setattr(data, name, value)
    data.PixelData = values.tobytes()
    file.parent.mkdir(parents=True, exist_ok=True)
    data.save_as(file, enforce_file_format=True)
    return file


def decoded(file: Path, **options) -> list:
    return Decoder(**options).decode(file, "scan").tolist()


def test_dicom_is_scaled_by_the_bits_that_it_declares(tmp_path):
    values = np.array([[0, 2048, 4095]], np.uint16)
    file = dicom(tmp_path / "a.dcm", values)
    assert decoded(file) == [[0, 128, 255]]
    assert Decoder().decode(file.read_bytes(), "in a table").tolist() == [[0, 128, 255]]
    assert decoded(dicom(tmp_path / "b.dcm", values, PhotometricInterpretation="MONOCHROME1")) == [[255, 127, 0]]
    signed = np.array([[-2048, 0, 2047]], np.int16)
    assert decoded(dicom(tmp_path / "c.dcm", signed)) == [[0, 128, 255]]
    grey = np.array([[0, 7, 255]], np.uint8)
    assert decoded(dicom(tmp_path / "d.dcm", grey, 8)) == [[0, 7, 255]]
    colour = RNG.integers(0, 256, (2, 4, 3), dtype=np.uint8)
    assert decoded(dicom(tmp_path / "e.dcm", colour, 8)) == colour.tolist()
    assert decoded(dicom(tmp_path / "f.dcm", deep(4095, (20, 40))), image_size=10) != []


def test_dicom_that_is_no_single_image_is_refused(tmp_path):
    many = dicom(tmp_path / "a.dcm", deep(4095), NumberOfFrames=4)
    with pytest.raises(UsageError, match="scan holds 4 frames"):
        decoded(many)
    whole = dicom(tmp_path / "b.dcm", deep(4095)).read_bytes()
    (tmp_path / "b.dcm").write_bytes(whole[:-20])
    with pytest.raises(UsageError, match="scan is corrupt"):
        decoded(tmp_path / "b.dcm")
    with pytest.raises(UsageError, match=r"scan \(60000x60000\) unpacks to more"):
        decoded(dicom(tmp_path / "c.dcm", deep(4095), Rows=60000, Columns=60000))


def test_dicom_that_is_deflated_is_refused_before_it_unpacks(tmp_path):
    pydicom = pytest.importorskip("pydicom")
    data = pydicom.dcmread(dicom(tmp_path / "a.dcm", deep(4095)))
    data.file_meta.TransferSyntaxUID = pydicom.uid.DeflatedExplicitVRLittleEndian
    data.save_as(tmp_path / "b.dcm")
    with pytest.raises(UsageError, match="scan is deflated"):
        decoded(tmp_path / "b.dcm")


def hospital(folder: Path) -> Path:
    for i in range(24):
        name = "ill" if i % 2 else "well"
        suffix = ("", ".dcm", ".7")[i % 3]  # scanners often give numbers for names
        dicom(folder / name / f"study{i}" / f"IM{i}{suffix}", deep(4095), PatientID=f"p{i // 3}")
    return folder


def test_a_folder_of_dicom_files_is_grouped_by_their_headers(tmp_path):
    train, test = load_pair(str(hospital(tmp_path)), group_column="PatientID")
    assert set(train.groups) | set(test.groups) == {f"p{i}" for i in range(8)}
    assert not set(train.groups) & set(test.groups)
    assert train.summary is not None
    assert train.summary.converted == (("from 12 bits to 8 (declared)", 24),)
    with pytest.raises(UsageError, match="no entry 'Doctor'"):
        load_pair(str(tmp_path), group_column="Doctor")
    with pytest.raises(UsageError, match="'StudyID'.*missing"):
        load_pair(str(tmp_path), group_column="StudyID")


def test_without_pydicom_the_error_names_it(tmp_path, monkeypatch):
    hospital(tmp_path)
    monkeypatch.setitem(sys.modules, "pydicom", None)
    with pytest.raises(UsageError, match=r"resperturb\[dicom\]"):
        load_pair(str(tmp_path))


def test_the_folder_below_the_class_may_be_the_group(tmp_path):
    images = {f"{'ab'[i % 2]}/p{i % 7}/study{i}/{i}.png": deep(65535) for i in range(28)}
    train, test = load_pair(str(image_folder(tmp_path, images)), group_column="folder")
    assert set(train.groups) | set(test.groups) == {f"p{i}" for i in range(7)}
    assert not set(train.groups) & set(test.groups)
    image_folder(tmp_path, {"a/loose.png": deep(65535)})
    with pytest.raises(UsageError, match=r"a/loose\.png lies in the folder of its class, a, and in none of a group"):
        load_pair(str(tmp_path), group_column="folder")
