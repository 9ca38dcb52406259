"""BatchNorm over the batch of all processes of a training, so that their number does not change what it computes."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


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
