"""Every kind of result can be drawn, whole or in part, and what is drawn are its numbers."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from resperturb_reproduction.figures import reproduction as figures
from resperturb_reproduction.figures.style import save_figure
from resperturb_reproduction.reproduce.declarations import BY_ID
from resperturb_reproduction.reproduce.results import (
    BudgetRow,
    Budgets,
    Computed,
    DataUsed,
    Measured,
    RowMetrics,
    ShownEpsilon,
    Theorem,
    Trained,
)

from reproduction.tests.reproduce.examples import AUDIT, made, result, row

THEOREM = Theorem(0.5, 1.0, {"0": 1.0, "1": 0.9}, {"0": 0.3, "1": 0.2}, "", ())


def drawn(name: str) -> Trained:
    """A result with every row that an experiment declares."""
    rows = [row(name, c.key, auc=0.5 + 0.05 * n, data=c.data) for n, c in enumerate(BY_ID[name].cells[:12])]
    whole = result(name, *(replace(one, audit=AUDIT) for one in rows))
    return replace(whole, theorem=THEOREM) if whole.kind == "generalisation" else whole


KINDS = ("cifar10-table", "cifar10-sweep", "cifar10-ensemble", "roc-additive", "generalisation", "gamma-curve")


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_is_drawn_as_png_and_svg_without_a_background(tmp_path: Path, name: str) -> None:
    from PIL import Image

    (figure,) = figures.draw(Measured(drawn(name))).values()
    png, svg = save_figure(figure, tmp_path / name)
    assert svg.read_text().startswith("<?xml")
    with Image.open(png) as image:
        assert image.convert("RGBA").getpixel((1, 1))[3] == 0  # type: ignore[index]


@pytest.mark.parametrize("name", KINDS)
def test_what_is_not_measured_yet_is_left_out(tmp_path: Path, name: str) -> None:
    whole = drawn(name)
    rows = tuple(replace(r, measured=RowMetrics(), audit=None, thresholds=(), roc=None) for r in whole.rows)
    for stem, figure in figures.draw(Measured(replace(whole, rows=rows, theorem=None))).items():
        save_figure(figure, tmp_path / stem)


def values(lines: list[object]) -> set[float]:
    return {round(float(x), 3) for line in lines for x in np.atleast_1d(line.get_xdata())}  # type: ignore[attr-defined]


def test_the_table_shows_the_measured_values_and_stars_for_the_printed() -> None:
    (figure,) = figures.draw(Measured(drawn("cifar10-table"))).values()
    left = figure.axes[0]
    shown = values(list(left.lines))
    assert {0.5, 0.55, 0.6} <= shown  # the paper's attack
    assert {0.52, 0.57, 0.62} <= shown  # adaptive
    assert {0.61, 0.58, 0.64} <= shown  # audit
    stars = [line for line in left.lines if line.get_marker() == "*"]
    assert [list(np.atleast_1d(line.get_xdata())) for line in stars] == [[0.757, 0.512, 0.511]]


def test_every_area_under_the_curve_is_between_0_and_1() -> None:
    (figure,) = figures.draw(Measured(drawn("cifar10-sweep"))).values()
    assert [axes.get_ylabel() for axes in figure.axes] == ["precision", "recall", "accuracy", "AUC"]
    for axes in figure.axes:
        for line in axes.lines:
            assert max(np.atleast_1d(line.get_ydata()), default=0.0) <= 1.0
    # A threshold that nobody reaches has no precision.
    assert list(figure.axes[0].lines[0].get_xdata()) == [0.5, 0.6]


def test_panels_that_would_be_nearly_empty_are_said_in_words() -> None:
    whole = drawn("cifar10-sweep")
    rows = tuple(
        replace(r, thresholds=tuple(replace(t, precision=0.6 if t.threshold == 0.5 else None) for t in r.thresholds))
        for r in whole.rows
    )
    (figure,) = figures.draw(Measured(replace(whole, rows=rows))).values()
    assert [axes.get_ylabel() for axes in figure.axes] == ["accuracy", "AUC"]
    assert "no predictions above 0.5" in figure.get_suptitle()


def test_the_bars_are_named_and_are_what_they_are_named() -> None:
    one = result("cifar10-table", row("cifar10-table", "non-private", seeds=3))
    (figure,) = figures.draw(Measured(one)).values()
    assert "95% interval of the mean over seeds" in figure.get_suptitle()
    bar = figure.axes[0].collections[0].get_segments()[0]  # type: ignore[attr-defined]
    # Student's 97.5% quantile with 2 degrees of freedom, times the standard error of the mean of three.
    assert (bar[1][0] - bar[0][0]) / 2 == pytest.approx(4.303 * 0.01 / 3**0.5, rel=1e-3)


def test_the_forest_has_a_line_for_each_row_of_the_tables(tmp_path: Path) -> None:
    tables = {name: drawn(name) for name in ("cifar10-table", "mnist-table")}
    figure = figures.forest_figure(tables)
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert len(labels) == 7
    assert labels[0] == "MNIST: non-private (cpu, 1 seed)"
    save_figure(figure, tmp_path / "forest")


def test_budgets_are_drawn_with_and_without_lower_bounds(tmp_path: Path) -> None:
    shown = {"audit": ShownEpsilon(0.1, 0.95, ""), "paper_attack": ShownEpsilon(0.0, 0.95, "")}
    rows = (
        BudgetRow("idc", "En1", 1e3, 3e-3, 2e6, "", "", (), "differs", epsilon_exact=1e6, **shown),
        BudgetRow("idc", "DP-SGD", 15.0, 6e-3, 6.0, "", "", (), "differs"),
    )
    (figure,) = figures.draw(Measured(Budgets("budgets", "budgets", (made("cpu"),), rows, 1e-5, 30.0))).values()
    save_figure(figure, tmp_path / "budgets")
    found = {float(x) for line in figure.axes[0].lines for x in np.atleast_1d(line.get_xdata())}
    assert {2e6, 1e6, 0.1, 1e3, 6.0, 15.0} <= found
    assert 0.0 not in found


def test_patches_are_labelled(tmp_path: Path) -> None:
    image = np.zeros((5, 5, 3), dtype=np.uint8)
    used = DataUsed("idc", "IDC subset", "idc", "f" * 16, 9, 2, 2, 2, 3, 1, 1, 1, 1, "")
    patches = Computed("idc-examples", "computed", (replace(made("cpu"), data=(used,)),), "", {})
    (figure,) = figures.draw(Measured(patches, [("negative", [image] * 4), ("positive", [image] * 3)])).values()
    save_figure(figure, tmp_path / "patches")
    assert [axes.get_title(loc="left") for axes in figure.axes if axes.images] == ["negative"] * 4 + ["positive"] * 3
