"""Every kind of result can be drawn, whole or in part, and what is drawn are its numbers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from resperturb.paper.figures import reproduction as figures
from resperturb.paper.reproduce.results import Measured
from resperturb.report.figures import save_figure


def spread(mean: float) -> dict[str, Any]:
    return {"mean": mean, "error": 0.01, "values": [mean]}


def row(gamma: float, auc: float, data: str = "cifar10", networks: int = 5, printed: float | None = 0.6) -> Any:
    return {
        "name": f"En{networks} ResNet8, gamma {gamma:g}",
        "data": data,
        "gamma": gamma,
        "networks": networks,
        "paper": None if printed is None else {"auc": printed, "train_accuracy": None, "test_accuracy": 0.7},
        "measured": {
            "auc": spread(auc),
            "adaptive_auc": spread(auc + 0.02),
            "train_accuracy": spread(0.9),
            "test_accuracy": spread(0.66),
            "gap": spread(0.24),
        },
        "audit": {"auc": auc + 0.05, "auc_interval": [auc + 0.04, auc + 0.06]},
        "thresholds": [
            {"threshold": t, "precision": None if t > 0.7 else 0.6, "recall": 0.4} for t in (0.5, 0.6, 0.8)
        ],
        "roc": {"fpr": [0.0, 0.4, 1.0], "tpr": [0.0, 0.6, 1.0]},
    }


def result(name: str, kind: str, rows: list[Any], **more: Any) -> Measured:
    shown = [{"name": data, "shown": data.upper()} for data in dict.fromkeys(r["data"] for r in rows)]
    return Measured(
        {"id": name, "kind": kind, "title": "A title", "preset": "cpu", "data": shown, "rows": rows, **more}
    )


THEOREM = {"predicted_gap": {"0": 0.3, "1": 0.2}, "ratios": {"0": 1.0, "1": 0.9}}
RESULTS = [
    result("cifar10-table", "table", [row(0.0, 0.75), row(0.5, 0.6), row(1.0, 0.5, printed=None)]),
    result("cifar10-sweep", "sweep", [row(0.0, 0.75), row(0.5, 0.6), row(0.75, 0.55), row(1.0, 0.5)]),
    result(
        "cifar10-ensemble", "ensemble", [row(g, 0.6, networks=k, printed=None) for k in (1, 5) for g in (0.5, 1.0)]
    ),
    result("roc-additive", "roc", [row(g, 0.6, data) for data in ("cifar10", "idc") for g in (0.0, 0.5)]),
    result("generalisation", "generalisation", [row(0.0, 0.7), row(1.0, 0.6)], theorem=THEOREM),
]


@pytest.mark.parametrize("measured", RESULTS, ids=lambda measured: measured.result["kind"])
def test_every_kind_is_drawn_as_png_and_svg(tmp_path: Path, measured: Measured) -> None:
    drawn = figures.draw(measured)
    assert list(drawn) == [measured.result["id"]]
    for name, figure in drawn.items():
        png, svg = save_figure(figure, tmp_path / name)
        assert png.stat().st_size > 10_000
        assert svg.read_text().startswith("<?xml")


@pytest.mark.parametrize("measured", RESULTS, ids=lambda measured: measured.result["kind"])
def test_what_is_not_measured_yet_is_left_out(tmp_path: Path, measured: Measured) -> None:
    rows = [{**r, "measured": {}, "audit": None, "thresholds": None, "roc": None} for r in measured.result["rows"]]
    bare = Measured({**measured.result, "rows": rows, "theorem": {"predicted_gap": None, "ratios": {}}})
    for name, figure in figures.draw(bare).items():
        save_figure(figure, tmp_path / name)


def test_the_table_shows_the_measured_values_and_stars_for_the_printed() -> None:
    (figure,) = figures.draw(RESULTS[0]).values()
    left = figure.axes[0]
    drawn = {round(float(x), 3) for line in left.lines for x in np.atleast_1d(line.get_xdata())}
    assert {0.75, 0.6, 0.5} <= drawn  # the paper's attack
    assert {0.77, 0.62, 0.52} <= drawn  # adaptive
    assert {0.8, 0.65, 0.55} <= drawn  # audit
    stars = [line for line in left.lines if line.get_marker() == "*"]
    assert [list(np.atleast_1d(line.get_xdata())) for line in stars] == [[0.6, 0.6]]


def test_the_sweep_has_the_paper_s_four_panels() -> None:
    (figure,) = figures.draw(RESULTS[1]).values()
    assert [axes.get_ylabel() for axes in figure.axes] == ["precision (%)", "recall (%)", "accuracy (%)", "AUC (%)"]
    recall = figure.axes[1]
    assert len(recall.lines) == 4
    assert list(recall.lines[0].get_ydata()) == [40, 40, 40]
    # A threshold that nobody reaches has no precision.
    assert list(figure.axes[0].lines[0].get_xdata()) == [0.5, 0.6]


def test_budgets_are_drawn_with_and_without_lower_bounds(tmp_path: Path) -> None:
    rows = [
        {"data": "idc", "name": "En1", "paper": {"epsilon": 1e3, "lower": 3e-3}, "epsilon": 2e6, "epsilon_exact": 1e6,
         "lower": {"audit": {"epsilon": 0.1}, "paper_attack": {"epsilon": 0.0}}},
        {"data": "idc", "name": "DP-SGD", "paper": {"epsilon": 15.0, "lower": 6e-3}, "epsilon": 6.0, "lower": {}},
    ]  # fmt: skip
    measured = Measured({"id": "budgets", "kind": "function", "title": "", "preset": "cpu", "rows": rows})
    (figure,) = figures.draw(measured).values()
    save_figure(figure, tmp_path / "budgets")
    drawn = {float(x) for line in figure.axes[0].lines for x in np.atleast_1d(line.get_xdata())}
    assert {2e6, 1e6, 0.1, 1e3, 6.0, 15.0} <= drawn
    assert 0.0 not in drawn


def test_patches_are_labelled(tmp_path: Path) -> None:
    image = np.zeros((5, 5, 3), dtype=np.uint8)
    data = [{"name": "idc", "shown": "IDC subset"}]
    measured = Measured(
        {"id": "idc-examples", "kind": "function", "title": "", "preset": "cpu", "data": data},
        [("negative", [image] * 4), ("positive", [image] * 3)],
    )
    (figure,) = figures.draw(measured).values()
    save_figure(figure, tmp_path / "patches")
    assert [axes.get_title(loc="left") for axes in figure.axes if axes.images] == ["negative"] * 4 + ["positive"] * 3
