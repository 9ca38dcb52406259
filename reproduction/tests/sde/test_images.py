import numpy as np
import pytest
from PIL import Image
from resperturb_reproduction.sde.images import SAMPLE, load_image

from resperturb.errors import UsageError


def test_the_sample_is_a_picture_with_detail():
    image = load_image(SAMPLE)
    assert image.shape == (120, 160, 3)
    assert len(np.unique((image * 255).astype(int).reshape(-1, 3), axis=0)) > 1000
    # The error of a guess of one colour: what there is to recover.
    assert np.linalg.norm(image - image.mean(axis=(0, 1))) / np.linalg.norm(image) > 0.3


def test_a_png_is_read_exactly(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    assert np.array_equal(load_image(tmp_path / "a.png"), pixels / 255.0)


def test_a_grey_image_becomes_rgb(tmp_path):
    Image.new("L", (12, 9), 51).save(tmp_path / "grey.png")
    assert np.array_equal(load_image(tmp_path / "grey.png"), np.full((9, 12, 3), 0.2))


def test_what_is_transparent_is_white(tmp_path):
    Image.new("RGBA", (10, 10), (0, 0, 0, 0)).save(tmp_path / "clear.png")
    assert np.array_equal(load_image(tmp_path / "clear.png"), np.ones((10, 10, 3)))


def test_a_large_image_is_made_smaller_in_its_proportions(tmp_path):
    Image.new("RGB", (800, 400), "red").save(tmp_path / "large.png")
    assert load_image(tmp_path / "large.png").shape == (96, 192, 3)


def test_a_turned_photograph_is_set_upright(tmp_path):
    photograph = Image.new("RGB", (40, 20), "blue")
    exif = photograph.getexif()
    exif[0x0112] = 6  # the camera was turned by 90 degrees
    photograph.save(tmp_path / "turned.jpg", exif=exif)
    assert load_image(tmp_path / "turned.jpg").shape == (40, 20, 3)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"no image file at .*nothing\.png"):
        load_image(tmp_path / "nothing.png")


def test_a_folder_is_no_image(tmp_path):
    with pytest.raises(UsageError, match="no image file"):
        load_image(tmp_path)


def test_a_file_that_is_no_image_is_refused(tmp_path):
    (tmp_path / "text.png").write_text("not an image")
    with pytest.raises(UsageError, match="cannot be read as an image"):
        load_image(tmp_path / "text.png")


def test_half_an_image_is_refused(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "whole.png")
    content = (tmp_path / "whole.png").read_bytes()
    (tmp_path / "half.png").write_bytes(content[: len(content) // 2])
    with pytest.raises(UsageError, match="cannot be read as an image"):
        load_image(tmp_path / "half.png")


def test_sixteen_bits_are_refused_instead_of_clipped(tmp_path):
    Image.fromarray(np.full((16, 16), 40_000, dtype=np.uint16)).save(tmp_path / "deep.png")
    with pytest.raises(UsageError, match="more than 8 bits"):
        load_image(tmp_path / "deep.png")


@pytest.mark.parametrize("size", [(5, 30), (2000, 20)])
def test_an_image_too_small_to_use_is_refused(tmp_path, size):
    Image.new("RGB", size, "red").save(tmp_path / "thin.png")
    with pytest.raises(UsageError, match="at least 8 pixels"):
        load_image(tmp_path / "thin.png")
