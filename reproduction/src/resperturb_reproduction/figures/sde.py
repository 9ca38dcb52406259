"""The figures of the continuous picture: the panels, and the error over gamma."""

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from resperturb_reproduction.figures.style import BLUE, GREEN, GREY, ORANGE, PAGE, VERMILLION, paper_style
from resperturb_reproduction.sde import Attacker, GammaSweep, ReversalResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOUR: dict[Attacker, str] = {
    "ode": GREY,
    "paper": VERMILLION,
    "noise_free": ORANGE,
    "averaged": BLUE,
    "known_noise": GREEN,
}


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


def sweep_figure(sweep: GammaSweep) -> "Figure":
    """The reversal error over gamma, as relative L2 and as PSNR; bands reach from the least to the largest."""
    from matplotlib.figure import Figure

    queries = len(sweep.seeds)
    additive = sweep.strategy == "additive"
    labels: dict[Attacker, str] = {
        "paper": "SDE, the paper's reversal (adds noise)",
        "noise_free": "SDE, reversal adds no noise",
        "averaged": f"SDE, mean of {queries} queries",
        "ode": "ODE",
    }
    worst_known = float(sweep.relative_l2["known_noise"].max())
    known_off_axis = worst_known < 1e-6
    if not known_off_axis:
        labels["known_noise"] = "SDE, noise known"
    with paper_style():
        figure = Figure(figsize=(PAGE, 3.2))
        left, right = figure.subplots(1, 2)
        tables = ((left, sweep.relative_l2, sweep.blind.relative_l2), (right, sweep.psnr, sweep.blind.psnr))
        for axes, table, blind in tables:
            for name, label in labels.items():
                _band(axes, sweep.gammas, table[name], label, _COLOUR[name], dashed=name == "ode")
            axes.axhline(blind, color=GREY, linestyle=":", label="a guess of one colour")
            axes.set_xscale("log")
            axes.set_xlabel(r"$\gamma$" + (" (image values in [0, 1])" if additive else " (the same on every scale)"))
            if additive:
                axes.axvline(1 / 255, color=GREY, linewidth=0.6)
        if additive:
            right.text(
                1 / 255, 0.06, r" this is $\gamma = 1$ on values 0–255",
                transform=right.get_xaxis_transform(), color=GREY, fontsize=7.2,
            )  # fmt: skip
        left.set_yscale("log")
        left.set_ylabel("relative $L_2$ error (low: recovered)")
        right.set_ylabel("PSNR in dB (high: recovered)")
        left.set_title(f"{sweep.strategy.capitalize()} noise, dt = {sweep.dt:g}")
        right.set_title(f"mean of {queries} seeds, band: least to largest")
        if known_off_axis:
            known = f"SDE, noise known: at most {_ten_to(worst_known)}, off the axis"
            left.plot([], [], color=_COLOUR["known_noise"], label=known)
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def _errors(result: ReversalResult, attacker: Attacker) -> str:
    found = result.recoveries[attacker]
    error = f"{found.relative_l2:.3g}" if found.relative_l2 >= 1e-4 else _ten_to(found.relative_l2)
    decibel = f"{found.psnr:.0f}".replace("-", "−")
    return f"error {error}, {decibel} dB"


def _ten_to(value: float) -> str:
    """A small number rounded up to one digit: ``2 x 10^-14``."""
    if value == 0:
        return "0"
    exponent = math.floor(math.log10(value))
    digit = math.ceil(value / 10.0**exponent)
    if digit == 10:
        digit, exponent = 1, exponent + 1
    return rf"${digit}\times10^{{{exponent}}}$"


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


def _band(
    axes: "Axes", gammas: tuple[float, ...], values: NDArray[np.float64], label: str, colour: str, dashed: bool
) -> None:
    axes.plot(
        gammas, values.mean(axis=1), color=colour, label=label,
        linestyle="--" if dashed else "-", marker="" if dashed else "o",
    )  # fmt: skip
    if values.shape[1] > 1:
        axes.fill_between(gammas, values.min(axis=1), values.max(axis=1), color=colour, alpha=0.25, linewidth=0)
