"""Every kind of result can be drawn, whole or in part, and the figures show its numbers."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from resperturb_reproduction.figures import reproduction as figures
from resperturb_reproduction.figures.style import save_figure
from resperturb_reproduction.reproduce.declarations import BY_ID
from resperturb_reproduction.reproduce.results import AnyResult, Computed, DataUsed, Trained

from reproduction.tests.reproduce.examples import AUDIT, made, result, row


def drawn(name: str, seeds: int = 1) -> Trained:
    """A result with every row that an experiment declares."""
    cells = enumerate(BY_ID[name].cells[:12])
    rows = [row(name, cell.key, auc=0.5 + 0.05 * n, data=cell.data, seeds=seeds) for n, cell in cells]
    return result(name, *(replace(one, audit=AUDIT) for one in rows))


def test_roc_curves_and_pages_are_drawn_whole_and_with_nothing_measured(tmp_path: Path) -> None:
    found: dict[str, AnyResult] = {name: drawn(name) for name in ("cifar10-table", "cifar10-sweep")}
    curves = drawn("roc-additive")
    for name, figure in (figures.draw(curves) | figures.page_figures(found)).items():
        (svg,) = save_figure(figure, tmp_path / name, ("svg",))
        assert svg.read_text().startswith("<?xml")

    def empty(whole: Trained) -> Trained:
        return replace(whole, rows=tuple(replace(r, measured={}, audit=None, roc=None) for r in whole.rows))

    nothing: dict[str, AnyResult] = {name: empty(one) for name, one in found.items() if isinstance(one, Trained)}
    for name, figure in (figures.draw(empty(curves)) | figures.page_figures(nothing)).items():
        save_figure(figure, tmp_path / name, ("svg",))


def test_bars_are_the_interval_of_the_mean_over_seeds() -> None:
    figure = figures.sweeps_figure(
        {"cifar10-sweep": result("cifar10-sweep", row("cifar10-sweep", "non-private", seeds=3))}
    )
    bar = figure.axes[0].collections[0].get_segments()[0]  # type: ignore[attr-defined]
    # Student's 97.5% quantile with 2 degrees of freedom, times the standard error of the mean of three.
    assert (bar[1][1] - bar[0][1]) / 2 == pytest.approx(4.303 * 0.01 / 3**0.5, rel=1e-3)


def test_differences_are_measured_minus_published_with_their_tolerance(tmp_path: Path) -> None:
    tables = {name: drawn(name, seeds=3) for name in ("cifar10-table", "mnist-table")}
    figure = figures.differences_figure(tables)
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels[0] == "MNIST, non-private"
    assert len(labels) == 6
    test = next(line for line in figure.axes[1].lines if line.get_marker() == "o")
    assert test.get_xdata() == pytest.approx([0.6 - 0.988])
    assert len([line for line in figure.axes[1].lines if line.get_linewidth() == 6]) == 6
    save_figure(figure, tmp_path / "differences", ("svg",))


def test_sweeps_are_small_multiples(tmp_path: Path) -> None:
    found = {name: drawn(name) for name in ("cifar10-sweep", "idc-sweep-multiplicative")}
    figure = figures.sweeps_figure(found)
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title(loc="left") for axes in shown] == ["CIFAR10", "IDC (II)", "", ""]
    save_figure(figure, tmp_path / "sweeps", ("svg",))


def test_patches_are_labelled(tmp_path: Path) -> None:
    image = np.zeros((5, 5, 3), dtype=np.uint8)
    used = DataUsed("idc", "IDC subset", "idc", "f" * 16, 9, 2, 2, 2, 3, 1, 1, 1, 1, "")
    patches = Computed("idc-examples", "computed", (replace(made("cpu"), data=(used,)),), "", {})
    figure = figures.patches_figure(patches, {"negative": [image] * 4, "positive": [image] * 3})
    save_figure(figure, tmp_path / "patches", ("svg",))
    assert [axes.get_title(loc="left") for axes in figure.axes if axes.images] == ["negative"] * 4 + ["positive"] * 3
