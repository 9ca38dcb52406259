"""The readings of the published rows as paths in the plane of training and test accuracy."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from resperturb_reproduction.figures.style import GREY, INK, page_style
from resperturb_reproduction.reproduce.declarations import DATA_TITLES
from resperturb_reproduction.reproduce.readings import Watched

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, MAIN, SMALL, LINE = 5.5, 3.4, 1.9, 0.17
COLUMNS = 2
# An AUC at or above the upper end has the last colour; a training begins where nothing can be told apart.
AUC_RANGE = (0.5, 0.75)
SHOWN_FROM = 0.4


def readings_figure(found: Sequence[Watched]) -> "Figure":
    """Draw every reading as a path, AUC as colour, a number at its end, a star for the published row.

    The first data set has the large panel. Paths of networks without noise are dashed, and so is the disc at the end
    of a training that is not finished.
    """
    import matplotlib
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    names = list(dict.fromkeys(one.data for one in found))
    labels = [one.label for one in found if one.data == names[0]]
    # The last colours of the map are too pale for a white page.
    colours = ListedColormap(matplotlib.colormaps["plasma"](range(210)))
    shade: dict[str, Any] = {"cmap": colours, "norm": Normalize(*AUC_RANGE)}
    lines = -(-len(labels) // COLUMNS)
    with page_style():
        height = MAIN + (SMALL if names[1:] else 0) + LINE * lines + 0.7
        figure = Figure(figsize=(WIDTH, height), dpi=float(matplotlib.rcParams["savefig.dpi"]))
        rows = [[names[0]] * len(names[1:]), names[1:]] if names[1:] else [[names[0]]]
        panels = figure.subplot_mosaic(rows, height_ratios=[MAIN, SMALL][: len(rows)])  # type: ignore[arg-type]
        for name, axes in panels.items():
            here = [one for one in found if one.data == name]
            for one in here:
                _path(axes, one, str(labels.index(one.label) + 1) if name == names[0] else "", shade)
            for paper in dict.fromkeys(one.paper for one in here):
                x, y, auc = paper.train_accuracy, paper.test_accuracy, paper.auc
                if x is not None and y is not None and auc is not None:
                    axes.scatter(x, y, 130, [auc], marker="*", edgecolors=INK, linewidths=0.8, zorder=5, **shade)
            axes.set_title(DATA_TITLES[str(name)])
            axes.set_xlabel("training accuracy")
        panels[names[0]].set_ylabel("test accuracy")
        if names[1:]:
            panels[names[1]].set_ylabel("test accuracy")
        bar = figure.colorbar(ScalarMappable(**shade), ax=panels[names[0]], extend="max", fraction=0.04, pad=0.02)
        bar.set_label("AUC of a confidence threshold")
        handles = [Line2D([], [], linestyle="none")] * len(labels)
        shown = [f"{number}  {label.removeprefix('gamma 4.5, ')}" for number, label in enumerate(labels, 1)]
        figure.legend(
            handles, shown, loc="outside lower left", ncols=COLUMNS, fontsize=8.0, handlelength=0, columnspacing=1.0
        )
    return figure


def _path(axes: "Axes", one: Watched, mark: str, shade: dict[str, Any]) -> None:
    looks = [look for look in one.looks if look.train_accuracy >= SHOWN_FROM * (one.paper.train_accuracy or 0)]
    trained, tested = [look.train_accuracy for look in looks], [look.test_accuracy for look in looks]
    axes.plot(trained, tested, color=GREY, linewidth=0.6, linestyle="-" if one.noisy else "--", zorder=1)
    aucs = [look.auc for look in looks]
    axes.scatter(trained, tested, 10, aucs, **shade, zorder=2)
    if looks:
        end, edge = (trained[-1], tested[-1]), "-" if one.finished else ":"
        disc = {"facecolor": "white", "edgecolor": INK, "linewidth": 0.8, "zorder": 3}
        axes.scatter(*end, 110 if mark else 25, linestyle=edge, **disc)  # type: ignore[arg-type]
        axes.annotate(mark, end, ha="center", va="center_baseline", fontsize=7.0, color=INK, zorder=4)
