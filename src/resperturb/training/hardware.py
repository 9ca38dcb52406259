"""What a training computes on and in which precision: the processor or a GPU, alone or among other processes."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from resperturb.errors import UsageError
from resperturb.training.distributed import ALONE, World


@dataclass(frozen=True)
class Hardware:
    """A device and a precision.

    ``scaler`` scales gradients of 16 bits up, which would be rounded to zero; other precisions have none.
    """

    device: torch.device
    dtype: torch.dtype | None = None
    scaler: Any = None

    def autocast(self) -> AbstractContextManager[Any]:
        """Let layers compute in the precision inside a ``with`` block."""
        return nullcontext() if self.dtype is None else torch.autocast(self.device.type, self.dtype)

    def take(self, model: nn.Module, world: World) -> nn.Module:
        """Move a model to the device; among several processes, let their gradients be averaged."""
        model = model.to(self.device)
        if world.size == 1:
            return model
        return DistributedDataParallel(model, None if self.device.type == "cpu" else [self.device.index])

    def step(self, loss: Tensor, optimizer: torch.optim.Optimizer) -> None:
        """Follow the gradient of a loss."""
        optimizer.zero_grad()
        if self.scaler is None:
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        else:
            self.scaler.scale(loss).backward()
            self.scaler.step(optimizer)
            self.scaler.update()


def hardware(accelerator: str, precision: str, world: World = ALONE) -> Hardware:
    """Choose the device, and the precision on it: a processor has bf16 in place of 16-mixed.

    Raises:
        UsageError: There is no such device.

    >>> hardware("cpu", "bf16-mixed").dtype
    torch.bfloat16
    """
    device = _device(accelerator, world)
    if precision == "32-true":
        return Hardware(device)
    if precision == "16-mixed" and device.type != "cpu":
        return Hardware(device, torch.float16, torch.amp.GradScaler(device.type))
    return Hardware(device, torch.bfloat16)


def _device(accelerator: str, world: World) -> torch.device:
    if accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    if accelerator in ("auto", "gpu", "mps") and torch.backends.mps.is_available() and world.size == 1:
        return torch.device("mps")
    if accelerator not in ("auto", "cpu"):
        raise UsageError(f"there is no accelerator {accelerator!r} here; leave it at auto, or take cpu.")
    return torch.device("cpu")
