"""The figures of the reproduction, drawn from its results.

AUC and accuracy are shares between 0 and 1 everywhere. Stars are published values.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from resperturb_reproduction.figures.readings import readings_figure
from resperturb_reproduction.figures.sde import reversal_figure
from resperturb_reproduction.figures.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PAGE,
    PURPLE,
    VERMILLION,
    page_style,
    paper_style,
)
from resperturb_reproduction.reproduce.declarations import BY_ID, COMPARED, DATA_TITLES, EXPERIMENTS
from resperturb_reproduction.reproduce.functions import panels, reversal
from resperturb_reproduction.reproduce.presets import PRESETS
from resperturb_reproduction.reproduce.readings import watched
from resperturb_reproduction.reproduce.results import AnyResult, Computed, Row, Spread, Trained
from resperturb_reproduction.reproduce.verdicts import Spreads, leak, quantile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOOKS = ((INK, "-"), (BLUE, "--"), (PURPLE, "-."), (ORANGE, ":"))
STAR: dict[str, Any] = {"marker": "*", "markersize": 10, "markerfacecolor": "none", "linestyle": "none"}
SHOWN = (("auc", "attack AUC", BLUE), ("test_accuracy", "test accuracy", GREEN))
SWEEPS = tuple(experiment.id for experiment in EXPERIMENTS if experiment.kind == "sweep")


def draw(result: AnyResult) -> "dict[str, Figure]":
    """Draw a result by itself: its figures by file name; none if it has none."""
    name, preset = result.id, PRESETS[result.made[-1].preset]
    if isinstance(result, Trained):
        return {name: roc_figure(result)} if result.kind == "roc" and result.shown else {}
    if name == "readings":
        return {name: readings_figure(found)} if (found := watched(result)) else {}
    if name == "idc-examples":
        return {name: patches_figure(result, panels(result, preset))}
    return {name: reversal_figure(reversal(name, preset))} if name.startswith("sde-") else {}


def page_figures(found: Mapping[str, AnyResult]) -> "dict[str, Figure]":
    """Draw the figures of the pages for which there are results."""
    figures: dict[str, Figure] = {}
    if any(name in found for name in COMPARED):
        figures["differences"] = differences_figure(found)
    if any(name in found for name in SWEEPS):
        figures["sweeps"] = sweeps_figure(found)
    return figures | (draw(found["readings"]) if "readings" in found else {})


def differences_figure(found: Mapping[str, AnyResult]) -> "Figure":
    """Draw measured minus published values of every table row, with the range in which a value is met."""
    spreads = Spreads(found.values())
    lines = [
        (result, row)
        for name in COMPARED
        if isinstance(result := found.get(name), Trained)
        for row in result.shown
        if row.paper is not None and row.seeds
    ]
    with page_style():
        figure = _figure(5.5, 1.0 + 0.22 * len(lines))
        panels = figure.subplots(1, 2, sharey=True)
        for axes, (metric, label, colour) in zip(panels, SHOWN, strict=True):
            for place, (result, row) in enumerate(lines):
                measured, printed = row.of(metric), getattr(row.paper, metric)
                if measured is None or printed is None:
                    continue
                data, published = result.data_of(row), leak(metric, printed)
                allowed = spreads.tolerance(metric, measured.mean, data, row.strategy, len(row.seeds))
                if allowed is not None:
                    axes.plot([-allowed, allowed], [place] * 2, color="#D0D0D0", linewidth=6, solid_capstyle="butt")
                axes.plot(leak(metric, measured.mean) - published, place, "o", color=colour)
                if metric == "auc" and row.audit is not None:
                    axes.plot(leak(metric, row.audit.auc) - published, place, "D", color=VERMILLION, mfc="none")
            axes.axvline(0, color=INK, linewidth=0.8)
            axes.set_title("|AUC − 0.5|" if metric == "auc" else label)
            axes.grid(axis="y", visible=False)
            axes.locator_params(axis="x", nbins=4)
        figure.supxlabel("measured − published", fontsize=9.0)
        names = [f"{DATA_TITLES[row.data]}{BY_ID[result.id].mark}, {short(row)}" for result, row in lines]
        panels[0].set_yticks(range(len(lines)), names)
        panels[0].set_ylim(len(lines) - 0.3, -0.7)
    return figure


def sweeps_figure(found: Mapping[str, AnyResult]) -> "Figure":
    """Draw AUC and test accuracy over gamma for every sweep, as small multiples."""
    sweeps = [result for name in SWEEPS if isinstance(result := found.get(name), Trained) and result.shown]
    lines = 2 * math.ceil(len(sweeps) / 3)
    with page_style():
        figure = _figure(5.5, 1.7 * lines)
        grid = figure.subplots(lines, 3, squeeze=False)
        for axes in grid.flat:
            axes.set_visible(False)
        for number, result in enumerate(sweeps):
            for offset, (metric, label, colour) in enumerate(SHOWN):
                axes = grid[2 * (number // 3) + offset, number % 3]
                axes.set_visible(True)
                _over_gamma(axes, result.shown, metric, colour)
                axes.locator_params(axis="y", nbins=4)
                if number % 3 == 0:
                    axes.set_ylabel(label)
                if metric == "auc":
                    axes.set_title(BY_ID[result.id].data_title)
                    axes.axhline(0.5, color=GREY, linestyle=":", linewidth=0.8)
                else:
                    axes.set_xlabel(r"$\gamma$")
    return figure


def _over_gamma(axes: "Axes", rows: Sequence[Row], metric: str, colour: str) -> None:
    for row in rows:
        if (published := getattr(row.paper, metric, None)) is not None:
            axes.plot(row.gamma, published, **STAR, markeredgecolor=INK)
    kept = [(row.gamma, found) for row in rows if (found := row.of(metric)) is not None]
    if kept:
        gammas, means, bars = zip(*((gamma, found.mean, _bar(found)) for gamma, found in kept), strict=True)
        axes.errorbar(gammas, means, yerr=bars, color=colour, marker="o", capsize=2)


def _bar(found: Spread) -> float:
    """Give half of the 95% interval of the mean."""
    n = len(found.values)
    return found.error * (quantile(n - 1) / math.sqrt(n) if n > 1 else 1.96)


def roc_figure(result: Trained) -> "Figure":
    """Draw the ROC curves of the paper's attack on logarithmic axes, a panel for each data set."""
    names = list(dict.fromkeys(row.data for row in result.shown))
    with paper_style():
        figure = _figure(PAGE, 3.0)
        for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
            rows = [row for row in result.shown if row.data == name and row.roc is not None]
            for row, (colour, style) in zip(rows, LOOKS, strict=False):
                assert row.roc is not None
                label = "no noise" if not row.gamma else rf"$\gamma$ = {row.gamma:g}"
                axes.plot(row.roc.fpr, row.roc.tpr, color=colour, linestyle=style, label=label)
            axes.plot([1e-3, 1], [1e-3, 1], color=GREY, linewidth=0.6)
            axes.set(xscale="log", yscale="log", xlim=(1e-3, 1), ylim=(1e-3, 1), title=DATA_TITLES[name])
            axes.set_xlabel("false positive rate")
            if rows:
                axes.legend()
    return figure


def patches_figure(result: Computed, panels: Mapping[str, Sequence[Any]]) -> "Figure":
    """Draw labelled patches, a row for each class."""
    columns = max(map(len, panels.values()))
    with paper_style():
        figure = _figure(PAGE, 0.4 + len(panels) * (PAGE / columns))
        grid = figure.subplots(len(panels), columns, squeeze=False)
        for line, (name, images) in zip(grid, panels.items(), strict=True):
            for axes in line:
                axes.axis("off")
            for axes, image in zip(line, images, strict=False):
                grey = image.shape[2] == 1
                axes.imshow(image[:, :, 0] if grey else image, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
                axes.set_title(name)
        figure.suptitle(result.made[-1].data[0].shown, x=0.01, ha="left")
    return figure


def _figure(width: float, height: float) -> "Figure":
    """Make a figure that is laid out as it will be saved: letters are wider on a coarser grid of pixels."""
    import matplotlib
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=float(matplotlib.rcParams["savefig.dpi"]))


def short(row: Row) -> str:
    """Name a row without what all rows share."""
    return row.name.removeprefix("ResNet8, ").replace("En1 ResNet8, ", "").replace(" ResNet8", "")
