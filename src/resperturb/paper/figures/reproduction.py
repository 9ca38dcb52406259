"""The figures of the reproduction, drawn from its results: what we measured, and stars for what the paper printed."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from resperturb.paper.reproduce.declarations import DATA_TITLES
from resperturb.paper.reproduce.results import Measured
from resperturb.privacy import WEAK_UP_TO
from resperturb.report import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PAGE,
    PURPLE,
    SKY_BLUE,
    VERMILLION,
    paper_style,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = dict[str, Any]
# Each gamma keeps its colour and its mark; without noise is black.
LOOKS = ((BLACK, "o"), (SKY_BLUE, "s"), (BLUE, "^"), (PURPLE, "D"), (ORANGE, "v"))
PAPER_MARK: dict[str, Any] = {"marker": "*", "markersize": 10, "markerfacecolor": "none", "linestyle": "none"}


def draw(measured: Measured) -> "dict[str, Figure]":
    """Draw a result: its figures, each under the name of its file."""
    result = measured.result
    name = str(result["id"])
    if name.startswith("sde-"):
        from resperturb.paper.figures.sde import convergence_figure, reversal_figure, sweep_figure

        reversal, sweep, study = measured.drawable
        return {
            name: reversal_figure(reversal),
            f"{name}-gamma": sweep_figure(sweep),
            f"{name}-convergence": convergence_figure(study),
        }
    if name == "idc-examples":
        return {name: patches_figure(result, measured.drawable)}
    if name == "cost":
        from resperturb.paper.figures.speed import speed_figure

        return {name: speed_figure(measured.drawable)}
    if name == "budgets":
        return {name: budgets_figure(result)}
    drawn = {"table": table_figure, "sweep": sweep_panels, "ensemble": ensemble_figure, "roc": roc_figure}
    return {name: drawn.get(result["kind"], generalisation_figure)(result)}


def table_figure(result: dict[str, Any]) -> "Figure":
    """A table as a picture: what each attack finds, and the accuracies; stars are what the paper printed."""
    rows = result["rows"]
    with paper_style():
        figure = _figure(PAGE, 1.4 + 0.42 * len(rows))
        left, right = figure.subplots(1, 2, sharey=True)
        places = np.arange(len(rows))[::-1]
        _points(left, rows, places, "auc", "the paper's attack", BLUE, "o", 0.12)
        _points(left, rows, places, "adaptive_auc", "the same, adaptive", ORANGE, "s", -0.06)
        audits = [(row["audit"] or {}).get("auc") for row in rows]
        if any(value is not None for value in audits):
            intervals = [(row["audit"] or {}).get("auc_interval") for row in rows]
            for number, (value, interval) in enumerate(zip(audits, intervals, strict=True)):
                if value is not None:
                    left.plot(interval, [places[number] - 0.24] * 2, color=VERMILLION, linewidth=1.0)
            shown = [(value, place - 0.24) for value, place in zip(audits, places, strict=True) if value is not None]
            left.plot(
                *zip(*shown, strict=True),
                color=VERMILLION,
                marker="D",
                linestyle="none",
                label="strongest of the audit",
            )
        left.axvline(0.5, color=GREY, linestyle=":", label="guessing")
        left.set_xlabel("AUC of the attack (low: private)")
        _points(right, rows, places, "train_accuracy", "training images", GREY, "o", 0.08)
        _points(right, rows, places, "test_accuracy", "test images", GREEN, "s", -0.08)
        right.set_xlabel("accuracy")
        left.set_yticks(places, [row["name"].replace(", ", ",\n") for row in rows])
        left.set_ylim(-0.6, len(rows) - 0.4)
        handles, labels = [], []
        for axes in (left, right):
            axes.locator_params(axis="x", nbins=5)  # numbers of three decimals need room
            axes.grid(axis="y", visible=False)
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                handles.append(handle)
                labels.append(label)
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
        figure.suptitle(_title(result), fontsize=8.0, x=0.01, ha="left")
    return figure


def _points(
    axes: "Axes", rows: Sequence[Row], places: Any, metric: str, label: str, colour: str, marker: str, shift: float
) -> None:
    measured = [row["measured"].get(metric) for row in rows]
    kept = [(spread, place) for spread, place in zip(measured, places, strict=True) if spread is not None]
    if kept:
        axes.errorbar(
            [spread["mean"] for spread, _ in kept],
            [place + shift for _, place in kept],
            xerr=[2 * spread["error"] for spread, _ in kept],
            color=colour, marker=marker, linestyle="none", capsize=2, label=label,
        )  # fmt: skip
    printed = [
        (row["paper"][metric], place + shift)
        for row, place in zip(rows, places, strict=True)
        if row["paper"] and row["paper"].get(metric) is not None
    ]
    if printed:
        axes.plot(*zip(*printed, strict=True), **PAPER_MARK, markeredgecolor=colour)


def sweep_panels(result: dict[str, Any]) -> "Figure":
    """The paper's four panels: precision and recall over the threshold, accuracies and AUC over gamma."""
    rows = result["rows"]
    with paper_style():
        figure = _figure(PAGE, 5.0)
        (precision, recall), (accuracy, area) = figure.subplots(2, 2)
        for row, (colour, marker) in zip(rows, LOOKS, strict=False):
            label = "ResNet8, no noise" if not row["gamma"] else rf"En{row['networks']}, $\gamma$ = {row['gamma']:g}"
            for axes, key in ((precision, "precision"), (recall, "recall")):
                points = [(t["threshold"], t[key]) for t in row["thresholds"] or () if t[key] is not None]
                if points:
                    x, y = zip(*points, strict=True)
                    axes.plot(x, [100 * value for value in y], color=colour, marker=marker, label=label)
        for axes, name in ((precision, "precision"), (recall, "recall")):
            axes.set_xlabel("threshold of the attack")
            axes.set_ylabel(f"{name} (%)")
        precision.axhline(50, color=GREY, linestyle=":")
        precision.sharex(recall)  # where nothing is accepted there is no precision
        handles = max((axes.get_legend_handles_labels() for axes in (precision, recall)), key=lambda h: len(h[0]))
        if handles[0]:
            figure.legend(*handles, loc="outside lower center", ncols=4)
        _over_gamma(accuracy, rows, "train_accuracy", "training", GREY, "o")
        _over_gamma(accuracy, rows, "test_accuracy", "test", GREEN, "s")
        accuracy.set_ylabel("accuracy (%)")
        _over_gamma(area, rows, "auc", "the paper's attack", BLUE, "o")
        area.axhline(50, color=GREY, linestyle=":", label="guessing")
        area.set_ylabel("AUC (%)")
        for axes in (accuracy, area):
            axes.set_xlabel(r"$\gamma$ (0: ResNet8, else En5)")
            axes.set_xticks([row["gamma"] for row in rows], [f"{row['gamma']:g}" for row in rows])
            if axes.get_legend_handles_labels()[0]:
                axes.legend()
        for letter, axes in zip("abcd", (precision, recall, accuracy, area), strict=True):
            axes.set_title(f"({letter})")
        figure.suptitle(_title(result), fontsize=8.0, x=0.01, ha="left")
    return figure


