"""Wavelet scattering: two layers of fixed wavelets and moduli, without any training.

Morlet wavelets of two scales and eight orientations (J = 2, L = 8) give 81 channels per colour at a quarter of the
size, as Scattering2D of kymatio does: the low pass, 16 moduli of first order and 64 of second order. GroupNorm in 27
groups without weights then scales each image by itself.
"""

import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from resperturb.errors import UsageError
from resperturb.features.extractor import Extractor, Reduction, register_extractor

SCALES, ANGLES, CHANNELS, GROUPS = 2, 8, 81, 27
# Standard deviation of the finest envelope, in pixels; it doubles with the scale.
_WIDTH = 0.8
_VERSION = 1
SMALLEST = 8


@register_extractor("scattering")
class ScatteringFeatures(Extractor):
    """Scattering coefficients, normalised per image."""

    default_reduction: ClassVar = "synthetic"

    def __init__(self, name: str, weights: str, reduction: Reduction | None) -> None:
        super().__init__(name, weights, reduction)
        if name or weights:
            raise UsageError("scattering is a fixed transform: it has no variants and no weights.")

    def public(self) -> tuple[str, str, str, str]:
        """Describe a transform that nothing was ever learned for."""
        origin = "Wavelet scattering, J = 2, L = 8: fixed filters, learned from no data."
        return "scattering", origin, "", f"GroupNorm({GROUPS}) per image, version {_VERSION}"

    def raw_dimensions(self, channels: int, size: tuple[int, int]) -> int:
        """Return 81 channels per colour, at a quarter of the size."""
        if min(size) < SMALLEST:
            raise UsageError(f"scattering needs images of at least {SMALLEST} pixels, not {size[1]}x{size[0]}.")
        return channels * CHANNELS * math.prod(len(_low_pass(_padded(n), 0)) for n in size)

    def raw(self, channels: int, size: tuple[int, int]) -> nn.Module:
        """Build the transform."""
        return nn.Sequential(Scattering(size), nn.GroupNorm(GROUPS, CHANNELS * channels, affine=False), nn.Flatten())


class Scattering(nn.Module):
    """Scattering of second order: ``[B, C, H, W]`` to ``[B, 81 C, H/4, W/4]``.

    >>> Scattering((28, 28))(torch.zeros(2, 3, 28, 28)).shape
    torch.Size([2, 243, 7, 7])
    """

    fine: Tensor
    coarse: Tensor

    def __init__(self, size: tuple[int, int]) -> None:
        super().__init__()
        padded = _padded(size[0]), _padded(size[1])
        before = [(n - m) // 2 for n, m in zip(padded, size, strict=True)]
        after = [n - m - b for n, m, b in zip(padded, size, before, strict=True)]
        self.padding = before[1], after[1], before[0], after[0]
        for scale, name in enumerate(("fine", "coarse")):
            self.register_buffer(name, _wavelets(padded, scale).float(), persistent=False)
            for axis, n in zip(("rows", "columns"), padded, strict=True):
                self.register_buffer(f"{axis}{scale}", _low_pass(n, scale).float(), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Transform images."""
        x = F.pad(images, self.padding, mode="reflect")
        spectrum = torch.fft.fft2(x)[:, :, None]
        first = torch.fft.ifft2(spectrum * self.fine).abs()
        second = _halved(torch.fft.fft2(first)[:, :, :, None] * self.coarse).flatten(2, 3)
        found = [
            self._smooth(x[:, :, None], 0),
            self._smooth(first, 0),
            self._smooth(_halved(spectrum * self.coarse), 1),
            self._smooth(second, 1),
        ]
        return torch.cat(found, dim=2).flatten(1, 2)

    def _smooth(self, x: Tensor, scale: int) -> Tensor:
        rows, columns = self.get_buffer(f"rows{scale}"), self.get_buffer(f"columns{scale}")
        smooth: Tensor = rows @ x @ columns.T
        return smooth


def _padded(n: int) -> int:
    """Return the padded size: a multiple of four, with at least a sample of the output to spare on either side."""
    return (n // 4 + 2) * 4


def _halved(spectrum: Tensor) -> Tensor:
    """Return the moduli of a signal at half its size: a fold of the spectrum leaves every second sample."""
    *batch, height, width = spectrum.shape
    folded = spectrum.view(*batch, 2, height // 2, 2, width // 2).mean(dim=(-4, -2))
    moduli: Tensor = torch.fft.ifft2(folded).abs()
    return moduli


def _wavelets(size: tuple[int, int], scale: int) -> Tensor:
    """Return the spectra of the Morlet wavelets of one scale, real, one per orientation ``[8, H, W]``."""
    sigma, frequency, slant = _WIDTH * 2**scale, 0.75 * math.pi / 2**scale, 4 / ANGLES
    height, width = size
    y = torch.arange(-2 * height, 3 * height, dtype=torch.float64)[:, None]  # five periods, to be added up
    x = torch.arange(-2 * width, 3 * width, dtype=torch.float64)[None]
    spectra = []
    for number in range(ANGLES):
        angle = (ANGLES // 2 - 1 - number) * math.pi / ANGLES
        along = y * math.cos(angle) + x * math.sin(angle)
        across = x * math.cos(angle) - y * math.sin(angle)
        envelope = torch.exp(-(along**2 + (slant * across) ** 2) / (2 * sigma**2))
        wave = _folded(envelope * torch.exp(1j * frequency * along), size)
        bump = _folded(envelope, size)
        morlet = (wave - wave.sum() / bump.sum() * bump) * slant / (2 * math.pi * sigma**2)
        spectra.append(torch.fft.fft2(morlet).real)
    return torch.stack(spectra)


def _folded(signal: Tensor, size: tuple[int, int]) -> Tensor:
    return signal.view(5, size[0], 5, size[1]).sum(dim=(0, 2))


def _low_pass(n: int, scale: int) -> Tensor:
    """Return the matrix ``[n/4 - 2, n / 2**scale]`` that smooths by a Gaussian and takes the samples inside."""
    sigma = _WIDTH * 2 ** (SCALES - 1)
    x = torch.arange(-2 * n, 3 * n, dtype=torch.float64)
    kernel = torch.exp(-(x**2) / (2 * sigma**2)).view(5, n).sum(0) / math.sqrt(2 * math.pi * sigma**2)
    m = n // 2**scale
    spectrum = torch.fft.fft(kernel).real
    if scale:  # the frequencies that a signal of half the size has
        spectrum = torch.cat([spectrum[: m // 2], spectrum[-(m // 2) :]])
    kernel = torch.fft.ifft(spectrum).real
    samples = torch.arange(1, n // 4 - 1) * (4 // 2**scale)
    matrix: Tensor = kernel[(samples[:, None] - torch.arange(m)[None]) % m]
    return matrix
