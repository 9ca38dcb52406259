"""The figures of the reproduction, drawn from its results: what we measured, and stars for what the paper printed.

AUC and accuracy are shares between 0 and 1 everywhere. Bars are the 95% interval of the mean over seeds; of a single
training, that of its sampling error, which does not know the luck of a training.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from resperturb.privacy import WEAK_UP_TO
from resperturb_reproduction.figures.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PAGE,
    PURPLE,
    SKY_BLUE,
    VERMILLION,
    paper_style,
)
from resperturb_reproduction.reproduce.declarations import BY_ID, DATA_TITLES
from resperturb_reproduction.reproduce.results import AnyResult, BudgetRow, Budgets, Computed, Measured, Row, Trained
from resperturb_reproduction.reproduce.verdicts import reach

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Each gamma keeps its colour and its mark; without noise is grey.
LOOKS = ((INK, "o"), (SKY_BLUE, "s"), (BLUE, "^"), (PURPLE, "D"), (ORANGE, "v"))
PAPER_MARK: dict[str, Any] = {"marker": "*", "markersize": 10, "markerfacecolor": "none", "linestyle": "none"}
BARS = "Bars: 95% interval of the mean over seeds; with one seed, of its sampling error alone."
FOREST = ("idc-table", "idc-table-multiplicative", "mnist-table", "cifar10-table", "cifar100-table")


def draw(measured: Measured) -> "dict[str, Figure]":
    """Draw a result: its figures, each under the name of its file; none if that takes more than the result."""
    result = measured.result
    if isinstance(result, Computed):
        return _draw_computed(result, measured.drawable)
    if isinstance(result, Budgets):
        return {result.id: budgets_figure(result)}
    drawn = {
        "table": table_figure,
        "sweep": sweep_panels,
        "ensemble": ensemble_figure,
        "roc": roc_figure,
        "curve": curve_figure,
        "generalisation": generalisation_figure,
    }
    return {result.id: drawn[result.kind](result)} if result.shown else {}


def _draw_computed(result: Computed, drawable: Any) -> "dict[str, Figure]":
    name = result.id
    if name == "readings":
        from resperturb_reproduction.figures.readings import readings_figure
        from resperturb_reproduction.reproduce.readings import watched

        return {name: readings_figure(found)} if (found := watched(result)) else {}
    if drawable is None:
        return {}
    if name == "idc-examples":
        return {name: patches_figure(result, drawable)}
    from resperturb_reproduction.figures.sde import reversal_figure, sweep_figure

    reversal, sweep, _ = drawable
    return {name: reversal_figure(reversal), f"{name}-gamma": sweep_figure(sweep)}


def forest_figure(found: Mapping[str, AnyResult]) -> "Figure":
    """Every row of the tables on one axis: AUC as printed, as measured, and of the strongest attack."""
    lines: list[tuple[str, Row]] = []
    attacked: list[Row | None] = []
    for name in FOREST:
        result = found.get(name)
        if isinstance(result, Trained):
            strategy = " (II)" if name == "idc-table-multiplicative" else ""
            lines += [(f"{DATA_TITLES[row.data]}{strategy}", row) for row in result.shown]
            attacked += [result.audited(row) for row in result.shown]
    with paper_style():
        figure = _figure(PAGE, 1.3 + 0.27 * len(lines))
        axes = figure.subplots()
        places = np.arange(len(lines))[::-1]
        rows = [row for _, row in lines]
        _points(axes, rows, places, "auc", "the paper's attack, measured", BLUE, "o", 0.0)
        _strongest(axes, rows, attacked, places, -0.22)
        axes.axvline(0.5, color=GREY, linestyle=":", label="guessing")
        labels = [f"{data}: {_short(row)} ({row.preset}, {_seeds(row)})" for data, row in lines]
        axes.set_yticks(places, labels)
        axes.set_ylim(-0.7, len(lines) - 0.3)
        axes.set_xlabel("AUC of the attack (0.5: guessing)")
        axes.grid(axis="y", visible=False)
        axes.plot([], [], **PAPER_MARK, markeredgecolor=BLUE, label="printed in the paper")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4)
        figure.suptitle(BARS, fontsize=7.5, x=0.01, ha="left")
    return figure


def table_figure(result: Trained) -> "Figure":
    """A table as a picture: what each attack finds, and the accuracies; stars are what the paper printed."""
    rows = result.shown
    with paper_style():
        figure = _figure(PAGE, 1.4 + 0.42 * len(rows))
        left, right = figure.subplots(1, 2, sharey=True)
        places = np.arange(len(rows))[::-1]
        _points(left, rows, places, "auc", "the paper's attack", BLUE, "o", 0.12)
        adaptively = [result.adaptively_attacked(row) for row in rows]
        for chosen, at, shorter in _by_length(rows, adaptively, places):
            label = "the same, adaptive" + shorter
            _points(left, chosen, at, "adaptive_auc", label, ORANGE, "s", -0.06, hollow=bool(shorter))
        _strongest(left, rows, [result.audited(row) for row in rows], places, -0.24)
        left.axvline(0.5, color=GREY, linestyle=":", label="guessing")
        left.set_xlabel("AUC of the attack (0.5: guessing)")
        _points(right, rows, places, "train_accuracy", "training images", GREY, "o", 0.08)
        _points(right, rows, places, "test_accuracy", "test images", GREEN, "s", -0.08)
        right.set_xlabel("accuracy")
        several = len({row.data for row in rows}) > 1
        names = [f"{DATA_TITLES[row.data]}: {_short(row)}" if several else _short(row) for row in rows]
        presets = [f"preset {row.preset}, {_seeds(row)}" for row in rows]
        left.set_yticks(places, [f"{name}\n{preset}" for name, preset in zip(names, presets, strict=True)])
        left.set_ylim(-0.6, len(rows) - 0.4)
        handles, labels = [], []
        for axes in (left, right):
            axes.locator_params(axis="x", nbins=5)  # numbers of three decimals need room
            axes.grid(axis="y", visible=False)
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                handles.append(handle)
                labels.append(label)
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
        _explain(figure, result)
    return figure


def _by_length(
    rows: Sequence[Row], attacked: Sequence[Row | None], places: Any
) -> list[tuple[list[Row], list[float], str]]:
    """The rows that were attacked harder, with their places: those that are shown, and those of shorter trainings."""
    there = [(row, *pair) for row, *pair in zip(rows, attacked, places, strict=True) if pair[0] is not None]
    groups = []
    for shorter in ("", ", a shorter training"):
        pairs = [(other, place) for row, other, place in there if (other.preset != row.preset) is bool(shorter)]
        groups.append(([other for other, _ in pairs], [place for _, place in pairs], shorter))
    return groups


def _strongest(axes: "Axes", rows: Sequence[Row], attacked: Sequence[Row | None], places: Any, shift: float) -> None:
    """The strongest attack of the audit of each row, with its interval; hollow if of a shorter training."""
    for chosen, at, shorter in _by_length(rows, attacked, places):
        shown = [(row.audit, place + shift) for row, place in zip(chosen, at, strict=True) if row.audit is not None]
        for audit, place in shown:
            axes.plot(audit.auc_interval, [place] * 2, color=VERMILLION, linewidth=1.0)
        if shown:
            axes.plot(
                [audit.auc for audit, _ in shown],
                [place for _, place in shown],
                color=VERMILLION, markerfacecolor="none" if shorter else VERMILLION, marker="D", linestyle="none",
                label=f"strongest of the audit{shorter}",
            )  # fmt: skip


def _points(
    axes: "Axes",
    rows: Sequence[Row],
    places: Any,
    metric: str,
    label: str,
    colour: str,
    marker: str,
    shift: float,
    hollow: bool = False,
) -> None:
    measured = [(row.measured.of(metric), place + shift) for row, place in zip(rows, places, strict=True)]
    kept = [(found, place) for found, place in measured if found is not None]
    if kept:
        axes.errorbar(
            [found.mean for found, _ in kept],
            [place for _, place in kept],
            xerr=[reach(found) for found, _ in kept],
            color=colour, marker=marker, linestyle="none", capsize=2, label=label,
            markerfacecolor="none" if hollow else colour,
        )  # fmt: skip
    printed = [(_printed(row, metric), place + shift) for row, place in zip(rows, places, strict=True)]
    stars = [(value, place) for value, place in printed if value is not None]
    if stars:
        axes.plot(*zip(*stars, strict=True), **PAPER_MARK, markeredgecolor=colour)


def sweep_panels(result: Trained) -> "Figure":
    """The paper's four panels: precision and recall over the threshold, accuracies and AUC over gamma.

    Where the attack calls hardly anybody a member above the lowest threshold there is nothing to plot over
    thresholds: the figure says so, and has the two panels over gamma.
    """
    rows = result.shown
    reached = {t.threshold for row in rows for t in row.thresholds if t.precision is not None}
    with paper_style():
        if len(reached) > 1:
            figure = _figure(PAGE, 5.0)
            (precision, recall), (accuracy, area) = figure.subplots(2, 2)
            _over_threshold(precision, recall, rows)
            handles = max((a.get_legend_handles_labels() for a in (precision, recall)), key=lambda h: len(h[0]))
            figure.legend(*handles, loc="outside lower center", ncols=4)
        else:
            figure = _figure(PAGE, 2.8)
            accuracy, area = figure.subplots(1, 2)
        every = sorted({t.threshold for row in rows for t in row.thresholds})
        beyond = [t for t in every if t not in reached]
        _over_gamma(accuracy, rows, "train_accuracy", "training", GREY, "o")
        _over_gamma(accuracy, rows, "test_accuracy", "test", GREEN, "s")
        accuracy.set_ylabel("accuracy")
        _over_gamma(area, rows, "auc", "the paper's attack", BLUE, "o")
        area.axhline(0.5, color=GREY, linestyle=":", label="guessing")
        area.set_ylabel("AUC")
        for axes in (accuracy, area):
            axes.set_xlabel(r"$\gamma$ (0: ResNet8, else En5)")
            axes.set_xticks([row.gamma for row in rows], [f"{row.gamma:g}" for row in rows])
            if axes.get_legend_handles_labels()[0]:
                axes.legend()
        more = f" The attack makes no predictions above {max(reached):g}." if beyond and reached else ""
        if len(reached) == 1:
            more += " Precision there: " + ", ".join(
                f"{t.precision:.3f} ({'no noise' if not row.gamma else f'gamma {row.gamma:g}'})"
                for row in rows
                for t in row.thresholds
                if t.precision is not None
            )
        _explain(figure, result, more)
    return figure


def _over_threshold(precision: "Axes", recall: "Axes", rows: Sequence[Row]) -> None:
    for row, (colour, marker) in zip(rows, LOOKS, strict=False):
        label = "ResNet8, no noise" if not row.gamma else rf"En{row.networks}, $\gamma$ = {row.gamma:g}"
        with_precision = [(t.threshold, t.precision) for t in row.thresholds if t.precision is not None]
        with_recall = [(t.threshold, t.recall) for t in row.thresholds]
        for axes, points in ((precision, with_precision), (recall, with_recall)):
            if points:
                axes.plot(*zip(*points, strict=True), color=colour, marker=marker, label=label)
    for axes, name in ((precision, "precision"), (recall, "recall")):
        axes.set_xlabel("threshold of the attack")
        axes.set_ylabel(name)
        axes.set_xticks(sorted({float(x) for line in axes.lines for x in np.atleast_1d(line.get_xdata())}))
    precision.axhline(0.5, color=GREY, linestyle=":")


def _over_gamma(
    axes: "Axes",
    rows: Iterable[Row],
    metric: str,
    label: str,
    colour: str,
    marker: str,
    shift: float = 0.0,
    line: str = "-",
) -> None:
    rows = list(rows)
    kept = [(row.gamma + shift, found) for row in rows if (found := row.measured.of(metric)) is not None]
    if kept:
        axes.errorbar(
            [gamma for gamma, _ in kept],
            [found.mean for _, found in kept],
            yerr=[reach(found) for _, found in kept],
            color=colour, marker=marker, linestyle=line, capsize=2, label=label,
        )  # fmt: skip
    stars = [(row.gamma, value) for row in rows if (value := _printed(row, metric)) is not None]
    if stars:
        axes.plot(*zip(*stars, strict=True), **PAPER_MARK, markeredgecolor=colour)


def curve_figure(result: Trained) -> "Figure":
    """Accuracies and AUC over gamma, with and without noise on the input."""
    with paper_style():
        figure = _figure(PAGE, 2.9)
        accuracy, area = figure.subplots(1, 2)
        for with_input, colour, label in (
            (True, BLUE, r"input noise $\gamma/2$"),
            (False, VERMILLION, "no input noise"),
        ):
            rows = [row for row in result.shown if not row.gamma or row.input_noise == with_input]
            rows.sort(key=lambda row: row.gamma)
            _over_gamma(accuracy, rows, "test_accuracy", f"test, {label}", colour, "o")
            _over_gamma(accuracy, rows, "train_accuracy", f"training, {label}", colour, "s", line=":")
            _over_gamma(area, rows, "auc", label, colour, "o")
        accuracy.set_ylabel("accuracy")
        area.set_ylabel("AUC of the paper's attack")
        area.axhline(0.5, color=GREY, linestyle=":")
        for axes in (accuracy, area):
            axes.set_xlabel(r"$\gamma$")
            if axes.get_legend_handles_labels()[0]:
                axes.legend()
        _explain(figure, result)
    return figure


def ensemble_figure(result: Trained) -> "Figure":
    """AUC and accuracies over gamma, a line for each number of networks."""
    panels = (("auc", "AUC"), ("train_accuracy", "training accuracy"), ("test_accuracy", "test accuracy"))
    sizes = sorted({row.networks for row in result.shown})
    with paper_style():
        figure = _figure(PAGE, 2.7)
        all_axes = figure.subplots(1, 3)
        for axes, (metric, label) in zip(all_axes, panels, strict=True):
            for number, (networks, (colour, marker)) in enumerate(zip(sizes, LOOKS[1:], strict=False)):
                rows = [row for row in result.shown if row.networks == networks]
                # A little apart, so that bars at the same gamma do not hide each other.
                _over_gamma(axes, rows, metric, f"k = {networks}", colour, marker, shift=0.012 * (number - 1))
            axes.set_xlabel(r"$\gamma$")
            axes.set_ylabel(label)
        figure.legend(*all_axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(sizes))
        _explain(figure, result)
    return figure


def roc_figure(result: Trained) -> "Figure":
    """ROC curves of the paper's attack, a panel for each data set, a curve for each gamma."""
    names = list(dict.fromkeys(row.data for row in result.shown))
    with paper_style():
        figure = _figure(PAGE, 2.9)
        for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
            rows = [row for row in result.shown if row.data == name and row.roc is not None]
            for row, (colour, _), style in zip(rows, LOOKS, ("-", "--", "-.", ":"), strict=False):
                assert row.roc is not None
                noise = "ResNet8" if not row.gamma else rf"$\gamma$ = {row.gamma:g}"
                found = row.measured.auc
                label = noise if found is None else f"{noise}: {found.mean:.3f}"
                axes.plot(row.roc.fpr, row.roc.tpr, color=colour, linestyle=style, label=label)
            axes.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, linestyle=":")
            axes.set_aspect("equal")
            axes.set_xlabel("false positive rate")
            axes.set_title(DATA_TITLES[name])
            if rows:
                axes.legend(loc="lower right", fontsize=6.5, title="AUC", title_fontsize=6.5, labelspacing=0.25)
        figure.axes[0].set_ylabel("true positive rate")
        _explain(figure, result, bars=False)
    return figure


