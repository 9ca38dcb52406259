"""The synthetic map is the same on every machine, and as documented."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

from resperturb.features.reductions.synthetic import Synthetic, dead_leaves


def test_the_synthetic_images_never_change() -> None:
    drawn = np.round(dead_leaves(3, 3, (9, 7), seed=5) * 255).astype(np.uint8)
    assert hashlib.sha256(drawn.tobytes()).hexdigest()[:16] == "5c90be230931d48a"


def test_the_images_have_large_areas_and_edges() -> None:
    drawn = dead_leaves(50, 1, (28, 28))
    steps = np.abs(np.diff(drawn[:, 0], axis=2))
    assert 0.5 < (steps == 0).mean() < 0.95
    assert (steps > 0.2).mean() > 0.05


@pytest.mark.parametrize("width", [12, 90])
def test_the_map_is_the_principal_directions_divided_by_their_spread(width: int) -> None:
    spreads = 2.0 ** -np.arange(width)[:12]
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(width, 12)))[0]
    rows = rng.normal(size=(40, 12)) * spreads @ basis.T
    learned = Synthetic(directions=6, images=40, power=0.5)._learn(rows.copy())
    _, s, v = np.linalg.svd(rows, full_matrices=False)
    expected = v[:6] / np.sqrt(s[:6] + 1e-3 * s[0])[:, None]
    expected *= np.sign(expected[np.arange(6), np.abs(expected).argmax(axis=1)])[:, None]
    np.testing.assert_allclose(learned, expected, rtol=1e-4, atol=1e-5)


def test_the_map_is_learned_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESPERTURB_CACHE", str(tmp_path))

    class Raw(torch.nn.Flatten):
        asked = 0

        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            Raw.asked += len(pixels)
            return super().forward(pixels)

    step = Synthetic(directions=5, images=30)
    one = step.network(Raw(), 1, (8, 8), "raw")
    two = step.network(Raw(), 1, (8, 8), "raw")
    assert Raw.asked == 30
    pixels = torch.rand(4, 64)
    torch.testing.assert_close(one(pixels), two(pixels))
    torch.testing.assert_close(one(pixels).norm(dim=1), torch.ones(4))
