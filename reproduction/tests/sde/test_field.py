import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from resperturb_reproduction.sde.field import source_pixels, undo_step, velocity

sides = st.integers(min_value=1, max_value=14)


def literal_f(image):
    """The paper's three loops, letter by letter."""
    rows, cols, channels = image.shape
    result = np.zeros(image.shape)
    for k in range(channels):
        for i in range(rows):
            for j in range(cols):
                offset_j = int((j + 50.0 * math.cos(2 * math.pi * i / 180)) % cols)
                offset_i = int((i + 50.0 * math.sin(2 * math.pi * i / 180)) % rows)
                result[i, j, k] = image[(i + offset_j) % rows, (j + offset_i) % cols, k]
    return result


def numbered(rows, cols, channels):
    return np.arange(rows * cols * channels, dtype=float).reshape(rows, cols, channels)


def dense(rows, cols):
    """F as a matrix over flat pixels."""
    matrix = np.zeros((rows * cols, rows * cols))
    matrix[np.arange(rows * cols), source_pixels(rows, cols)] = 1.0
    return matrix


@settings(deadline=None)
@given(sides, sides, st.integers(min_value=1, max_value=3))
def test_equals_the_papers_loops(rows, cols, channels):
    image = numbered(rows, cols, channels)
    assert np.array_equal(velocity(image), literal_f(image))


# From row 90 on the angles pass the places where sine and cosine are zero up to rounding, and int() must cut alike.
@pytest.mark.parametrize("shape", [(200, 7, 1), (190, 3, 2), (60, 75, 1)])
def test_equals_the_papers_loops_on_tall_images(shape):
    image = numbered(*shape)
    assert np.array_equal(velocity(image), literal_f(image))


def test_some_pixels_are_never_read():
    rows, cols = 120, 160  # those of the sample
    assert len(np.unique(source_pixels(rows, cols))) < 0.7 * rows * cols


def test_the_table_cannot_be_changed_by_a_caller():
    with pytest.raises(ValueError, match="read-only"):
        source_pixels(4, 5)[0] = 3


@settings(deadline=None)
@given(sides, sides, st.floats(0.01, 0.5), st.integers(0, 2**32))
def test_undo_step_solves_the_linear_system(rows, cols, dt, seed):
    rng = np.random.default_rng(seed)
    after = rng.normal(size=(rows, cols, 2))
    scale = rng.uniform(0.8, 1.5, size=after.shape)
    found = undo_step(after, scale, dt)
    for channel in range(2):
        matrix = np.diag(scale[:, :, channel].ravel()) + dt * dense(rows, cols)
        expected = np.linalg.solve(matrix, after[:, :, channel].ravel())
        assert np.allclose(found[:, :, channel].ravel(), expected, rtol=1e-10, atol=1e-10)


def test_undo_step_undoes_a_step_even_where_a_pixel_is_nearly_wiped_out():
    rng = np.random.default_rng(5)
    x = rng.random((30, 40, 3))
    scale = 1.0 + rng.normal(size=x.shape)
    assert np.abs(scale).min() < 0.01
    assert np.allclose(undo_step(scale * x + 0.1 * velocity(x), scale, 0.1), x, atol=1e-9)
