import xml.etree.ElementTree as ElementTree

import matplotlib
import pytest
from matplotlib.figure import Figure
from PIL import Image
from resperturb_reproduction.figures.style import PALETTE, paper_style, save_figure

from resperturb.errors import ResperturbError


def a_figure():
    with paper_style():
        figure = Figure(figsize=(3, 2))
        axes = figure.subplots()
        for k in range(3):
            axes.plot([0, 1], [k, 2 * k], label=f"line {k}")
        axes.set_xlabel(r"$\gamma$")
        axes.legend()
    return figure


def test_png_at_200_dpi_and_svg_without_a_date(tmp_path):
    png, svg = save_figure(a_figure(), tmp_path / "deep" / "run.1")
    assert (png.name, svg.name) == ("run.1.png", "run.1.svg")
    with Image.open(png) as image:
        assert image.size == (600, 400)
        assert image.info["dpi"] == pytest.approx((200, 200), abs=0.1)
    assert ElementTree.parse(svg).getroot().tag.endswith("svg")
    assert "date" not in svg.read_text().lower()
    assert sorted(p.name for p in svg.parent.iterdir()) == ["run.1.png", "run.1.svg"]


def test_the_same_figure_gives_the_same_bytes_whatever_the_users_settings(tmp_path):
    first = save_figure(a_figure(), tmp_path / "first")
    with matplotlib.rc_context({"font.size": 30, "lines.linewidth": 9, "savefig.dpi": 50, "svg.hashsalt": None}):
        second = save_figure(a_figure(), tmp_path / "second")
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_saving_twice_changes_nothing(tmp_path):
    figure = a_figure()
    first = [path.read_bytes() for path in save_figure(figure, tmp_path / "a")]
    assert [path.read_bytes() for path in save_figure(figure, tmp_path / "a")] == first


def test_the_style_gives_the_palette_and_goes_away_again():
    before = dict(matplotlib.rcParams)
    lines = a_figure().axes[0].get_lines()
    assert [line.get_color() for line in lines] == list(PALETTE[:3])
    assert dict(matplotlib.rcParams) == before


def test_a_folder_that_cannot_be_written_is_one_message(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ResperturbError, match="could not write"):
        save_figure(a_figure(), tmp_path / "file" / "figure")
