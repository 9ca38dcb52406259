"""The normals of every sampler are normal for every key, and their streams are independent."""

import math
import os
from functools import cache
from pathlib import Path

import mpmath
import numpy as np
import pytest
import torch
from scipy import stats

from resperturb.noise import kernel as kernels
from resperturb.noise import normals
from resperturb.noise.kernel import Kernel, has_compiler, kernel
from resperturb.noise.normals import add_normal, noisy_sum, standard_normal
from resperturb.noise.rounding import NoiseLostError

COUNT = 1 << 22
needs_kernel = pytest.mark.skipif(kernel() is None, reason="no C++ compiler, or no AES instructions here")
SAMPLERS = [pytest.param("kernel", marks=needs_kernel), "numpy", "device"]
# Each test would fail by bad luck with some other key once in about ten thousand keys.
SIGMAS = 4.5


@cache
def drawn(sampler: str, key: int, count: int = COUNT) -> np.ndarray:
    secret = key.to_bytes(16, "little")
    if sampler == "device":
        # A generator on a GPU keeps 63 bits of a key; here it is the processor's, which has all of them.
        return normals._on_device(count, secret, torch.device("cpu")).numpy()
    with pytest.MonkeyPatch.context() as patch:
        if sampler == "numpy":
            patch.setattr(normals, "kernel", lambda: None)
        return standard_normal(torch.empty(count), secret).numpy().astype(np.float64)


def loaded() -> Kernel:
    found = kernel()
    assert found is not None
    return found


@needs_kernel
@pytest.mark.parametrize(
    ("key", "plain", "expected"),
    [  # FIPS 197, appendices B and C.1, and SP 800-38A F.5.1, the four blocks of CTR-AES128
        ("2b7e151628aed2a6abf7158809cf4f3c", "3243f6a8885a308d313198a2e0370734", "3925841d02dc09fbdc118597196a0b32"),
        ("000102030405060708090a0b0c0d0e0f", "00112233445566778899aabbccddeeff", "69c4e0d86a7b0430d8cdb78070b4c55a"),
        ("2b7e151628aed2a6abf7158809cf4f3c", "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff", "ec8cdf7398607cb0f2d21675ea9ea1e4"),
        ("2b7e151628aed2a6abf7158809cf4f3c", "f0f1f2f3f4f5f6f7f8f9fafbfcfdff00", "362b7c3c6773516318a077d7fc5073ae"),
        ("2b7e151628aed2a6abf7158809cf4f3c", "f0f1f2f3f4f5f6f7f8f9fafbfcfdff01", "6a2cc3787889374fbeb4c81b17ba6c44"),
        ("2b7e151628aed2a6abf7158809cf4f3c", "f0f1f2f3f4f5f6f7f8f9fafbfcfdff02", "e89c399ff0f198c6d40a31db156cabfe"),
    ],
)
def test_the_cipher_is_aes(key: str, plain: str, expected: str) -> None:
    assert loaded().words(bytes.fromhex(key), bytes.fromhex(plain)).hex() == expected


@needs_kernel
def test_the_kernel_computes_box_muller_of_the_ciphers_words() -> None:
    key, tile = bytes(range(16)), 3
    blocks = (loaded().words(key, (256 * tile + i).to_bytes(16, "little")) for i in range(256))
    words = np.frombuffer(b"".join(blocks), dtype=np.uint32).astype(np.int64)
    radius = np.sqrt(-2 * np.log(((words[:512] >> 1) + 0.5) / 2**31))
    turn = words[512:]
    # Two bits pick one of four axes, thirty an angle within 45 degrees of it.
    within = (turn & 0x3FFFFFFF).astype(float)
    within = np.where(within >= 2**29, within - 2**30, within) * (math.pi / 4) / 2**29
    angle = within + (math.pi / 2) * ((turn >> 30) & 1) + math.pi * (turn >> 31)
    expected = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
    found = standard_normal(torch.empty(1024 * (tile + 1)), key)[-1024:].numpy()
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)


