import numpy as np
import pytest
import torch

from resperturb.data import images as images_module
from resperturb.data.images import ImageSet, channel_statistics, normalize


def _set(n: int = 6, seed: int = 0, groups: np.ndarray | None = None, name: str = "some") -> ImageSet:
    pixels = torch.randint(0, 256, (n, 3, 5, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    return ImageSet(pixels, torch.arange(n) % 2, ("a", "b"), groups, name)


def test_properties_describe_the_tensor():
    images = _set()
    assert (len(images), images.num_classes, images.channels, images.size) == (6, 2, 3, (5, 4))


def test_select_takes_images_labels_and_groups_in_the_order_asked():
    images = _set(groups=np.array(list("uvwxyz")))
    chosen = images.select(np.array([4, 1]))
    assert torch.equal(chosen.images, images.images[[4, 1]])
    assert chosen.labels.tolist() == [0, 1]
    assert chosen.groups is not None
    assert chosen.groups.tolist() == ["y", "v"]
    assert chosen.classes == images.classes


def test_fingerprint_depends_on_what_a_result_depends_on_and_on_nothing_else():
    base = _set()
    same = ImageSet(base.images.clone(), base.labels.clone(), base.classes, None, "elsewhere")
    assert base.fingerprint == same.fingerprint
    assert len(base.fingerprint) == 64
    one_pixel = base.images.clone()
    one_pixel[0, 0, 0, 0] ^= 1
    others = [
        ImageSet(one_pixel, base.labels, base.classes, None, "some"),
        ImageSet(base.images, 1 - base.labels, base.classes, None, "some"),
        ImageSet(base.images, base.labels, ("a", "c"), None, "some"),
        ImageSet(base.images, base.labels, ("a", "b", "c"), None, "some"),
        ImageSet(base.images, base.labels, base.classes, np.array(list("uuvvww")), "some"),
        ImageSet(base.images.reshape(6, 3, 4, 5), base.labels, base.classes, None, "some"),
        base.select([1, 0, 2, 3, 4, 5]),
    ]
    assert len({base.fingerprint, *(other.fingerprint for other in others)}) == 1 + len(others)


@pytest.mark.parametrize(
    "arguments",
    [
        (torch.zeros(2, 1, 4, 4), torch.tensor([0, 1]), ("a", "b"), None),
        (torch.zeros(2, 4, 4, dtype=torch.uint8), torch.tensor([0, 1]), ("a", "b"), None),
        (torch.zeros(2, 1, 4, 4, dtype=torch.uint8), torch.tensor([0, 2]), ("a", "b"), None),
        (torch.zeros(2, 1, 4, 4, dtype=torch.uint8), torch.tensor([0]), ("a", "b"), None),
        (torch.zeros(2, 1, 4, 4, dtype=torch.uint8), torch.tensor([0, 1]), ("a", "b"), np.array(["x"])),
    ],
)
def test_an_inconsistent_set_cannot_be_made(arguments):
    with pytest.raises(ValueError, match="must"):
        ImageSet(*arguments, "bad")


def test_statistics_are_those_of_the_float_images_whatever_the_chunks(monkeypatch):
    images = _set(50).images
    floats = images.to(torch.float64) / 255
    whole = channel_statistics(images)
    monkeypatch.setattr(images_module, "_PIXELS_PER_CHUNK", 7 * 60)
    assert channel_statistics(images) == whole
    mean, std = whole
    np.testing.assert_allclose(mean, floats.mean(dim=(0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(std, floats.std(dim=(0, 2, 3), correction=0), rtol=1e-12)
    assert all(isinstance(value, float) for value in (*mean, *std))


def test_normalizing_with_its_own_statistics_gives_zero_mean_and_unit_variance():
    images = _set(50).images
    normal = normalize(images, *channel_statistics(images))
    assert normal.dtype == torch.float32
    torch.testing.assert_close(normal.mean(dim=(0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(normal.std(dim=(0, 2, 3), correction=0), torch.ones(3), atol=1e-5, rtol=0)
    assert images.dtype == torch.uint8


def test_a_constant_channel_normalizes_to_zero():
    images = torch.full((3, 1, 4, 4), 9, dtype=torch.uint8)
    assert normalize(images, *channel_statistics(images)).abs().max() < 1e-6


def test_normalizing_refuses_floats_and_the_wrong_number_of_channels():
    with pytest.raises(ValueError, match="uint8"):
        normalize(torch.zeros(1, 1, 2, 2), (0.5,), (0.5,))
    with pytest.raises(ValueError, match="3 channels"):
        normalize(torch.zeros(1, 3, 2, 2, dtype=torch.uint8), (0.5,), (0.5,))
