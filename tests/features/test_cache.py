"""Features are computed once, resumed where a command was killed, and readable by their owner alone."""

import stat
from pathlib import Path

import numpy as np
import pytest
import torch

from resperturb import features
from resperturb.data.images import ImageSet
from resperturb.features import extractor as cache


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RESPERTURB_CACHE", str(tmp_path))
    monkeypatch.setattr(cache, "ROWS_PER_BLOCK", 4)
    monkeypatch.setattr(cache, "ROWS_PER_BATCH", 2)
    return tmp_path / "features"


def images() -> ImageSet:
    pixels = torch.randint(0, 256, (10, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return ImageSet(pixels, torch.arange(10) % 2, ("a", "b"), None, "noise")


def computed() -> tuple[np.ndarray, list[int]]:
    steps: list[int] = []
    rows = features.build("scattering", reduction="none").compute(
        images(), progress=lambda done, total: steps.append(done)
    )
    return rows, steps


def test_features_are_computed_once(folder: Path) -> None:
    first, steps = computed()
    assert steps == [2, 4, 6, 8, 10, 10]
    again, steps = computed()
    assert steps == [10]
    np.testing.assert_array_equal(first, again)
    files = list(folder.rglob("*.npy"))
    assert len(files) == 3
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


@pytest.mark.parametrize("damage", ["missing", "cut", "other rows"])
def test_a_block_that_is_not_whole_is_computed_again(damage: str, folder: Path) -> None:
    first, _ = computed()
    block = next(folder.rglob("4.npy"))
    if damage == "missing":
        block.unlink()
    elif damage == "cut":
        block.write_bytes(block.read_bytes()[:200])
    else:
        np.save(block, np.zeros((1, 3), np.float32))
    again, steps = computed()
    assert steps == [6, 8, 10]
    np.testing.assert_array_equal(first, again)


def test_a_killed_command_goes_on_with_the_next_block() -> None:
    def stop(done: int, total: int) -> None:
        if done > 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        features.build("scattering", reduction="none").compute(images(), progress=stop)
    assert computed()[1] == [6, 8, 10, 10]


def test_other_images_have_other_features() -> None:
    first, _ = computed()
    other = images()
    other = ImageSet(255 - torch.as_tensor(other.images[:]), other.labels, other.classes, None, "noise")
    assert not np.allclose(features.build("scattering", reduction="none").compute(other), first)
