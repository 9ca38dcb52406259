"""Noise in half precision: added in 32 bits, and refused where the rounding of the features swallows it."""

import itertools
from typing import Any

import torch
from torch import Tensor

from resperturb.errors import ResperturbError

# A draw that leaves more of the elements as they were than this is no noise any more.
SWALLOWED = 0.5

_calls = itertools.count()


class NoiseLostError(ResperturbError):
    """A model that was perturbed lacks some of its noise."""


def is_half(value: Any) -> bool:
    """Whether a tensor has fewer than 32 bits."""
    return isinstance(value, Tensor) and value.dtype.itemsize < 4  # it may be a proxy of torch.fx


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
