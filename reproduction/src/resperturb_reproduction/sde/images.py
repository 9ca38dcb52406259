"""The image to push through the flow: a drawn sample, or the user's own."""

from pathlib import Path

import numpy as np

from resperturb.errors import UsageError
from resperturb_reproduction.sde.field import Array

SAMPLE_ROWS, SAMPLE_COLS = 120, 160
LONGEST_SIDE = 192
SHORTEST_SIDE = 8
_OVERSAMPLING = 4

# A 5 x 7 alphabet, as much of it as the caption needs: one string a row, '#' is ink.
_LETTERS = {
    "P": ("####.", "#...#", "#...#", "####.", "#....", "#....", "#...."),
    "R": ("####.", "#...#", "#...#", "####.", "#.#..", "#..#.", "#...#"),
    "I": ("###", ".#.", ".#.", ".#.", ".#.", ".#.", "###"),
    "V": ("#...#", "#...#", "#...#", "#...#", "#...#", ".#.#.", "..#.."),
    "A": (".###.", "#...#", "#...#", "#####", "#...#", "#...#", "#...#"),
    "T": ("#####", "..#..", "..#..", "..#..", "..#..", "..#..", "..#.."),
    "E": ("#####", "#....", "#....", "####.", "#....", "#....", "#####"),
}
_CAPTION = "PRIVATE"


def sample_image() -> Array:
    """A drawn portrait before a landscape, with a caption: 120 x 160 RGB in [0, 1], the same on every machine.

    It is computed here from shapes and gradients, so it carries no photographer's rights.

    >>> image = sample_image()
    >>> image.shape, bool(image.min() >= 0), bool(image.max() <= 1)
    ((120, 160, 3), True, True)
    """
    canvas = _Canvas(SAMPLE_ROWS, SAMPLE_COLS)
    _draw_landscape(canvas)
    _draw_person(canvas)
    _draw_caption(canvas, top=103.0, left=86.0, size=1.6)
    return canvas.image()


def load_image(path: Path) -> Array:
    """Read a user's image as RGB in [0, 1], made smaller if a side is longer than 192 pixels."""
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
    """Return ``image`` as float64 if it is one: (rows, cols, channels), values in [0, 1], not black everywhere.

    >>> check_image(np.ones((2, 3, 1))).dtype
    dtype('float64')
    """
    pixels = np.asarray(image, dtype=np.float64)
    if pixels.ndim != 3 or 0 in pixels.shape:
        raise UsageError(f"An image has the shape (rows, columns, channels), not {pixels.shape}.")
    if not (pixels.min() >= 0 and pixels.max() <= 1):
        raise UsageError("The values of the image must lie in [0, 1]: gamma is measured on that scale.")
    if not pixels.any():
        raise UsageError("The image is black everywhere: there is nothing to recover.")
    return pixels


class _Canvas:
    """A picture with hard-edged shapes at four times the resolution, averaged down at the end."""

    def __init__(self, rows: int, cols: int) -> None:
        fine = (np.arange(rows * _OVERSAMPLING) + 0.5) / _OVERSAMPLING
        self.y = fine[:, None]
        self.x = ((np.arange(cols * _OVERSAMPLING) + 0.5) / _OVERSAMPLING)[None, :]
        self.rgb = np.zeros((fine.size, self.x.size, 3))

    def fill(self, mask: Array, colour: tuple[float, float, float], shade: Array | float = 1.0) -> None:
        """Paint ``colour * shade`` where ``mask`` is positive."""
        where = np.broadcast_to(mask > 0, self.rgb.shape[:2])
        paint = np.asarray(colour) * np.broadcast_to(np.asarray(shade, float), self.rgb.shape[:2])[..., None]
        self.rgb[where] = paint[where]

    def ellipse(self, cx: float, cy: float, rx: float, ry: float) -> Array:
        """Positive inside the ellipse, 1 at its centre."""
        inside: Array = 1 - ((self.x - cx) / rx) ** 2 - ((self.y - cy) / ry) ** 2
        return inside

    def image(self) -> Array:
        """The picture in the 256 steps of an ordinary image, which also hides the last bits of a sine."""
        rows, cols = self.y.size // _OVERSAMPLING, self.x.size // _OVERSAMPLING
        blocks = self.rgb.reshape(rows, _OVERSAMPLING, cols, _OVERSAMPLING, 3)
        averaged: Array = np.clip(blocks.mean(axis=(1, 3)), 0.0, 1.0)
        return np.round(averaged * 255.0) / 255.0


