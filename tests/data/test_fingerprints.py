"""Runs on disk are bound to their images by fingerprints: these must never change for the same files.

The values were stored before sources, decoding and splits were last rewritten.
"""

import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from resperturb.data import four_quarters, load_pair
from resperturb.training.config import DataConfig, TrainConfig


def encoded(pixels: np.ndarray) -> dict[str, object]:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return {"bytes": file.getvalue(), "path": None}


def write_table(file: Path, seed: int, n: int, shape: tuple[int, ...], **columns) -> None:
    """Write a table as the hub does: images as structs, the names of the classes in the metadata."""
    rng = np.random.default_rng(seed)
    cells = [encoded(rng.integers(0, 256, shape, dtype=np.uint8)) for _ in range(n)]
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    features = {"image": {"_type": "Image"}, "label": {"names": ["benign", "malignant"], "_type": "ClassLabel"}}
    table = pa.table({"image": pa.array(cells, kind), "label": [i % 2 for i in range(n)], **columns})
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.replace_schema_metadata(metadata), file)


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand-ins for CIFAR10 (two tables) and IDC (one, with patients): the same formats, and far smaller."""
    monkeypatch.setenv("RESPERTURB_DATA", str(tmp_path))
    for seed, (part, n) in enumerate((("train", 40), ("test", 10))):
        write_table(tmp_path / "colour" / f"{part}.parquet", seed, n, (32, 32, 3))
    write_table(tmp_path / "idc.parquet", 2, 60, (50, 50, 3), patient=[f"p{i // 4}" for i in range(60)])
    return tmp_path


CASES = {
    "fashion-sample": ({}, "fe7f11c744905d40", "a24192864183cf37"),
    "fashion-sample, 300": ({"limit": 300}, "fb73af123f30ce3b", "b8b9a3b64b1a0feb"),
    "colour": ({}, "c6dfc734c631b167", "725c1f6df1f65258"),
    "colour, 30": ({"limit": 30}, "8551e253f93dad86", "725c1f6df1f65258"),
    "colour, small": ({"image_size": 16}, "074b3824954ec0e9", "9ad66dd2a81765ab"),
    "idc.parquet": ({"group_column": "patient"}, "a88fc70dd5e9e55b", "47b02ef914dd3867"),
    "idc.parquet, 20": (
        {"group_column": "patient", "limit": 20, "image_size": 32},
        "f05a1b77e068fd4e",
        "08cddb0a19d14491",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_fingerprints_of_the_data_of_existing_runs_do_not_change(tables: Path, name: str):
    options, train, test = CASES[name]
    loaded = load_pair(name.split(",")[0], data_in="memory", **options)
    assert [part.fingerprint[:16] for part in loaded] == [train, test]


def test_the_quarters_of_a_seed_stay():
    plain = four_quarters(101, seed=3)
    grouped = four_quarters(60, seed=3, groups=[f"p{i // 4}" for i in range(60)])
    assert [part[:5].tolist() for part in plain] == [
        [0, 1, 2, 17, 18], [3, 4, 10, 11, 15], [6, 12, 13, 21, 25], [5, 7, 8, 9, 14],
    ]  # fmt: skip
    assert [part[::4].tolist() for part in grouped] == [
        [24, 28, 32], [0, 40, 48, 52], [20, 36, 44, 56], [4, 8, 12, 16],
    ]  # fmt: skip


def test_runs_keep_their_names():
    def name(**data: object) -> str:
        return TrainConfig(data=DataConfig(part="target_train", **data), seeded_noise=True).digest

    assert name(spec="fashion-sample") == "351ff3dfe7683ee1"
    assert name(spec="idc", image_size=32) == "2818bfd43636f642"
    assert name(spec="idc", image_size=32, bits=12) != name(spec="idc", image_size=32)