def _over_gamma(
    axes: "Axes", rows: Sequence[Row], metric: str, label: str, colour: str, marker: str, shift: float = 0.0
) -> None:
    kept = [(row["gamma"] + shift, row["measured"][metric]) for row in rows if metric in row["measured"]]
    if kept:
        axes.errorbar(
            [gamma for gamma, _ in kept],
            [100 * spread["mean"] for _, spread in kept],
            yerr=[200 * spread["error"] for _, spread in kept],
            color=colour, marker=marker, linestyle="-", capsize=2, label=label,
        )  # fmt: skip
    printed = [
        (row["gamma"], 100 * row["paper"][metric])
        for row in rows
        if row["paper"] and row["paper"].get(metric) is not None
    ]
    if printed:
        axes.plot(*zip(*printed, strict=True), **PAPER_MARK, markeredgecolor=colour)


def ensemble_figure(result: dict[str, Any]) -> "Figure":
    """AUC and accuracies over gamma, a line for each number of networks."""
    panels = (("auc", "AUC (%)"), ("train_accuracy", "training accuracy (%)"), ("test_accuracy", "test accuracy (%)"))
    sizes = sorted({row["networks"] for row in result["rows"]})
    with paper_style():
        figure = _figure(PAGE, 2.7)
        all_axes = figure.subplots(1, 3)
        for axes, (metric, label) in zip(all_axes, panels, strict=True):
            for number, (networks, (colour, marker)) in enumerate(zip(sizes, LOOKS[1:], strict=False)):
                rows = [row for row in result["rows"] if row["networks"] == networks]
                # A little apart, so that bars at the same gamma do not hide each other.
                _over_gamma(axes, rows, metric, f"k = {networks}", colour, marker, shift=0.012 * (number - 1))
            axes.set_xlabel(r"$\gamma$")
            axes.set_ylabel(label)
        figure.legend(*all_axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(sizes))
        figure.suptitle(_title(result), fontsize=8.0, x=0.01, ha="left")
    return figure


