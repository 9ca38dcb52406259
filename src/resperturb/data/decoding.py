"""From encoded images to one uint8 tensor: every kind of image is converted, none is guessed or padded."""

import io
import math
import os
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from PIL import Image, ImageFile, ImageOps, UnidentifiedImageError

from resperturb.errors import UsageError

Pixels: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]
Encoded: TypeAlias = bytes | Path | Pixels

# Far above any image a residual network trains on, far below what an image bomb unpacks to.
MAX_PIXELS = 50_000_000
_GREY_MODES = ("1", "L")
_BLOCK = 64
_BYTES_PER_BLOCK = 1 << 22


def decode(encoded: bytes | Path, where: str, image_size: int | None = None) -> Pixels:
    """Decode one image to uint8 ``[H, W]`` (grey) or ``[H, W, 3]`` (colour); ``where`` names it in errors.

    The EXIF orientation is applied; 16-bit values are scaled from their full range; transparent pixels are laid on
    white; with ``image_size`` the image is resized, antialiased, to that square.

    >>> file = io.BytesIO()
    >>> Image.new("I;16", (2, 1), 65535).save(file, "PNG")
    >>> decode(file.getvalue(), "example").tolist()
    [[255, 255]]
    """
    try:
        with Image.open(io.BytesIO(encoded) if isinstance(encoded, bytes) else encoded) as image:
            _refuse_bomb(image, where)
            image.load()
            ImageOps.exif_transpose(image, in_place=True)
            return np.asarray(_resized(_eight_bit(image, where), image_size))
    except UsageError:
        raise
    except FileNotFoundError:
        raise UsageError(f"The image of {where} is not there.") from None
    except PermissionError:
        raise UsageError(f"The image of {where} may not be read: check its permissions.") from None
    except Image.DecompressionBombError:
        raise UsageError(_bomb_message(where)) from None
    except Exception as error:  # Pillow's decoders raise many kinds, SyntaxError and struct.error among them
        raise UsageError(
            f"The image of {where} is corrupt, truncated or no image: {_reason(error)}. Replace or remove it."
        ) from None


def decode_all(
    encoded: Iterable[Encoded] | Pixels, where: Sequence[str], image_size: int | None = None
) -> torch.Tensor:
    """Decode many images to uint8 ``[N, C, H, W]``: one channel if all are grey, three if any is in colour.

    ``encoded`` may also be an array ``[N, H, W]`` or ``[N, H, W, C]`` that is decoded already.

    >>> decode_all(np.zeros((2, 4, 4), dtype=np.uint8), ["a", "b"]).shape
    torch.Size([2, 1, 4, 4])
    """
    return torch.from_numpy(decode_into(in_memory, encoded, where, image_size))


def decode_into(
    allocate: Callable[[tuple[int, ...]], Pixels],
    encoded: Iterable[Encoded] | Pixels,
    where: Sequence[str],
    image_size: int | None = None,
) -> Pixels:
    """Decode as :func:`decode_all` does, into an array of the shape that ``allocate`` is given.

    It is called once more if a set that begins in grey turns out to have colour. ``encoded`` is read once, in order.
    """
    if isinstance(encoded, np.ndarray) and image_size in (None, *_square(encoded)):
        return _channels_first(encoded, allocate)

    def one(index: int, item: Encoded) -> Pixels:
        if isinstance(item, np.ndarray):
            return _with_channels(np.asarray(_resized(Image.fromarray(item), image_size)))
        return _with_channels(decode(item, where[index], image_size))

    items = enumerate(encoded)
    with _strict_pillow():
        first = one(*next(items))
        out = allocate((len(where), *first.shape))
        out[0] = first
        for index, pixels in _decoded(one, items, first.nbytes):
            if pixels.shape[1:] != first.shape[1:]:
                raise UsageError(_mixed_sizes(encoded, where[index]))
            if len(pixels) > out.shape[1]:  # the first colour image of a set that began in grey
                grey, out = out, allocate((len(where), *pixels.shape))
                for start in range(0, index, _BLOCK):
                    out[start : min(start + _BLOCK, index)] = grey[start : min(start + _BLOCK, index)]
            out[index] = pixels
    return out


def _decoded(
    one: Callable[[int, Encoded], Pixels], items: Iterator[tuple[int, Encoded]], image_bytes: int
) -> Iterator[tuple[int, Pixels]]:
    """Decode in threads, in order: small images many to a task, and no more ahead than a little memory holds."""
    threads = _threads()
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


