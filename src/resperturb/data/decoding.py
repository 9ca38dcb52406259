"""From encoded images to one uint8 array: every kind of image is converted and counted, none is guessed or padded.

Hugging Face `datasets` hands whatever it finds to ``PIL.Image.open``, which starts Ghostscript on PostScript, and
gives back images of any depth and size; tests/data/test_datasets.py shows it. So decoding is ours.
"""

import io
import os
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from PIL import Image, ImageFile, ImageOps, UnidentifiedImageError

from resperturb.data.dicom import dicom_pixels, is_dicom
from resperturb.data.paths import one_line, open_regular
from resperturb.data.rows import Pixels, release_pages
from resperturb.engine import usable_cores
from resperturb.errors import UsageError

Encoded: TypeAlias = bytes | Path | np.ndarray[Any, Any]

_ORIENTATION = 0x0112  # EXIF
_TIFF_BITS, _TIFF_MAX_VALUE = 258, 281
# The formats that are decoded in this process. Pillow knows more, and runs Ghostscript for PostScript.
FORMATS = ("PNG", "JPEG", "JPEG2000", "BMP", "GIF", "TIFF", "WEBP", "PPM")
# Far above any image a residual network trains on, far below what an image bomb unpacks to.
MAX_PIXELS = 50_000_000
_GREY_MODES = ("1", "L")
_BLOCK = 64
_BYTES_PER_BLOCK = 1 << 22


@dataclass
class Tally:
    """What was done to how many images, and the largest 16-bit value whose range no file declares (0: there is none).

    >>> tally = Tally()
    >>> tally.count("turned upright")
    >>> dict(tally.converted)
    {'turned upright': 1}
    """

    converted: Counter[str] = field(default_factory=Counter)
    brightest: int = 0
    _lock: Lock = field(default_factory=Lock, repr=False)

    def count(self, what: str) -> None:
        """Count an image to which ``what`` was done."""
        with self._lock:
            self.converted[what] += 1

    def add(self, other: "Tally") -> None:
        """Add what was counted elsewhere."""
        self.converted.update(other.converted)
        self.saw(other.brightest)

    def saw(self, value: int) -> None:
        """Note a 16-bit value of no declared range."""
        with self._lock:
            self.brightest = max(self.brightest, value)


