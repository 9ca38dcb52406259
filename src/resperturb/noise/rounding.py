"""Noise in half precision: added in 32 bits, and refused where the rounding of the features swallows it."""

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from resperturb.errors import ResperturbError

if TYPE_CHECKING:
    from resperturb.noise.source import Draw

# A draw that leaves more of the elements as they were than this is no noise any more.
SWALLOWED = 0.5

_calls = itertools.count()


class NoiseLostError(ResperturbError):
    """A model that was perturbed lacks some of its noise."""


def is_half(value: Any) -> bool:
    """Whether a tensor has fewer than 32 bits."""
    return isinstance(value, Tensor) and value.dtype.itemsize < 4  # it may be a proxy of torch.fx


def added(
    apply: Callable[..., Tensor],
    total: Tensor,
    scale: Tensor | None,
    noise: "Draw",
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


def rounded(
    total: Tensor, wide: Tensor, noisy: Tensor, where: str = "a junction", to: torch.dtype | None = None
) -> Tensor:
    """Round ``noisy``, which is ``total`` in 32 bits (``wide``) with noise, and make sure that it is still there.

    ``to`` is the type to round to, or else that of ``total``; ``where`` names the place in the message.

    Raises:
        NoiseLostError: Most elements are as without noise. It is not noticed in graphs that are compiled or
            exported, which cannot look at values.
    """
    result = noisy.to(to or total.dtype)
    # On a GPU to look is to wait, so it is done now and then; 61 is prime, so that every place has its turn.
    if _values_are_there(total) and (total.device.type == "cpu" or next(_calls) % 61 == 0):
        with torch.no_grad():
            meant = noisy != wide
            same = result == total.to(result.dtype)
            refuse_swallowed(int((same & meant).sum()), int(meant.sum()), result.dtype, where)
    return result


def refuse_swallowed(same: int, meant: int, dtype: torch.dtype, where: str = "a junction") -> None:
    """Refuse noise that rounding to ``dtype`` takes away.

    Raises:
        NoiseLostError: Of the elements that were ``meant`` to change, more than half are the ``same``.
    """
    if same > SWALLOWED * meant:
        raise NoiseLostError(
            f"the noise at {where} is smaller than the rounding of {dtype}: {same / meant:.0%} of the elements did "
            "not change; run the model in 32 bits, or with more noise."
        )


def _values_are_there(tensor: Tensor) -> bool:
    if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None or tensor.is_meta:
        return False
    return (
        not isinstance(tensor, torch._subclasses.FakeTensor) and torch._C._functorch.peek_interpreter_stack() is None
    )
