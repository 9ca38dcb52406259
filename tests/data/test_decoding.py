import io
import struct
import warnings
import zlib

import numpy as np
import pytest
import torch
from PIL import Image, ImageFile

from resperturb.data import storage
from resperturb.data.decoding import Decoder
from resperturb.errors import UsageError

RNG = np.random.default_rng(0)
COLOUR = RNG.integers(0, 256, (12, 12, 3), dtype=np.uint8)
GREY = COLOUR[..., 0]


def encode(image, kind="PNG", **options) -> bytes:
    file = io.BytesIO()
    (Image.fromarray(image) if isinstance(image, np.ndarray) else image).save(file, kind, **options)
    return file.getvalue()


def decode(encoded, where="x", **options) -> np.ndarray:
    return Decoder(**options).decode(encoded, where)


def decode_all(encoded, where, **options) -> torch.Tensor:
    return torch.from_numpy(Decoder(**options).into(storage.in_memory, encoded, where))


def test_grey_and_colour_come_back_bit_for_bit():
    assert np.array_equal(decode(encode(GREY), "x"), GREY)
    assert np.array_equal(decode(encode(COLOUR), "x"), COLOUR)
    assert np.array_equal(decode(encode(COLOUR, "WEBP", lossless=True), "x"), COLOUR)


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_sixteen_bits_are_scaled_from_the_full_range(kind):
    values = np.array([[0, 128, 129, 257, 32768, 65406, 65407, 65535]], dtype=np.uint16)
    assert decode(encode(values, kind), "x").tolist() == [[0, 0, 1, 1, 128, 254, 255, 255]]


def test_twelve_bit_pgm_is_scaled_by_the_range_it_declares():
    file = b"P5 2 1 4095\n" + np.array([4095, 0], dtype=">u2").tobytes()
    assert decode(file, "x").tolist() == [[255, 0]]


def test_a_grey_palette_is_grey_and_a_coloured_one_colour():
    grey = Image.fromarray(GREY).convert("P")
    assert np.array_equal(decode(encode(grey), "x"), GREY)
    coloured = Image.new("P", (2, 1))
    coloured.putpalette([255, 0, 0, 0, 255, 0])
    coloured.putpixel((1, 0), 1)
    assert decode(encode(coloured), "x").tolist() == [[[255, 0, 0], [0, 255, 0]]]


def test_transparent_pixels_are_laid_on_white():
    rgba = np.array([[[10, 20, 30, 255], [10, 20, 30, 0]]], dtype=np.uint8)
    assert decode(encode(rgba), "x").tolist() == [[[10, 20, 30], [255, 255, 255]]]
    grey_alpha = Image.merge("LA", (Image.new("L", (1, 1), 7), Image.new("L", (1, 1), 0)))
    assert decode(encode(grey_alpha), "x").tolist() == [[255]]
    palette = Image.new("P", (2, 1))
    palette.putpalette([255, 0, 0, 0, 255, 0])
    palette.putpixel((1, 0), 1)
    assert decode(encode(palette, transparency=0), "x").tolist() == [[[255, 255, 255], [0, 255, 0]]]


def test_bilevel_is_black_and_white():
    assert decode(encode(Image.fromarray(np.array([[True, False]]))), "x").tolist() == [[255, 0]]


def test_cmyk_is_converted_to_colour():
    cyan = Image.new("CMYK", (8, 8), (255, 0, 0, 0))
    assert decode(encode(cyan, "TIFF"), "x")[0, 0].tolist() == [0, 255, 255]
    assert decode(encode(cyan, "JPEG"), "x").shape == (8, 8, 3)


def test_floating_point_pixels_are_refused_because_their_range_is_unknown():
    with pytest.raises(UsageError, match=r"scan\.tif holds 32-bit or signed pixels"):
        decode(encode(np.zeros((2, 2), dtype=np.float32), "TIFF"), "scan.tif")


def test_exif_orientation_is_applied():
    picture = Image.fromarray(GREY[:3, :5])
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: show it rotated clockwise by 90 degrees
    assert np.array_equal(decode(encode(picture, exif=exif), "x"), np.rot90(GREY[:3, :5], -1))