def in_memory(shape: tuple[int, ...]) -> Pixels:
    """Allocate ``[N, C, H, W]``, or say that this machine could never hold it."""
    needed = math.prod(shape)
    try:
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on every system
        there = needed
    if needed > there:
        raise UsageError(
            f"{shape[0]:,} images of {shape[3]}x{shape[2]} need {needed / 2**30:,.0f} GiB, and this machine has "
            f"{there / 2**30:,.0f}: keep them on disk (--data-in disk), or give a smaller image size (--image-size) "
            "or fewer images."
        )
    return np.empty(shape, dtype=np.uint8)


def _eight_bit(image: Image.Image, where: str) -> Image.Image:
    """Convert to mode L or RGB."""
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
        sixteen = np.asarray(image).astype(np.uint32)
        return Image.fromarray(((sixteen + 128) // 257).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise UsageError(
            f"The image of {where} holds 32-bit pixels, which have no agreed range: save it with 8 or 16 bits."
        )
    if image.mode in _GREY_MODES and "transparency" not in image.info:
        return image if image.mode == "L" else image.convert("L")
    if "transparency" in image.info or image.mode in ("RGBA", "LA", "PA", "La", "RGBa"):
        clear = image.convert("RGBA")
        white = Image.new("RGBA", clear.size, (255, 255, 255, 255))
        flat = Image.alpha_composite(white, clear).convert("RGB")
        return flat if image.mode.startswith("RGB") else _grey_if_grey(flat)
    if image.mode == "P":
        return _grey_if_grey(image.convert("RGB"))
    return image if image.mode == "RGB" else image.convert("RGB")


def _grey_if_grey(image: Image.Image) -> Image.Image:
    # A palette does not say whether it is grey; its colours do.
    pixels = np.asarray(image)
    grey = (pixels[..., 0] == pixels[..., 1]).all() and (pixels[..., 1] == pixels[..., 2]).all()
    return image.getchannel(0) if grey else image


def _resized(image: Image.Image, image_size: int | None) -> Image.Image:
    if image_size is None or image.size == (image_size, image_size):
        return image
    return image.resize((image_size, image_size), Image.Resampling.BILINEAR)  # Pillow antialiases


def _with_channels(pixels: Pixels) -> Pixels:
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def _channels_first(pixels: Pixels, allocate: Callable[[tuple[int, ...]], Pixels]) -> Pixels:
    turned = pixels[:, None] if pixels.ndim == 3 else pixels.transpose(0, 3, 1, 2)
    if allocate is in_memory:
        return np.ascontiguousarray(turned)
    out = allocate(turned.shape)
    out[:] = turned
    return out


def _square(pixels: Pixels) -> tuple[int, ...]:
    return (int(pixels.shape[1]),) if pixels.shape[1] == pixels.shape[2] else ()


def _refuse_bomb(image: Image.Image, where: str) -> None:
    if image.width * image.height > MAX_PIXELS:
        raise UsageError(_bomb_message(where, f" ({image.width}x{image.height})"))


def _bomb_message(where: str, size: str = "") -> str:
    return (
        f"The image of {where}{size} unpacks to more than {MAX_PIXELS:,} pixels, as a decompression bomb does: "
        "make it smaller or remove it."
    )


def _mixed_sizes(encoded: Iterable[Encoded], odd: str) -> str:
    seen = Counter(_size_of(item) for item in encoded)
    common = ", ".join(f"{size} ({count})" for size, count in seen.most_common(4))
    more = f" and {len(seen) - 4} more" if len(seen) > 4 else ""
    return (
        f"The images differ in size (width x height): {common}{more}; the first that differs is {odd}. "
        "Give an image size (--image-size) and they are resized to it."
    )


def _size_of(item: Encoded) -> str:
    if isinstance(item, np.ndarray):
        return f"{item.shape[1]}x{item.shape[0]}"
    try:
        with Image.open(io.BytesIO(item) if isinstance(item, bytes) else item) as image:
            width, height = image.size
            if image.getexif().get(0x0112, 1) >= 5:  # orientations that swap the sides
                width, height = height, width
            return f"{width}x{height}"
    except Exception:
        return "unreadable"


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "it is in no image format known here"
    return str(error).strip().rstrip(".") or type(error).__name__


def _threads() -> int:
    return min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


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