def generalisation_figure(result: Trained) -> "Figure":
    """The measured gap over gamma, and what Theorem 3's factor would make of the gap without noise."""
    rows, theorem = result.shown, result.theorem
    with paper_style():
        figure = _figure(PAGE, 2.8)
        left, right = figure.subplots(1, 2)
        _over_gamma(left, rows, "gap", "measured", BLUE, "o")
        if theorem is not None and theorem.predicted_gap:
            gammas = [float(gamma) for gamma in theorem.predicted_gap]
            predicted = list(theorem.predicted_gap.values())
            left.plot(gammas, predicted, color=VERMILLION, linestyle="--", marker="s", label="Theorem 3's factor")
        left.set_ylabel("training - test accuracy")
        _over_gamma(right, rows, "train_accuracy", "training", GREY, "o")
        _over_gamma(right, rows, "test_accuracy", "test", GREEN, "s")
        right.set_ylabel("accuracy")
        for axes in (left, right):
            if axes.get_legend_handles_labels()[0]:
                axes.legend()
            axes.set_xlabel(r"$\gamma$ (multiplicative noise, one network)")
        _explain(figure, result)
    return figure


def budgets_figure(result: Budgets) -> "Figure":
    """Every epsilon on one logarithmic axis: the formula's, the printed one, the exact one, what attacks show."""
    places = np.arange(len(result.rows))[::-1]
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
        "printed: promised and shown": {**PAPER_MARK, "color": INK},
    }
    with paper_style():
        figure = _figure(PAGE, 1.5 + 0.4 * len(result.rows))
        axes = figure.subplots()
        for row, place in zip(result.rows, places, strict=True):
            for look, several in zip(looks.values(), _epsilons(row), strict=True):
                for value in several:
                    if value:
                        axes.plot(value, place, **{"linestyle": "none", **look})
        for label, look in looks.items():
            axes.plot([], [], **{"linestyle": "none", **look}, label=label)
        axes.set_xscale("log")
        axes.set_xlabel(r"$\epsilon$ at $\delta$ = 1e-5 (what is shown and 0 is off the axis)")
        axes.set_yticks(places, [f"{DATA_TITLES[row.data]}: {row.name}" for row in result.rows])
        axes.set_ylim(-0.6, len(result.rows) - 0.4)
        axes.axvline(WEAK_UP_TO, color=GREY, linestyle=":")
        edge = axes.get_xaxis_transform()
        axes.text(1.15 * WEAK_UP_TO, 0.02, "promises nothing of use", color=GREY, fontsize=7.0, transform=edge)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def _epsilons(row: BudgetRow) -> tuple[tuple[float | None, ...], ...]:
    return (
        (row.epsilon,),
        (row.epsilon_exact,),
        (None if row.audit is None else row.audit.epsilon,),
        (None if row.paper_attack is None else row.paper_attack.epsilon,),
        (row.printed, row.printed_lower),
    )


