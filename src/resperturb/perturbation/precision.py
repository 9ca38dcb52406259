"""Noise in half precision: added in 32 bits, and refused where the rounding of the features swallows it."""

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from resperturb.errors import ResperturbError
from resperturb.noise import Draw

# A draw that leaves more of the elements as they were than this is no noise any more.
SWALLOWED = 0.5


class NoiseLostError(ResperturbError):
    """A model that was perturbed lacks some of its noise."""


_calls = itertools.count()


def added(
    apply: Callable[..., Tensor],
    total: Tensor,
    scale: Tensor | None,
    noise: Draw,
    where: str,
    then: torch.dtype | None = None,
) -> Tensor:
    """Add noise to ``total`` in at least 32 bits, and return it in the type that ``total`` had.

    Args:
        apply: Adds noise: ``apply(total, scale, noise)``.
        total: What the noise goes to.
        scale: What ``apply`` scales the noise by, if anything.
        noise: The draw.
        where: The place, for the message.
        then: What the next layer rounds to, if that is known and not the type of ``total``.

    Raises:
        NoiseLostError: ``total`` or ``then`` is half precision, whose rounding leaves most elements as without noise.
            Not noticed in compiled or exported graphs, which cannot look at values.
    """
    half = is_half(total)
    if not half and then is None:
        return apply(total, scale, noise)
    wide = total.float() if half else total
    noisy = apply(wide, None if scale is None else scale.float(), noise)
    rounded = noisy.to(then or total.dtype)
    # On a GPU to look is to wait, so it is done now and then; 61 is prime, so that every place has its turn.
    if _values_are_there(total) and (total.device.type == "cpu" or next(_calls) % 61 == 0):
        with torch.no_grad():
            meant = noisy != wide
            same = rounded == total.to(rounded.dtype)
            share = float((same & meant).sum() / meant.sum().clamp_min(1))
            if share > SWALLOWED:
                raise NoiseLostError(
                    f"the noise at {where} is smaller than the rounding of {rounded.dtype}: {share:.0%} of the "
                    "elements did not change; run the model in 32 bits, or with more noise."
                )
    return rounded if half else noisy


def autocast_type(batch: Tensor) -> torch.dtype | None:
    """Say what the first layer rounds a batch to under ``torch.autocast``; None where it takes it as it is."""
    if not isinstance(batch, Tensor) or torch.compiler.is_compiling() or batch.dtype is not torch.float32:
        return None
    kind = batch.device.type
    on = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.get_autocast_dtype(kind) if on else None


def is_half(value: Any) -> bool:
    """Whether a tensor has fewer than 32 bits."""
    return isinstance(value, Tensor) and value.dtype.itemsize < 4  # it may be a proxy of torch.fx


def _values_are_there(tensor: Tensor) -> bool:
    if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None or tensor.is_meta:
        return False
    return (
        not isinstance(tensor, torch._subclasses.FakeTensor) and torch._C._functorch.peek_interpreter_stack() is None
    )