def words_of(key: bytes, tiles: int) -> np.ndarray:
    """The words that radius and angle of each pair are drawn from, of the first ``tiles`` tiles."""
    cipher, block = loaded(), np.empty(64, dtype=np.uint32)
    words = np.empty((tiles * 16, 64), dtype=np.uint32)
    for first in range(tiles * 16):
        cipher._words(key, 16 * first, 0, block.ctypes.data)
        words[first] = block
    return words.reshape(tiles, 2, 512)


@needs_kernel
def test_every_radius_is_as_exact_as_is_promised() -> None:
    tiles = 4096
    for key in ((5).to_bytes(16, "little"), bytes(16)):
        words = words_of(key, tiles)[:, 0].astype(np.int64)
        drawn = standard_normal(torch.empty(1024 * tiles), key).double().numpy().reshape(tiles, 2, 512)
        radius = np.hypot(drawn[:, 0], drawn[:, 1])
        rare = (words < 2**16) | (words >= 2**32 - 2**16)
        assert 30 < rare.sum() < 110  # 64 are expected of two million
        # The exact radii with the same 31 bits lie between those of the two ends of the cell.
        cell = (words >> 1)[~rare]
        ends = [np.sqrt(-2 * np.log1p(-(2.0**31 - end) / 2.0**31)) for end in (cell, cell + 1)]
        for end in ends:
            assert np.abs(radius[~rare] - end).max() < 2.0**-16
        for tile, place in np.argwhere(rare):
            more = np.empty(64, dtype=np.uint32)
            loaded()._words(key, 16 * int(tile * 512 + place), 1, more.ctypes.data)
            bits = int(words[tile, place] >> 1)
            for word in more[:3]:
                bits = (bits << 32) + int(word)
            with mpmath.workprec(300):
                exact = mpmath.sqrt(-2 * mpmath.log((bits + mpmath.mpf(1) / 2) / mpmath.mpf(2) ** 127))
            assert radius[tile, place] == pytest.approx(float(exact), rel=1e-6)


