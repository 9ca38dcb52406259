"""That the normals of both samplers are normals, whatever the key, and that nothing ties their streams together."""

from functools import cache

import numpy as np
import pytest
import torch
from scipy import stats

from resperturb.noise.source import standard_normal
from resperturb.noise.threefry import has_compiler, normals, threefry

COUNT = 1 << 22
SAMPLERS = [
    pytest.param(False, id="twister"),
    pytest.param(True, id="threefry", marks=pytest.mark.skipif(not has_compiler(), reason="no C++ compiler here")),
]
# Each test would fail by bad luck with some other key once in about ten thousand keys.
SIGMAS = 4.5


@cache
def drawn(compiled: bool, key: int, count: int = COUNT) -> np.ndarray:
    return standard_normal(torch.empty(count), key.to_bytes(16, "little"), compiled).numpy().astype(np.float64)


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [  # the published answers of Random123 for Threefry-4x32-20
        ([0] * 4, [0] * 4, "9c6ca96a e17eae66 fc10ecd4 5256a7d8"),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 4, "2a881696 57012287 f6c7446e a16a6732"),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0, 0x082EFA98, 0xEC4E6C89],
            "59cd1dbb b8879579 86b5d00c ac8b6d84",
        ),
    ],
)
def test_the_words_are_the_published_ones(counter: list[int], key: list[int], expected: str) -> None:
    def signed(words: list[int]) -> list[torch.Tensor]:
        return [torch.tensor(word, dtype=torch.int64).to(torch.int32) for word in words]

    words = threefry(signed(counter), signed(key))
    assert " ".join(f"{int(word) & 0xFFFFFFFF:08x}" for word in words) == expected


@pytest.mark.parametrize("compiled", SAMPLERS)
def test_moments_are_those_of_a_normal(compiled: bool) -> None:
    z = drawn(compiled, 1)
    # The p-th power of a standard normal has mean m_p = (p-1)!! (0 if p is odd) and variance m_2p - m_p^2.
    for power in range(1, 7):
        mean, square = (float(stats.norm.moment(order)) for order in (power, 2 * power))
        assert abs(np.mean(z**power) - mean) < SIGMAS * np.sqrt((square - mean**2) / z.size)


@pytest.mark.parametrize("compiled", SAMPLERS)
def test_the_distribution_is_normal_by_kolmogorov_and_smirnov(compiled: bool) -> None:
    assert stats.kstest(drawn(compiled, 1)[:2_000_000], "norm").pvalue > 1e-4


@pytest.mark.parametrize("compiled", SAMPLERS)
def test_the_tails_are_as_heavy_as_they_should_be_to_five_sigma(compiled: bool) -> None:
    z = np.concatenate([drawn(compiled, key) for key in (1, 2, 3)])
    for side in (z, -z):
        for beyond in (3.0, 4.0, 4.5, 5.0):
            expected = stats.norm.sf(beyond) * z.size
            assert stats.binomtest(int((side > beyond).sum()), z.size, expected / z.size).pvalue > 1e-5
    assert np.abs(z).max() > 5.0


@pytest.mark.parametrize("compiled", SAMPLERS)
def test_numbers_are_not_correlated_at_any_distance_that_the_sampler_knows(compiled: bool) -> None:
    z = drawn(compiled, 1)
    # Neighbours, the lanes of a vector, the chunks of a thread, and the quarters that share a hash.
    for lag in (1, 2, 3, 4, 8, 16, 1 << 18, COUNT // 4, COUNT // 2, 3 * COUNT // 4):
        for f in (lambda x: x, np.square, np.abs):
            a, b = f(z[:-lag]), f(z[lag:])
            assert abs(np.corrcoef(a, b)[0, 1]) < SIGMAS / np.sqrt(a.size)


@pytest.mark.parametrize("compiled", SAMPLERS)
def test_keys_that_differ_in_one_bit_have_nothing_in_common(compiled: bool) -> None:
    count = 1 << 18
    z = drawn(compiled, 1, count)
    for bit in (0, 31, 32, 63, 64, 95, 96, 127):
        other = drawn(compiled, 1 ^ (1 << bit), count)
        assert abs(np.corrcoef(z, other)[0, 1]) < SIGMAS / np.sqrt(count)
        assert (z == other).mean() < 1e-5


@pytest.mark.skipif(not has_compiler(), reason="no C++ compiler here")
def test_the_compiler_computes_what_is_written() -> None:
    key = bytes(range(16))
    for count in (1, 5, 4096, 100_003):
        compiled = standard_normal(torch.empty(count), key, compiled=True)
        written = normals(torch.frombuffer(bytearray(key), dtype=torch.int32), -(-count // 4))[:count]
        torch.testing.assert_close(compiled, written, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not has_compiler(), reason="no C++ compiler here")
def test_the_number_of_threads_does_not_change_the_numbers() -> None:
    threads = torch.get_num_threads()
    one = standard_normal(torch.empty(100_003), bytes(16), compiled=True)
    torch.set_num_threads(2)
    try:
        assert standard_normal(torch.empty(100_003), bytes(16), compiled=True).equal(one)
    finally:
        torch.set_num_threads(threads)