def test_resizing_antialiases():
    stripes = np.tile(np.array([0, 255], dtype=np.uint8), (32, 16))
    small = decode(encode(stripes), "x", image_size=8)
    assert small.shape == (8, 8)
    # Averaged, the stripes are mid-grey; picking pixels would give all black or all white.
    assert np.abs(small[:, 1:-1].astype(int) - 128).max() < 16


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM"])
def test_no_truncated_image_is_ever_padded(kind):
    whole = encode(COLOUR, kind)
    expected = decode_all([whole], ["x"])
    refusals = []
    for length in range(0, len(whole), 7):
        try:
            result = decode_all([whole[:length]], ["scan 7"])
        except UsageError as error:
            refusals.append(str(error))
        else:  # only the end of the file was lost, and no pixel
            assert torch.equal(result, expected)
    assert len(refusals) > len(whole) / 7 * 0.9
    assert all("scan 7 is corrupt, truncated or no image" in refusal for refusal in refusals)


def test_truncated_images_are_refused_even_where_the_program_lets_pillow_pad_them(monkeypatch):
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    with pytest.raises(UsageError, match="truncated"):
        decode_all([encode(COLOUR, "JPEG")[:-100]], ["x"])
    assert ImageFile.LOAD_TRUNCATED_IMAGES is True


@pytest.mark.parametrize("junk", [b"", b"hello", b"\x89PNG\r\n\x1a\n", b"GIF89a"])
def test_a_file_that_is_no_image_is_refused_by_name(junk):
    with pytest.raises(UsageError, match="row 3"):
        decode_all([encode(GREY), junk], ["row 2", "row 3"])


def test_a_flipped_bit_in_a_png_is_noticed():
    broken = bytearray(encode(COLOUR))
    broken[len(broken) // 2] ^= 1
    with pytest.raises(UsageError, match="corrupt"):
        decode_all([bytes(broken)], ["x"])


def _png_claiming(width: int, height: int) -> bytes:
    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [8_000, 11_000, 50_000])
def test_decompression_bombs_are_refused_before_they_unpack_and_without_warnings(side):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UsageError, match=r"bomb\.png.*decompression bomb"):
            decode_all([_png_claiming(side, side)], ["bomb.png"])


def test_one_colour_image_makes_the_whole_set_colour():
    images = [GREY] * 70 + [COLOUR] + [GREY] * 70  # the colour comes after the first block
    decoded = decode_all([encode(image) for image in images], ["x"] * len(images))
    assert decoded.shape == (141, 3, 12, 12)
    assert decoded.is_contiguous()
    for index, image in enumerate(images):
        expected = image if image.ndim == 3 else np.stack([image] * 3, axis=-1)
        assert np.array_equal(decoded[index].permute(1, 2, 0), expected)


def test_all_grey_stays_one_channel_and_order_is_kept_over_blocks():
    images = RNG.integers(0, 256, (3000, 3, 2), dtype=np.uint8)
    decoded = decode_all([encode(image) for image in images], ["x"] * 3000)
    assert decoded.shape == (3000, 1, 3, 2)
    assert np.array_equal(decoded[:, 0], images)


def test_mixed_sizes_are_refused_with_the_sizes_seen():
    images = [encode(GREY), encode(GREY), encode(GREY[:4, :5])]
    with pytest.raises(UsageError, match=r"the first is 12x12, c\.png is 5x4.*--image-size"):
        decode_all(images, ["a.png", "b.png", "c.png"])
    assert decode_all(images, ["a", "b", "c"], image_size=8).shape == (3, 1, 8, 8)


def test_arrays_are_resized_like_files():
    batch = RNG.integers(0, 256, (2, 12, 12, 3), dtype=np.uint8)
    from_files = decode_all([encode(image) for image in batch], ["a", "b"], image_size=5)
    assert torch.equal(decode_all(batch, ["a", "b"], image_size=5), from_files)
    assert np.array_equal(decode_all(batch, ["a", "b"], image_size=12).permute(0, 2, 3, 1), batch)


def test_more_images_than_memory_are_refused_before_allocating(monkeypatch):
    monkeypatch.setattr(storage, "physical_memory", lambda: 256)
    with pytest.raises(UsageError, match=r"3 images of 12x12.*--image-size"):
        decode_all([encode(GREY)] * 3, ["x"] * 3)