def patches_figure(result: Computed, panels: Sequence[tuple[str, Sequence[Any]]]) -> "Figure":
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
        figure.suptitle(result.made[-1].data[0].shown, fontsize=8.0, x=0.01, ha="left")
    return figure


def _figure(width: float, height: float) -> "Figure":
    """A figure that is laid out as it will be saved: letters are wider on a coarser grid of pixels."""
    import matplotlib
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=float(matplotlib.rcParams["savefig.dpi"]))


def _short(row: Row) -> str:
    """A row without what all of them share."""
    return row.name.removeprefix("ResNet8, ").replace("En1 ResNet8, ", "").replace(" ResNet8", "")


def _seeds(row: Row) -> str:
    count = len(row.seeds)
    return f"{count} seed{'' if count == 1 else 's'}"


def _printed(row: Row, metric: str) -> float | None:
    value: float | None = getattr(row.paper, metric, None)
    return value


def _explain(figure: "Figure", result: Trained, more: str = "", bars: bool = True) -> None:
    """Say above a figure what it shows, on what, and what its marks mean."""
    names = list(dict.fromkeys(result.data_of(row).shown for row in result.shown))
    presets = list(dict.fromkeys(row.preset for row in result.shown))
    head = f"{BY_ID[result.id].title} ({', '.join(names)}; preset {' and '.join(presets)})"
    stars = "Stars: the paper. " if any(row.paper for row in result.shown) and bars else ""
    text = f"{head}\n{stars}{BARS if bars else ''}{more}".strip()
    figure.suptitle(text, fontsize=7.5, x=0.01, ha="left", wrap=True)
