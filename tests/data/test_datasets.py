"""What Hugging Face `datasets` loses, and why this package reads files by itself where it does.

If one of these tests fails, `datasets` has become better at it: our own code for it may go.
"""

import io
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

datasets = pytest.importorskip("datasets")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()
    return tmp_path / "cache"


def png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


NOISE = np.random.default_rng(0).integers(0, 256, (64, 64), dtype=np.uint8)


def image_folder(folder: Path) -> Path:
    for name in ("ill/patient7/1.png", "ill/patient8/1.png", "well/patient9/1.png"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_bytes(png(NOISE))
    (folder / "ill" / "patient7" / "2.dcm").write_bytes(bytes(128) + b"DICM")
    return folder


def test_private_images_of_a_table_are_copied_where_others_may_read_them(tmp_path, cache):
    image = png(NOISE)
    pq.write_table(pa.table({"image": [image] * 4, "label": [0, 1, 0, 1]}), tmp_path / "a.parquet")
    before = os.umask(0o022)
    try:
        datasets.load_dataset("parquet", data_files=str(tmp_path / "a.parquet"))
    finally:
        os.umask(before)
    copies = [file for file in cache.rglob("*.arrow") if image in file.read_bytes()]
    assert copies
    assert all(file.stat().st_mode & 0o044 for file in copies)


def test_the_class_of_an_image_is_the_innermost_folder(tmp_path, cache):
    found = datasets.load_dataset("imagefolder", data_dir=str(image_folder(tmp_path / "scans")))["train"]
    assert found.features["label"].names == ["patient7", "patient8", "patient9"]


def test_files_that_are_not_known_vanish_without_a_word(tmp_path, cache, caplog):
    found = datasets.load_dataset("imagefolder", data_dir=str(image_folder(tmp_path / "scans")))["train"]
    assert len(found) == 3
    assert "dcm" not in caplog.text


def test_postscript_is_opened_and_sixteen_bits_stay_sixteen():
    image = datasets.Image()
    postscript = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n"
    opened = []
    original = Image.open

    def watched(*args, **options):
        opened.append(options.get("formats"))
        raise OSError("enough seen")

    Image.open = watched
    try:
        with pytest.raises(OSError, match="enough seen"):
            image.decode_example({"bytes": postscript, "path": None})
    finally:
        Image.open = original
    assert opened == [None], "it names no formats, so Pillow would run Ghostscript"
    deep = png(np.full((8, 8), 4095, np.uint16))
    assert image.decode_example({"bytes": deep, "path": None}).mode == "I;16"
