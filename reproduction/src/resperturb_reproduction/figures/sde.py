"""The panels of an image that is pushed through the ODE and an SDE, and back."""

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from resperturb_reproduction.figures.style import PAGE, paper_style
from resperturb_reproduction.sde.reversal import Attacker, ReversalResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def reversal_figure(result: ReversalResult) -> "Figure":
    """The paper's five panels (a) to (e), then what three stronger attackers recover from the same features."""
    from matplotlib.figure import Figure

    found = result.recoveries
    panels = (
        (r"(a) $x(0)$, the original", "", result.original),
        (r"(b) $x(1)$, ODE", r"features, shown divided by $e$", result.ode_features / math.e),
        (r"(c) $\tilde{x}(0)$ from (b), ODE", _errors(result, "ode"), found["ode"].image),
        (r"(d) $x(1)$, SDE", r"features, shown divided by $e$", result.sde_features / math.e),
        (r"(e) $\tilde{x}(0)$ from (d), SDE", _errors(result, "paper"), found["paper"].image),
        ("(f) from (d), adding no noise", _errors(result, "noise_free"), found["noise_free"].image),
        (f"(g) mean of {result.queries} queries as (d)", _errors(result, "averaged"), found["averaged"].image),
        ("(h) from (d), the noise known", _errors(result, "known_noise"), found["known_noise"].image),
    )
    noise = r"\gamma\,dB" if result.strategy == "additive" else r"\gamma\,x\,dB"
    setting = (
        rf"{result.strategy.capitalize()}: $dx = F(x)\,dt + {noise}$, $\gamma = {result.gamma:g}$, "
        f"$dt = {result.dt:g}$, seed {result.seed}. Values in [0, 1], clipped to be shown; error: relative $L_2$."
    )
    rows, cols = result.original.shape[:2]
    with paper_style():
        figure = Figure(figsize=(PAGE, 2 * (PAGE / 4 * min(rows / cols, 2.0)) + 1.1))
        figure.suptitle(setting, fontsize=8.0, x=0.01, ha="left")
        for axes, panel in zip(figure.subplots(2, 4).flat, panels, strict=True):
            _panel(axes, *panel)
    return figure


def _errors(result: ReversalResult, attacker: Attacker) -> str:
    found = result.recoveries[attacker]
    error = f"{found.relative_l2:.3g}" if found.relative_l2 >= 1e-4 else f"{found.relative_l2:.0e}"
    decibel = f"{found.psnr:.0f}".replace("-", "−")
    return f"error {error}, {decibel} dB"


def _panel(axes: "Axes", title: str, below: str, image: NDArray[np.float64]) -> None:
    shown = np.clip(image, 0.0, 1.0)
    axes.imshow(
        shown if shown.shape[2] == 3 else shown[:, :, 0], cmap="gray", vmin=0, vmax=1, interpolation="nearest"
    )
    axes.set_title(title, fontsize=7.8, pad=3)
    axes.set_xlabel(below, fontsize=7.2, labelpad=3, loc="left")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
