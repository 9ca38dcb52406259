"""Noise of any strategy in half precision: added in 32 bits, and checked."""

from collections.abc import Callable

import torch
from torch import Tensor

from resperturb.noise import Draw
from resperturb.noise.rounding import NoiseLostError, is_half, rounded

__all__ = ["NoiseLostError", "added", "autocast_type", "is_half"]


def added(
    apply: Callable[..., Tensor],
    total: Tensor,
    scale: Tensor | None,
    noise: Draw,
    where: str,
    then: torch.dtype | None = None,
) -> Tensor:
    """Return ``apply(total, scale, noise)``, computed in at least 32 bits, in the type that ``total`` had.

    ``then`` is what the next layer rounds to, if that is known and another type; ``where`` names the place in the
    message.

    Raises:
        NoiseLostError: ``total`` or ``then`` is half precision, whose rounding leaves most elements as without noise.
    """
    half = is_half(total)
    if not half and then is None:
        return apply(total, scale, noise)
    wide = total.float() if half else total
    noisy = apply(wide, None if scale is None else scale.float(), noise)
    result = rounded(total, wide, noisy, where, then)
    return result if half else noisy


def autocast_type(batch: Tensor) -> torch.dtype | None:
    """Say what the first layer rounds a batch to under ``torch.autocast``; None where it takes it as it is."""
    if not isinstance(batch, Tensor) or torch.compiler.is_compiling() or batch.dtype is not torch.float32:
        return None
    kind = batch.device.type
    on = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.get_autocast_dtype(kind) if on else None
