"""The image to push through the flow: a drawn sample, or the user's own."""

from pathlib import Path

import numpy as np

from resperturb.errors import UsageError
from resperturb_reproduction.sde.field import Array

# Drawn for this package from shapes and gradients, so it carries no photographer's rights.
SAMPLE = Path(__file__).parent / "sample.png"
LONGEST_SIDE = 192
SHORTEST_SIDE = 8


def load_image(path: Path) -> Array:
    """Read an image as RGB in [0, 1], made smaller if a side is longer than 192 pixels.

    >>> load_image(SAMPLE).shape
    (120, 160, 3)
    """
    from PIL import Image, ImageOps

    if not path.is_file():
        raise UsageError(f"There is no image file at {path}.")
    try:
        with Image.open(path) as opened:
            if opened.mode.startswith(("I", "F")):
                raise UsageError(f"{path} has more than 8 bits a channel: save it as an 8-bit image first.")
            upright = ImageOps.exif_transpose(opened).convert("RGBA")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{path} cannot be read as an image: {error}.") from error
    paper = Image.new("RGBA", upright.size, "white")
    paper.alpha_composite(upright)
    picture = paper.convert("RGB")
    picture.thumbnail((LONGEST_SIDE, LONGEST_SIDE), Image.Resampling.LANCZOS)
    if min(picture.size) < SHORTEST_SIDE:
        raise UsageError(
            f"{path} is {upright.width} x {upright.height} pixels, {picture.width} x {picture.height} as used here: "
            f"both sides must keep at least {SHORTEST_SIDE} pixels."
        )
    pixels: Array = np.asarray(picture, dtype=np.float64) / 255.0
    return pixels


def check_image(image: Array) -> Array:
    """Return ``image`` as float64 if it is one: (rows, cols, channels), values in [0, 1], not black everywhere."""
    pixels = np.asarray(image, dtype=np.float64)
    if pixels.ndim != 3 or 0 in pixels.shape:
        raise UsageError(f"An image has the shape (rows, columns, channels), not {pixels.shape}.")
    if not (pixels.min() >= 0 and pixels.max() <= 1):
        raise UsageError("The values of the image must lie in [0, 1]: gamma is measured on that scale.")
    if not pixels.any():
        raise UsageError("The image is black everywhere: there is nothing to recover.")
    return pixels