def _draw_landscape(canvas: _Canvas) -> None:
    x, y = canvas.x, canvas.y
    dusk = np.clip(y / 80.0, 0.0, 1.0)[..., None]
    canvas.rgb[:] = (1 - dusk) * np.array([0.25, 0.47, 0.80]) + dusk * np.array([0.98, 0.80, 0.58])
    canvas.fill(canvas.ellipse(126.0, 30.0, 11.0, 11.0), (1.0, 0.93, 0.62))
    for cx, cy, rx in ((88.0, 22.0, 13.0), (98.0, 18.0, 10.0), (78.0, 25.0, 9.0)):
        canvas.fill(canvas.ellipse(cx, cy, rx, rx / 2.6), (0.96, 0.95, 0.95))
    far = y - 62.0 + 13.0 * np.sin(x / 17.0) + 5.0 * np.sin(x / 6.1 + 1.0)
    canvas.fill(far, (0.42, 0.48, 0.63), 1.0 + 0.12 * np.sin(x / 2.3 + y / 3.1))
    near = y - 82.0 + 7.0 * np.sin(x / 23.0 + 2.0)
    canvas.fill(near, (0.27, 0.50, 0.26), 0.85 + 0.25 * np.sin(x / 3.7) * np.sin(y / 2.9) + (y - 80.0) / 110.0)
    for cx, base, size in ((92.0, 92.0, 17.0), (150.0, 90.0, 24.0), (138.0, 96.0, 15.0)):
        width = (y - base + size) * 0.34
        canvas.fill(np.minimum(width - np.abs(x - cx), base - y), (0.10, 0.28, 0.17), 1.0 + (x - cx) / 14.0)


def _draw_person(canvas: _Canvas) -> None:
    x, y = canvas.x, canvas.y
    skin, hair, ink = (0.90, 0.70, 0.56), (0.24, 0.14, 0.09), (0.13, 0.09, 0.08)
    light = 0.74 + 0.30 * np.clip((x - 18.0) / 54.0, 0.0, 1.0)
    canvas.fill(canvas.ellipse(46.0, 48.0, 27.0, 33.0), hair, 0.8 + 0.4 * np.sin(x / 1.9 + y / 9.0) ** 2)
    canvas.fill(canvas.ellipse(46.0, 126.0, 44.0, 38.0), (0.70, 0.16, 0.20), light + 0.08 * np.sin(y / 1.6))
    canvas.fill(np.minimum(9.0 - np.abs(x - 46.0), 12.0 - np.abs(y - 84.0)), skin, 0.80 * light)
    canvas.fill(canvas.ellipse(46.0, 96.0, 9.0, 4.5), skin, 0.80 * light)
    canvas.fill(canvas.ellipse(46.0, 54.0, 21.0, 27.0), skin, light)
    fringe = np.minimum(canvas.ellipse(46.0, 48.0, 25.0, 30.0), 36.0 + 4.0 * np.sin(x / 5.0) - y)
    canvas.fill(fringe, hair, 0.9 + 0.4 * np.sin(x / 1.9 + y / 9.0) ** 2)
    for cx in (37.5, 54.5):
        canvas.fill(np.minimum(canvas.ellipse(cx, 47.0, 6.0, 5.0), 44.2 - y), hair)
        canvas.fill(canvas.ellipse(cx, 51.0, 4.6, 2.8), (0.98, 0.98, 0.97))
        canvas.fill(canvas.ellipse(cx + 0.3, 51.0, 2.4, 2.5), (0.20, 0.36, 0.42))
        canvas.fill(canvas.ellipse(cx + 0.3, 51.0, 1.1, 1.2), ink)
    canvas.fill(np.minimum(canvas.ellipse(46.0, 60.0, 3.6, 4.0), y - 59.5), (0.72, 0.48, 0.38))
    canvas.fill(np.minimum(canvas.ellipse(46.0, 66.5, 9.5, 7.0), y - 67.5), (0.62, 0.16, 0.18))
    canvas.fill(np.minimum(canvas.ellipse(46.0, 66.5, 7.6, 3.6), y - 67.5), (0.98, 0.97, 0.95))


def _draw_caption(canvas: _Canvas, top: float, left: float, size: float) -> None:
    rows = [".".join(_LETTERS[letter][row] for letter in _CAPTION) for row in range(7)]
    ink = np.pad(np.array([[mark == "#" for mark in row] for row in rows]), 2)
    r = np.floor((canvas.y - top) / size).astype(int) + 2
    c = np.floor((canvas.x - left) / size).astype(int) + 2
    on_plate = (r >= 0) & (r < ink.shape[0]) & (c >= 0) & (c < ink.shape[1])
    inked = ink[np.clip(r, 0, ink.shape[0] - 1), np.clip(c, 0, ink.shape[1] - 1)]
    canvas.fill(on_plate.astype(float), (0.97, 0.96, 0.90))
    canvas.fill((on_plate & inked).astype(float), (0.10, 0.12, 0.25))