def roc_figure(result: dict[str, Any]) -> "Figure":
    """ROC curves of the paper's attack, a panel for each data set, a curve for each gamma."""
    names = list(dict.fromkeys(row["data"] for row in result["rows"]))
    with paper_style():
        figure = _figure(PAGE, 2.9)
        for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
            rows = [row for row in result["rows"] if row["data"] == name and row["roc"]]
            for row, (colour, _), style in zip(rows, LOOKS, ("-", "--", "-.", ":"), strict=False):
                noise = "ResNet8" if not row["gamma"] else rf"$\gamma$ = {row['gamma']:g}"
                label = f"{noise}: {row['measured']['auc']['mean']:.3f}"
                axes.plot(row["roc"]["fpr"], row["roc"]["tpr"], color=colour, linestyle=style, label=label)
            axes.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, linestyle=":")
            axes.set_aspect("equal")
            axes.set_xlabel("false positive rate")
            axes.set_title(_shown(result, name))
            if rows:
                axes.legend(loc="lower right", fontsize=6.5, title="AUC", title_fontsize=6.5, labelspacing=0.25)
        figure.axes[0].set_ylabel("true positive rate")
        figure.suptitle(_title(result, with_data=False), fontsize=8.0, x=0.01, ha="left")
    return figure


def generalisation_figure(result: dict[str, Any]) -> "Figure":
    """The measured gap over gamma, and what Theorem 3's factor would make of the gap without noise."""
    rows, theorem = result["rows"], result["theorem"]
    with paper_style():
        figure = _figure(PAGE, 2.8)
        left, right = figure.subplots(1, 2)
        _over_gamma(left, rows, "gap", "measured", BLUE, "o")
        if theorem["predicted_gap"]:
            gammas = [float(gamma) for gamma in theorem["predicted_gap"]]
            predicted = [100 * value for value in theorem["predicted_gap"].values()]
            left.plot(gammas, predicted, color=VERMILLION, linestyle="--", marker="s", label="Theorem 3's factor")
        left.set_ylabel("training - test accuracy (points)")
        _over_gamma(right, rows, "train_accuracy", "training", GREY, "o")
        _over_gamma(right, rows, "test_accuracy", "test", GREEN, "s")
        right.set_ylabel("accuracy (%)")
        for axes in (left, right):
            if axes.get_legend_handles_labels()[0]:
                axes.legend()
            axes.set_xlabel(r"$\gamma$ (multiplicative noise, one network)")
        figure.suptitle(_title(result), fontsize=8.0, x=0.01, ha="left")
    return figure


