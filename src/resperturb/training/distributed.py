"""One training in several processes: who takes which share, what they agree on, and how they end together.

``torchrun`` starts the processes and tells each its rank through the environment. Torch averages their gradients.
Everything else that they must agree on (an error, a request to stop, what the checkpoint says) goes through a second
group, on the CPU, of the few calls of :class:`World`, so that it is the same code on every kind of device.
"""

import atexit
import ctypes
import logging
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from resperturb.errors import ResperturbError, UsageError

# torchrun ends the others when a process dies. A machine that vanishes is noticed by this limit alone; it is long,
# since the first process may measure the accuracy of many images while the others wait.
LONGEST_WAIT = timedelta(hours=6)
SECONDS_FOR_GLOO = 0.5
_PR_SET_PDEATHSIG = 1

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """The processes of one training, and which of them this is; by default there is no other.

    >>> World().share(5), World(rank=1, size=2).share(5)
    (slice(0, 5, None), slice(2, 5, None))
    """

    rank: int = 0
    size: int = 1
    group: Any = None

    @property
    def leads(self) -> bool:
        """Whether this is the one process that writes files and measures accuracies."""
        return self.rank == 0

    @property
    def mark(self) -> tuple[int, ...]:
        """What makes the random numbers of this process its own: nothing if it is alone."""
        return () if self.size == 1 else (self.rank,)

    def share(self, count: int) -> slice:
        """Say which of ``count`` records of a batch this process takes; shares differ by one record at most."""
        return slice(self.rank * count // self.size, (self.rank + 1) * count // self.size)

    def sum(self, *values: float) -> tuple[float, ...]:
        """Add numbers up over all processes.

        >>> World().sum(1.5, 2.0)
        (1.5, 2.0)
        """
        if self.size == 1:
            return values
        total = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(total, group=self.group)
        return tuple(total.tolist())

    def on_first(self, tensor: Tensor) -> Tensor:
        """Add up a tensor over all processes; the first one has the sum, the others have no use for the result."""
        if self.size > 1:
            dist.reduce(tensor, dst=0)
        return tensor

    def of_first(self, tensor: Tensor) -> Tensor:
        """Give every process the first one's tensor."""
        if self.size > 1:
            dist.broadcast(tensor, src=0)
        return tensor

    def first(self, work: Callable[[], T]) -> T:
        """Let the first process do ``work`` while the others wait, and give all of them the answer, or the error."""
        if self.size == 1:
            return work()
        answer: list[Any] = [_attempt(work) if self.leads else None]
        dist.broadcast_object_list(answer, src=0, group=self.group)
        if isinstance(answer[0], Exception):
            raise answer[0]
        return answer[0]  # type: ignore[no-any-return]

    def together(self, work: Callable[[], T]) -> T:
        """Do ``work`` in every process; an error in one of them is an error in all."""
        if self.size == 1:
            return work()
        mine = _attempt(work)
        error = mine if isinstance(mine, Exception) else None
        errors: list[Any] = [None] * self.size
        dist.all_gather_object(errors, (socket.gethostname(), error), group=self.group)
        failed = [(host, found) for host, found in errors if found is not None]
        if failed and len(failed) < self.size:
            host, found = failed[0]
            raise type(found)(f"{found} (This is so on {host}, not everywhere.)") from None
        if isinstance(mine, Exception):
            raise mine
        return mine

    def same(self, what: str, value: str) -> None:
        """Refuse to go on where processes differ in what they must have in common."""
        if self.size == 1:
            return
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, (socket.gethostname(), value), group=self.group)
        for host, other in found:
            if other != found[0][1]:
                raise UsageError(
                    f"the processes of this training differ in {what}: {other} on {host}, {found[0][1]} on "
                    f"{found[0][0]}. Give every machine the same command and the same images."
                )


ALONE = World()


@dataclass(frozen=True)
class Execution:
    """How a training is carried out, besides what its configuration says.

    Its noise comes from ``secret``; None is a new one of the operating system.
    """

    accelerator: str = "auto"
    world: World = ALONE
    secret: bytes | None = None


ON_ITS_OWN = Execution()


def _attempt(work: Callable[[], T]) -> T | Exception:
    try:
        return work()
    except ResperturbError as error:
        return error
    except Exception as error:
        logging.getLogger(__name__).exception("unexpected")
        return ResperturbError(f"a process of the training failed ({type(error).__name__}: {error}).")


