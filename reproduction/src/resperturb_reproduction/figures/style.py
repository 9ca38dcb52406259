"""One look for every figure: legible in print, safe for the colour-blind, the same file from the same numbers."""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resperturb.files import write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's palette, told apart under every common kind of colour blindness.
BLACK = "#000000"
ORANGE = "#B87700"  # darker than theirs: a line needs a contrast of 3 on white
SKY_BLUE = "#56B4E9"
GREEN = "#009E73"
YELLOW = "#F0E442"
BLUE = "#0072B2"
VERMILLION = "#D55E00"
PURPLE = "#CC79A7"
PALETTE = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY_BLUE, BLACK, YELLOW)
GREY = "#6E6E6E"
INK = "#333333"

PAGE = 7.0  # inches

_STYLE: dict[str, object] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "mathtext.fontset": "dejavusans",
    "font.size": 8.0,
    "axes.titlesize": 8.5,
    "axes.titlelocation": "left",
    "axes.labelsize": 8.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#BBBBBB",
    "grid.linewidth": 0.5,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.0,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "figure.dpi": 100.0,
    "savefig.dpi": 200.0,
    "savefig.facecolor": "white",
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.alpha": 0.5,
    "svg.hashsalt": "resperturb",
    "svg.fonttype": "path",
}

_LARGER: dict[Any, Any] = {
    "font.size": 9.0,
    "axes.labelsize": 9.0,
    "axes.titlesize": 9.0,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
}
_UNDATED: dict[str, dict[str, str | None]] = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}


@contextmanager
def paper_style() -> Iterator[None]:
    """Draw with the project's style; matplotlib's own settings come back afterwards.

    >>> import matplotlib
    >>> with paper_style():
    ...     matplotlib.rcParams["savefig.dpi"]
    200.0
    """
    import matplotlib
    from cycler import cycler

    # Whatever the user's matplotlibrc says must not leak into a figure.
    settings: dict[Any, Any] = dict(matplotlib.rcParamsDefault)
    settings.update(_STYLE, **{"axes.prop_cycle": cycler(color=PALETTE)})
    settings.pop("backend", None)
    with matplotlib.rc_context(settings):
        yield


@contextmanager
def page_style() -> Iterator[None]:
    """Draw with letters that stay legible where a figure of 5.5 inches fills the column of a page."""
    import matplotlib

    with paper_style(), matplotlib.rc_context(_LARGER):
        yield


def save_figure(
    figure: "Figure", path_without_suffix: Path, kinds: Sequence[str] = ("png", "svg")
) -> tuple[Path, ...]:
    """Write ``figure`` as PNG (200 dpi) and SVG, or as one of them, and return the paths.

    The same figure gives the same bytes, and a killed run leaves no half-written file.
    """
    base = Path(path_without_suffix)
    paths = tuple(base.with_name(f"{base.name}.{kind}") for kind in kinds)
    with paper_style():
        # One layout for both files: otherwise each renderer makes its own, and the second starts from the first.
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        for path, kind in zip(paths, kinds, strict=True):
            write_bytes(path, _bytes(figure, kind, _UNDATED[kind]))
    return paths


def _bytes(figure: "Figure", kind: str, metadata: dict[str, str | None]) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format=kind, metadata=metadata)
    return content.getvalue()