def budgets_figure(result: dict[str, Any]) -> "Figure":
    """Every epsilon on one logarithmic axis: the formula's, the printed one, the exact one, what attacks show."""
    rows = result["rows"]
    places = np.arange(len(rows))[::-1]
    looks: dict[str, dict[str, Any]] = {
        "Theorem 1, or DP-SGD's accountant": {
            "color": BLUE,
            "marker": "o",
            "markersize": 8,
            "markerfacecolor": "none",
        },
        "exact (Gaussian DP)": {"color": GREEN, "marker": "s"},
        "shown by our audit": {"color": VERMILLION, "marker": "D"},
        "shown by the paper's attack": {"color": ORANGE, "marker": "v"},
        "printed: promised and shown": {**PAPER_MARK, "color": BLACK},
    }
    with paper_style():
        figure = _figure(PAGE, 1.5 + 0.4 * len(rows))
        axes = figure.subplots()
        for row, place in zip(rows, places, strict=True):
            lower = row["lower"]
            values = (
                (row["epsilon"],),
                (row.get("epsilon_exact"),),
                ((lower.get("audit") or {}).get("epsilon"),),
                ((lower.get("paper_attack") or {}).get("epsilon"),),
                (row["paper"]["epsilon"], row["paper"]["lower"]),
            )
            for look, several in zip(looks.values(), values, strict=True):
                for value in several:
                    if value:
                        axes.plot(value, place, **{"linestyle": "none", **look})
        for label, look in looks.items():
            axes.plot([], [], **{"linestyle": "none", **look}, label=label)
        axes.set_xscale("log")
        axes.set_xlabel(r"$\epsilon$ at $\delta$ = 1e-5 (what is shown and 0 is off the axis)")
        axes.set_yticks(places, [f"{DATA_TITLES[row['data']]}: {row['name']}" for row in rows])
        axes.set_ylim(-0.6, len(rows) - 0.4)
        axes.axvline(WEAK_UP_TO, color=GREY, linestyle=":")
        edge = axes.get_xaxis_transform()
        axes.text(1.15 * WEAK_UP_TO, 0.02, "promises nothing of use", color=GREY, fontsize=7.0, transform=edge)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def patches_figure(result: dict[str, Any], panels: Sequence[tuple[str, Sequence[Any]]]) -> "Figure":
    """Labelled patches, a row for each class."""
    columns = max(len(images) for _, images in panels)
    with paper_style():
        figure = _figure(PAGE, 0.4 + len(panels) * (PAGE / columns))
        grid = figure.subplots(len(panels), columns, squeeze=False)
        for line, (name, images) in zip(grid, panels, strict=True):
            for axes in line:
                axes.axis("off")
            for axes, image in zip(line, images, strict=False):
                grey = image.shape[2] == 1
                axes.imshow(image[:, :, 0] if grey else image, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
                axes.set_title(name)
        figure.suptitle(_shown(result, "idc"), fontsize=8.0, x=0.01, ha="left")
    return figure


def _figure(width: float, height: float) -> "Figure":
    """A figure that is laid out as it will be saved: letters are wider on a coarser grid of pixels."""
    import matplotlib
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=float(matplotlib.rcParams["savefig.dpi"]))


def _shown(result: dict[str, Any], name: str) -> str:
    return next(str(data["shown"]) for data in result["data"] if data["name"] == name)


def _title(result: dict[str, Any], with_data: bool = True) -> str:
    """What was measured, on what, at which preset; stars and bars explained where there are any."""
    parts = [str(result["title"])]
    if with_data and result["data"][0]["shown"] not in parts[0]:
        parts.append(str(result["data"][0]["shown"]))
    parts.append(f"preset {result['preset']}")
    if not with_data:
        return ", ".join(parts)
    stars = "Stars: the paper; bars" if any(row["paper"] for row in result["rows"]) else "Bars"
    return f"{', '.join(parts)}. {stars}: ± 2 errors."