@dataclass(frozen=True)
class Decoder:
    """How images become uint8: resized and cropped to ``image_size``, 16-bit values out of ``bits``.

    Values of more than 8 bits are scaled from the range that was asked for (``bits``), or that the file declares
    (DICOM, PNG's sBIT, TIFF's tags), or else from all 16 bits. The EXIF orientation is applied; transparent pixels
    are laid on white. An image of another size is resized so that its short side is ``image_size``, antialiased, and
    its centre is taken, as torchvision's ``Resize`` and ``CenterCrop`` do.

    >>> file = io.BytesIO()
    >>> Image.new("I;16", (2, 1), 4095).save(file, "PNG")
    >>> Decoder().decode(file.getvalue(), "example").tolist()
    [[16, 16]]
    >>> Decoder(bits=12).decode(file.getvalue(), "example").tolist()
    [[255, 255]]
    """

    image_size: int | None = None
    bits: int | None = None
    tally: Tally = field(default_factory=Tally, compare=False)

    def decode(self, encoded: Encoded, where: str) -> Pixels:
        """Decode one image to uint8 ``[H, W]`` (grey) or ``[H, W, 3]`` (colour); ``where`` names it in errors."""
        if isinstance(encoded, np.ndarray):
            values = self._eight_bit_values(encoded, where)
            if self.image_size is None or values.shape[:2] == (self.image_size, self.image_size):
                return values
            return np.asarray(self._sized(Image.fromarray(values), where))
        try:
            with io.BytesIO(encoded) if isinstance(encoded, bytes) else open_regular(encoded) as file:
                if is_dicom(file):
                    pixels, bits = dicom_pixels(file, where, lambda width, height: _refuse_bomb(width, height, where))
                    image = Image.fromarray(self._eight_bit_values(pixels, where, bits))
                else:
                    image = self._picture(file, where)
                return np.asarray(self._sized(image, where))
        except UsageError:
            raise
        except FileNotFoundError:
            raise UsageError(f"The image of {where} is not there.") from None
        except PermissionError:
            raise UsageError(f"The image of {where} may not be read: check its permissions.") from None
        except Image.DecompressionBombError:
            raise UsageError(_bomb_message(where)) from None
        except Exception as error:  # the decoders raise many kinds, SyntaxError and struct.error among them
            why = one_line(error)
            if isinstance(error, UnidentifiedImageError):
                why = f"it is in no format known here ({', '.join(FORMATS)}, DICOM)"
            raise UsageError(
                f"The image of {where} is corrupt, truncated or no image: {why}. Replace or remove it."
            ) from None

    def into(
        self,
        allocate: Callable[[tuple[int, ...]], Pixels],
        encoded: Iterable[Encoded],
        where: Sequence[str],
    ) -> Pixels:
        """Decode all images into an array ``[N, C, H, W]`` of the shape that ``allocate`` is given.

        There is one channel if all are grey, three if any is in colour: then ``allocate`` is called once more when
        the first of these comes. ``encoded`` is read once, in order.
        """

        def one(index: int, item: Encoded) -> Pixels:
            pixels = self.decode(item, where[index])
            return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)

        items = enumerate(encoded)
        with _strict_pillow():
            first = one(*next(items))
            out = allocate((len(where), *first.shape))
            out[0] = first
            written = 0
            for index, pixels in _decoded(one, items, first.nbytes):
                if pixels.shape[1:] != first.shape[1:]:
                    raise UsageError(
                        "The images differ in size (width x height): the first is "
                        f"{first.shape[2]}x{first.shape[1]}, {where[index]} is {pixels.shape[2]}x{pixels.shape[1]}. "
                        "Give an image size (--image-size): they are resized to it, and their centres taken."
                    )
                if len(pixels) > out.shape[1]:  # the first colour image of a set that began in grey
                    grey, out = out, allocate((len(where), *pixels.shape))
                    for start in range(0, index, _BLOCK):
                        out[start : min(start + _BLOCK, index)] = grey[start : min(start + _BLOCK, index)]
                out[index] = pixels
                written = release_pages(out, written + pixels.nbytes)
        return out

    def _eight_bit_values(self, values: np.ndarray[Any, Any], where: str, declared: int | None = None) -> Pixels:
        """Scale integers of up to 16 bits to 8."""
        if values.dtype == np.uint8:
            return values
        bits, why = (self.bits, "asked for") if self.bits else (declared, "declared") if declared else (16, "all 16")
        top, highest = 2**bits - 1, int(values.max(initial=0))
        if highest > top:
            raise UsageError(
                f"The image of {where} holds the value {highest}, beyond the {bits} bits (0 to {top}) that were "
                f"{why}: give --bits {highest.bit_length()}."
            )
        if why == "all 16":
            self.tally.saw(highest)
        self.tally.count(f"from {bits} bits to 8" + ("" if why == "all 16" else f" ({why})"))
        scaled: Pixels = ((values.astype(np.uint32) * 255 + top // 2) // top).astype(np.uint8)
        return scaled

    def _picture(self, file: BinaryIO, where: str) -> Image.Image:
        with Image.open(file, formats=FORMATS) as image:
            _refuse_bomb(image.width, image.height, where)
            if image.format in ("TIFF", "GIF") and image.is_animated:  # type: ignore[attr-defined]
                self.tally.count("of several frames, the first taken")
            deep_colour = any(";16" in str(tile[3]) for tile in image.tile) and not image.mode.startswith("I")
            declared = _declared_bits(image, file)
            image.load()
            if image.getexif().get(_ORIENTATION, 1) != 1:
                ImageOps.exif_transpose(image, in_place=True)
                self.tally.count("turned upright")
            if deep_colour:  # Pillow keeps the upper byte: that is the full range, and no other can be had
                if self.bits not in (None, 16):
                    raise UsageError(
                        f"The image of {where} has 16 bits in each colour, which cannot be read as {self.bits}: "
                        "convert it to 8 bits first."
                    )
                self.tally.count("from 16 bits to 8")
                colours = image.getextrema()[:3]
                self.tally.saw(max(int(high) for _, high in colours) * 256 + 255)  # type: ignore[misc]
            return self._eight_bit(image, where, declared)

    def _sized(self, image: Image.Image, where: str) -> Image.Image:
        size = self.image_size
        if size is None or image.size == (size, size):
            return image
        width, height = image.size
        if width <= height:
            width, height = size, int(size * height / width)
        else:
            width, height = int(size * width / height), size
        if width * height > MAX_PIXELS:
            raise UsageError(
                f"The image of {where} is {image.width}x{image.height}, too long to be resized to a short side of "
                f"{size} pixels: crop or remove it."
            )
        left, top = round((width - size) / 2), round((height - size) / 2)
        self.tally.count("resized" + (" and cropped to the centre" if width != height else ""))
        # Pillow antialiases.
        resized = image.resize((width, height), Image.Resampling.BILINEAR)
        return resized.crop((left, top, left + size, top + size))

    def _eight_bit(self, image: Image.Image, where: str, declared: int | None) -> Image.Image:
        """Convert to mode L or RGB."""
        if image.mode == "I" and image.format == "PPM":  # Pillow has scaled it from the range that it declares
            self.tally.count("from 16 bits to 8 (declared)")
            return Image.fromarray(((np.asarray(image) + 128) // 257).astype(np.uint8))
        if image.mode.startswith("I;16"):
            return Image.fromarray(self._eight_bit_values(np.asarray(image), where, declared))
        if image.mode in ("I", "F"):
            raise UsageError(
                f"The image of {where} holds 32-bit or signed pixels, which have no agreed range: save it with 8 or "
                "16 bits."
            )
        if image.mode in _GREY_MODES and "transparency" not in image.info:
            return image if image.mode == "L" else image.convert("L")
        if "transparency" in image.info or image.mode in ("RGBA", "LA", "PA", "La", "RGBa"):
            self.tally.count("transparent pixels laid on white")
            clear = image.convert("RGBA")
            white = Image.new("RGBA", clear.size, (255, 255, 255, 255))
            flat = Image.alpha_composite(white, clear).convert("RGB")
            return flat if image.mode.startswith("RGB") else _grey_if_grey(flat)
        if image.mode == "P":
            return _grey_if_grey(image.convert("RGB"))
        if image.mode != "RGB":
            self.tally.count(f"from {image.mode} to RGB")
        return image if image.mode == "RGB" else image.convert("RGB")


def _declared_bits(image: Image.Image, file: BinaryIO) -> int | None:
    """How many bits a 16-bit image says its values have: TIFF in its tags, PNG in its chunk sBIT."""
    if image.format == "TIFF":
        tags: Any = image.tag_v2  # type: ignore[attr-defined]
        stored = int(np.max(tags.get(_TIFF_BITS, 16)))
        top = int(np.max(tags.get(_TIFF_MAX_VALUE, 0)))
        return stored if stored < 16 else top.bit_length() if 255 < top < 2**16 - 1 else None
    if image.format != "PNG" or not image.mode.startswith("I;16"):
        return None
    place = file.tell()
    try:
        file.seek(8)  # the signature
        while len(head := file.read(8)) == 8 and head[4:] not in (b"IDAT", b"IEND"):
            length = int.from_bytes(head[:4], "big")
            if head[4:] == b"sBIT":
                bits = file.read(1)[0]
                return bits if 8 < bits < 16 else None
            file.seek(length + 4, os.SEEK_CUR)  # and its checksum
        return None
    finally:
        file.seek(place)


def _grey_if_grey(image: Image.Image) -> Image.Image:
    # A palette does not say whether it is grey; its colours do.
    pixels = np.asarray(image)
    grey = (pixels[..., 0] == pixels[..., 1]).all() and (pixels[..., 1] == pixels[..., 2]).all()
    return image.getchannel(0) if grey else image


def _refuse_bomb(width: int, height: int, where: str) -> None:
    if width * height > MAX_PIXELS:
        raise UsageError(_bomb_message(where, f" ({width}x{height})"))


def _bomb_message(where: str, size: str = "") -> str:
    return (
        f"The image of {where}{size} unpacks to more than {MAX_PIXELS:,} pixels, as a decompression bomb does: "
        "make it smaller or remove it."
    )


def _decoded(
    one: Callable[[int, Encoded], Pixels], items: Iterator[tuple[int, Encoded]], image_bytes: int
) -> Iterator[tuple[int, Pixels]]:
    """Decode in threads, in order: small images many to a task, and no more ahead than a little memory holds."""
    threads = min(8, usable_cores())
    size = max(1, min(_BLOCK, _BYTES_PER_BLOCK // image_bytes))

    def block(part: list[tuple[int, Encoded]]) -> list[tuple[int, Pixels]]:
        return [(index, one(index, item)) for index, item in part]

    waiting: deque[Future[list[tuple[int, Pixels]]]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            while part := list(islice(items, size)):
                waiting.append(pool.submit(block, part))
                if len(waiting) > 2 * threads:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


@contextmanager
def _strict_pillow() -> Iterator[None]:
    """Make Pillow raise on truncated images, not warn: what it warns of is either harmless or an error here."""
    before = ImageFile.LOAD_TRUNCATED_IMAGES
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = before
