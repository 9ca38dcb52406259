import numpy as np
import pytest
import torch

from resperturb.data.images import ImageSet


def _set(n: int = 6, seed: int = 0, groups: np.ndarray | None = None, name: str = "some") -> ImageSet:
    pixels = torch.randint(0, 256, (n, 3, 5, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    return ImageSet(pixels, torch.arange(n) % 2, ("a", "b"), groups, name)


def test_properties_describe_the_tensor():
    images = _set()
    assert (len(images), images.num_classes, images.channels, images.size) == (6, 2, 3, (5, 4))


def test_select_takes_images_labels_and_groups_in_the_given_order():
    images = _set(groups=np.array(list("uvwxyz")))
    chosen = images.select(np.array([4, 1]))
    assert torch.equal(chosen.images, images.images[[4, 1]])
    assert chosen.labels.tolist() == [0, 1]
    assert chosen.groups is not None
    assert chosen.groups.tolist() == ["y", "v"]
    assert chosen.classes == images.classes


def test_the_fingerprint_depends_on_what_a_result_depends_on_and_on_nothing_else():
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
