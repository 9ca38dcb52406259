"""Draw the figure of the benchmark: the cost of each way to train compared with a plain loop."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from resperturb_reproduction.figures.style import BLUE, GREY, PAGE, VERMILLION, paper_style

from benchmarks.bench import WAYS

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def speed_figure(result: Mapping[str, Any]) -> "Figure":
    """Draw bars of the time of a step over the plain loop's, one panel per network; En5 is five networks."""
    from matplotlib.figure import Figure

    networks = result["networks"]
    names = [name for name in networks[0]["milliseconds"] if not name.startswith("prediction")]
    with paper_style():
        figure = Figure(figsize=(PAGE, 0.9 + 0.26 * len(names)))
        layout: Any = figure.get_layout_engine()
        layout.set(w_pad=0.16)  # letters are wider where it is saved
        panels = figure.subplots(1, len(networks), sharey=True, squeeze=False)[0]
        for axes, network in zip(panels, networks, strict=True):
            plain = network["milliseconds"][network["plain"]]
            # A variant that was not measured on a network has no bar.
            values = [network["milliseconds"].get(name, 0.0) / plain for name in names]
            bars = axes.barh([_label(name) for name in names], values, color=[_colour(name) for name in names])
            axes.bar_label(bars, [f" {value:.2f}" if value else "" for value in values], fontsize=7.5)
            axes.axvline(1, color=GREY, linestyle=":", zorder=0)
            axes.grid(axis="y", visible=False)
            axes.set_xlim(0, 1.15 * max(values))
            size = network["image_size"]
            axes.set_xlabel(f"time of a step / plain ({network['batch_size']} images of {size}x{size})")
            axes.set_title(f"{network['model']}: plain {plain:.0f} ms")
        panels[0].invert_yaxis()
        figure.draw_without_rendering()  # the first layout does not know yet how long the names are
    return figure


def _label(name: str) -> str:
    return WAYS[name][0] if name in WAYS else name.replace("_", " ")  # results may be older than the ways


def _colour(name: str) -> str:
    if name.startswith("plain"):
        return GREY
    return VERMILLION if name.startswith(("dpsgd", "opacus")) else BLUE