def launched() -> bool:
    """Whether torchrun has started this process as one of several.

    >>> launched()
    False
    """
    return "TORCHELASTIC_RUN_ID" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


@contextmanager
def joined(accelerator: str = "auto") -> Iterator[World]:
    """Join the processes that torchrun has started, if it has; a process that has lost another says so."""
    if not launched():
        yield ALONE
        return
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)  # save, and end, if torchrun is killed
    try:
        yield _join(accelerator)
    except RuntimeError as error:
        if not _is_loss(error):
            raise
        raise ResperturbError(
            "another process of this training has ended, so this one stops too. What was saved at the end of the "
            "last epoch is kept: rerun the same command to resume."
        ) from None


def _is_loss(error: RuntimeError) -> bool:
    """Whether torch's communication failed, rather than anything else in the training.

    >>> _is_loss(RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:4711"))
    True
    >>> _is_loss(RuntimeError("the connection pool of the user's own layer is exhausted"))
    False
    """
    return isinstance(error, dist.DistError) or re.search(r"\bgloo/|\bNCCL\b|\bnccl[A-Z]", str(error)) is not None


@lru_cache(maxsize=1)
def _join(accelerator: str) -> World:
    """Join the group once per process: torch cannot reliably leave one and join it again."""
    from torch.distributed import PrefixStore, rendezvous  # type: ignore[attr-defined]

    rank, size, local_rank, local_size = (
        int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    )
    if size % local_size:
        raise UsageError("every machine must start as many processes as the others (--nproc-per-node).")
    cuda = accelerator != "cpu" and torch.cuda.is_available()
    if cuda and local_size > torch.cuda.device_count():
        raise UsageError(
            f"{local_size} processes need a GPU each, and this machine shows {torch.cuda.device_count()}; start "
            "fewer, or hide the GPUs (CUDA_VISIBLE_DEVICES=) to train on the CPU."
        )
    if cuda:
        torch.cuda.set_device(local_rank)
    # Processes that torchrun starts again must not find the addresses of those before them.
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    store = PrefixStore(f"attempt-{attempt}", next(rendezvous("env://"))[0])
    dist.init_process_group("nccl" if cuda else "gloo", store=store, rank=rank, world_size=size, timeout=LONGEST_WAIT)
    group = dist.new_group(backend="gloo", timeout=LONGEST_WAIT)
    # A thread of gloo that frees its last tensor while Python finalizes aborts the process (torch 2.13).
    atexit.register(time.sleep, SECONDS_FOR_GLOO)
    return World(rank, size, group=group)


class _SumOverRanks(torch.autograd.Function):
    """A sum over all processes whose gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        total = value.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        total = gradient.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total


def _sum_over_ranks(value: Tensor) -> Tensor:
    total: Tensor = _SumOverRanks.apply(value)  # type: ignore[no-untyped-call]
    return total


class SharedBatchNorm(nn.BatchNorm2d):
    """BatchNorm over the batch of all processes, on the CPU, where torch's SyncBatchNorm does not run."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalise by the mean and the variance of all images of the step, wherever they are."""
        if not self.training:
            return super().forward(input)
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        assert self.momentum is not None
        wide = input.float()  # sums and counts of a whole batch are too large for half precision
        pixels = wide.new_tensor([input.numel() // input.shape[1]])
        total = _sum_over_ranks(torch.cat([wide.sum(dim=(0, 2, 3)), pixels]))
        count = total[-1].detach()
        mean = total[:-1] / count
        centred = wide - mean[:, None, None]
        variance = _sum_over_ranks(centred.square().sum(dim=(0, 2, 3))) / count
        with torch.no_grad():
            self.num_batches_tracked += 1
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * (count / (count - 1)), self.momentum)
        scale = self.weight * (variance + self.eps).rsqrt()
        normalised: Tensor = centred * scale[:, None, None] + self.bias[:, None, None]
        return normalised.to(input.dtype)


def share_statistics(model: nn.Module, device: torch.device) -> nn.Module:
    """Let the BatchNorm layers of ``model`` see the whole batch; parameters and names stay."""
    if device.type != "cpu":
        converted: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
        return converted
    for module in model.modules():
        if type(module) is nn.BatchNorm2d:
            module.__class__ = SharedBatchNorm
    return model
