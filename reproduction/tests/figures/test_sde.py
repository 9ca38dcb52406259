import math

import numpy as np
import pytest
from resperturb_reproduction.figures.sde import reversal_figure
from resperturb_reproduction.figures.style import save_figure
from resperturb_reproduction.sde.reversal import run_reversal

IMAGE = np.random.default_rng(0).random((12, 16, 3))


def texts(figure):
    found = [figure.get_suptitle()]
    for axes in figure.axes:
        found += [axes.get_title(loc="left"), axes.get_xlabel(), axes.get_ylabel()]
        found += [text.get_text() for text in axes.texts]
        found += axes.get_legend_handles_labels()[1]
    return "\n".join(found)


@pytest.mark.parametrize("strategy", ["additive", "multiplicative"])
def test_the_panels_show_the_result_in_the_papers_order(strategy):
    result = run_reversal(IMAGE, strategy, gamma=0.5, dt=0.1, seed=3, queries=4)
    figure = reversal_figure(result)
    expected = [
        result.original,
        result.ode_features / math.e,
        result.recoveries["ode"].image,
        result.sde_features / math.e,
        *(result.recoveries[name].image for name in ("paper", "noise_free", "averaged", "known_noise")),
    ]
    for axes, image in zip(figure.axes, expected, strict=True):
        assert np.allclose(axes.images[0].get_array(), np.clip(image, 0, 1))
    written = texts(figure)
    assert strategy in written.lower()
    for setting in (r"\gamma = 0.5", "dt = 0.1", "seed 3", "[0, 1]", "mean of 4 queries", "relative $L_2$"):
        assert setting in written
    assert f"error {result.recoveries['paper'].relative_l2:.3g}" in written


def test_a_grey_image_can_be_drawn(tmp_path):
    figure = reversal_figure(run_reversal(IMAGE[:, :, :1], "additive", dt=0.1, queries=1))
    assert save_figure(figure, tmp_path / "grey")[0].stat().st_size > 1000


def test_figures_are_the_same_bytes_from_the_same_seed(tmp_path):
    def draw(name):
        result = run_reversal(IMAGE, "additive", dt=0.1, queries=2)
        return [path.read_bytes() for path in save_figure(reversal_figure(result), tmp_path / name)]

    assert draw("a") == draw("b")