@needs_kernel
def test_the_ends_of_the_radius_have_their_exact_probabilities() -> None:
    far, near = [], []
    for key in range(12):
        pairs = drawn("kernel", key).reshape(-1, 2, 512)
        squared = pairs[:, 0] ** 2 + pairs[:, 1] ** 2
        far.append(squared[squared > 32 * math.log(2)] / 2 - 16 * math.log(2))
        near.append(-np.expm1(-squared[squared < -2 * math.log1p(-(2.0**-16))] / 2) * 2.0**16)
    drawn.cache_clear()
    pairs = 12 * COUNT // 2
    for found, law in ((np.concatenate(far), "expon"), (np.concatenate(near), "uniform")):
        assert stats.binomtest(found.size, pairs, 2.0**-16).pvalue > 1e-5
        assert stats.kstest(found, law).pvalue > 1e-5


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_moments_are_those_of_a_normal(sampler: str) -> None:
    z = drawn(sampler, 1)
    # The p-th power of a standard normal has mean m_p = (p-1)!! (0 if p is odd) and variance m_2p - m_p^2.
    for power in range(1, 7):
        mean, square = (float(stats.norm.moment(order)) for order in (power, 2 * power))
        assert abs(np.mean(z**power) - mean) < SIGMAS * np.sqrt((square - mean**2) / z.size)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_distribution_is_normal_by_kolmogorov_and_smirnov(sampler: str) -> None:
    assert stats.kstest(drawn(sampler, 1)[:2_000_000], "norm").pvalue > 1e-4


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_tails_are_as_heavy_as_they_should_be_to_five_sigma(sampler: str) -> None:
    z = np.concatenate([drawn(sampler, key) for key in (1, 2, 3)])
    for side in (z, -z):
        for beyond in (3.0, 4.0, 4.5, 5.0):
            expected = stats.norm.sf(beyond) * z.size
            assert stats.binomtest(int((side > beyond).sum()), z.size, expected / z.size).pvalue > 1e-5
    assert np.abs(z).max() > 5.0


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_numbers_are_not_correlated_at_any_distance_that_the_sampler_knows(sampler: str) -> None:
    z = drawn(sampler, 1)
    # Neighbours, the lanes of a vector, the halves of a tile, tiles, the parts of a thread, the halves of a draw.
    for lag in (1, 2, 3, 4, 8, 16, 512, 1024, 1 << 17, 1 << 18, COUNT // 2):
        for f in (lambda x: x, np.square, np.abs):
            a, b = f(z[:-lag]), f(z[lag:])
            assert abs(np.corrcoef(a, b)[0, 1]) < SIGMAS / np.sqrt(a.size)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_keys_that_differ_in_one_bit_have_nothing_in_common(sampler: str) -> None:
    count = 1 << 18
    z = drawn(sampler, 1, count)
    for bit in (0, 31, 32, 63, 64, 95, 96, 127):
        other = drawn(sampler, 1 ^ (1 << bit), count)
        assert abs(np.corrcoef(z, other)[0, 1]) < SIGMAS / np.sqrt(count)
        assert (z == other).mean() < 1e-5


@pytest.mark.parametrize("sampler", ["kernel", "numpy"])
@pytest.mark.parametrize("count", [1, 1023, 1025, 700_003])
def test_the_number_of_threads_does_not_change_the_numbers(sampler: str, count: int) -> None:
    if sampler == "kernel" and kernel() is None:
        pytest.skip("no kernel here")
    drawn.cache_clear()
    one = drawn(sampler, 7, count)
    threads = torch.get_num_threads()
    drawn.cache_clear()
    torch.set_num_threads(3)
    try:
        assert np.array_equal(drawn(sampler, 7, count), one)
        assert np.array_equal(drawn(sampler, 7, 2 * count)[: count // 1024 * 1024], one[: count // 1024 * 1024])
    finally:
        torch.set_num_threads(threads)
        drawn.cache_clear()


def test_double_precision_is_drawn_in_double_precision() -> None:
    z = standard_normal(torch.empty(1000, dtype=torch.float64), bytes(16))
    assert (z != z.float().double()).all()


def test_a_noisy_sum_has_noise_of_the_right_size_and_no_lower_bits_than_it_says() -> None:
    total = torch.linspace(-3, 3, 1 << 16)
    for std in (0.3, 1.0, 700.0):
        found = noisy_sum(total, bytes(16), std)
        assert found.dtype == total.dtype
        assert (found.double() * 2.0**20 / 2.0 ** math.floor(math.log2(std)) % 1 == 0).all()
        assert stats.kstest(((found - total) / std).numpy(), "norm").pvalue > 1e-4
        exact = total.double() + std * standard_normal(total.double(), bytes(16))
        assert ((found - exact).abs() <= std * 2.0**-21 + exact.abs() * 2.0**-24).all()
    assert not noisy_sum(total, bytes([1] * 16), 1.0).equal(noisy_sum(total, bytes(16), 1.0))


# The sums that the numbers are used in

LAYOUTS = [
    torch.zeros(3, 1000),
    torch.zeros(2, 8, 20, 20).to(memory_format=torch.channels_last),
    torch.zeros(8, 500).t(),
    torch.zeros(5, dtype=torch.float64),
    torch.zeros(()),
    torch.zeros(0, 4),
]


@pytest.mark.parametrize("like", LAYOUTS, ids=lambda like: f"{tuple(like.shape)}{like.dtype}")
@pytest.mark.parametrize("with_kernel", [True, False])
def test_sums_use_the_numbers_of_the_key(
    like: torch.Tensor, with_kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not with_kernel:
        monkeypatch.setattr(normals, "kernel", lambda: None)
    torch.manual_seed(0)
    key = bytes(range(16))
    x, factor = torch.randn_like(like), torch.randn_like(like)
    noise = standard_normal(x, key)
    for plus in (None, torch.randn_like(like)):
        total = x if plus is None else x + plus
        torch.testing.assert_close(add_normal(x, plus, None, key, 0.5), total + 0.5 * noise)
        torch.testing.assert_close(add_normal(x, plus, factor, key, 0.5), total + 0.5 * factor * noise)


@pytest.mark.parametrize("with_kernel", [True, False])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_gets_the_numbers_of_32_bits_and_is_rounded_once(
    dtype: torch.dtype, with_kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not with_kernel:
        monkeypatch.setattr(normals, "kernel", lambda: None)
    torch.manual_seed(0)
    key = bytes(range(16))
    x, plus, factor = (torch.randn(3, 4, 11, 100).to(dtype) for _ in range(3))
    x[0, 0, 0, 0], plus[0, 0, 0, 1] = math.inf, math.nan
    noise = standard_normal(x.float(), key)
    for other in (None, plus):
        total = x.float() if other is None else x.float() + other.float()
        for found, added in (
            (add_normal(x, other, None, key, 0.5), 0.5 * noise),
            (add_normal(x, other, factor, key, 0.5), 0.5 * factor.float() * noise),
        ):
            assert found.dtype == dtype
            meant = total + added
            # Half a unit in the last place, but for sums whose 32nd bit decides which way to round.
            apart = found.float() != meant.to(dtype).float()
            assert (apart & ~meant.isnan()).float().mean() < 1e-3
            torch.testing.assert_close(found.float(), meant, rtol=torch.finfo(dtype).eps, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("with_kernel", [True, False])
@pytest.mark.parametrize("threads", [1, 2])
def test_noise_that_most_halves_round_away_is_an_error(
    threads: int, with_kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not with_kernel:
        monkeypatch.setattr(normals, "kernel", lambda: None)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        x = torch.full((100_003,), 4.0, dtype=torch.bfloat16)  # numbers here are 1/32 above and 1/64 below
        add_normal(x, None, None, bytes(16), 0.03)
        with pytest.raises(NoiseLostError, match=r"(\d\d)% of the elements did not change") as caught:
            add_normal(x, None, None, bytes(16), 0.01)
        # Less than 1/64 above and 1/128 below is rounded away: 94% and 78%, halved.
        share = float(str(caught.value).partition(": ")[2].partition("%")[0]) / 100
        assert share == pytest.approx((stats.norm.cdf(1.5625) + stats.norm.cdf(0.78125)) - 1, abs=0.01)
        add_normal(x, None, x, bytes(16), 0.0001, checked=False)
        add_normal(x, None, None, bytes(16), 0.0)
    finally:
        torch.set_num_threads(before)


def test_tensors_with_holes_or_different_layouts_get_the_same_numbers_as_any() -> None:
    key = bytes(16)
    x = torch.zeros(4, 6)[:, ::2]
    torch.testing.assert_close(add_normal(x, None, None, key, 2.0), 2 * standard_normal(x, key))
    base, factor = torch.zeros(2, 3, 4, 4), torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    torch.testing.assert_close(add_normal(base, None, factor, key, 1.0), factor * standard_normal(base, key))


# Where the kernel is kept


@pytest.mark.skipif(not has_compiler(), reason="no C++ compiler here")
def test_the_compiled_kernel_is_kept_where_only_its_owner_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = kernels._built()
    assert tmp_path in path.parents
    assert path.stat().st_mode & 0o022 == path.parent.stat().st_mode & 0o022 == 0
    written = path.stat().st_mtime_ns
    assert kernels._built() == path
    assert path.stat().st_mtime_ns == written
    path.chmod(0o777)  # another user may have written to it
    kernels._built()
    assert path.stat().st_mtime_ns != written
    path.parent.chmod(0o777)
    assert tmp_path not in kernels._built().parents
    path.parent.chmod(0o700)


@pytest.mark.parametrize("compiler", ["no-such-compiler", "false"])
def test_without_a_working_compiler_there_is_no_kernel_and_there_is_noise(
    compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", compiler)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kernels.has_compiler.cache_clear()
    kernels.kernel.cache_clear()
    try:
        assert kernels.kernel() is None
        assert standard_normal(torch.empty(100), bytes(16)).std() > 0.5
    finally:
        monkeypatch.undo()
        kernels.has_compiler.cache_clear()
        kernels.kernel.cache_clear()


def test_a_home_that_cannot_be_written_to_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    folder = kernels._cache_folder()
    assert folder.is_dir()
    assert os.stat(folder).st_mode & 0o077 == 0
