"""The gradients of single records, by Opacus's hooks, with faster convolutions.

Opacus copies every patch of every image side by side to multiply it with what comes back (``unfold``), and autograd
meanwhile computes the batch's own gradient of the weight, which DP-SGD throws away. Here one convolution with as many
groups as records computes the gradients of all records, as fast as the batch's own; and that one is left out. It is
also right for images with the channels last and for padding with other than zeros, where Opacus 1.6 is not.
"""

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from resperturb.errors import UsageError

if TYPE_CHECKING:
    from opacus.grad_sample import GradSampleModule


def grad_sample_hooks(model: nn.Module) -> "GradSampleModule":
    """Put hooks into ``model`` that leave every record's gradient in ``grad_sample`` of every weight.

    Losses are to be summed over the records of a batch. Opacus's wrapper holds the hooks; the model can be called
    without it.
    """
    from opacus.grad_sample import GradSampleModule

    class Hooks(GradSampleModule):  # type: ignore[misc]
        GRAD_SAMPLERS = {**GradSampleModule.GRAD_SAMPLERS, nn.Conv2d: conv2d_grad_sample}  # noqa: RUF012

        def add_hooks(self, **options: Any) -> None:
            super().add_hooks(**options)
            # Those of modules forbid a sum in place (``out += identity``) behind a layer; tensors have hooks as well.
            for of_module in self._module.autograd_grad_sample_hooks[1::2]:
                of_module.remove()

        def capture_activations_hook(self, module: nn.Module, args: Any, output: Any) -> None:
            before = len(getattr(module, "activations", ()))
            super().capture_activations_hook(module, args, output)
            if len(getattr(module, "activations", ())) == before:
                return
            kept: list[Tensor] = module.activations[-1]  # type: ignore[index,assignment]
            versions = [tensor._version for tensor in kept]

            def come_back(gradient: Tensor) -> None:
                if versions != [tensor._version for tensor in kept]:
                    raise UsageError(
                        f"what a {type(module).__name__} was given is overwritten after it, so the gradients of "
                        "single records are lost; write that operation so that it makes a new tensor."
                    )
                self.capture_backprops_hook(module, None, (gradient,), "sum", self.batch_first)

            (output if isinstance(output, Tensor) else output[0]).register_hook(come_back)

    convolutions = [m for m in model.modules() if type(m) is nn.Conv2d and m.weight.requires_grad]
    leave_out = _LeaveOutTheSum()
    for convolution in convolutions:
        # Before Opacus's own hooks, which ask whether the weight is to be trained.
        convolution.register_forward_pre_hook(leave_out)
        convolution.register_forward_hook(_train_again, always_call=True)
    leave_out.hooks = Hooks(model, loss_reduction="sum")
    return leave_out.hooks


class _LeaveOutTheSum:
    """Keeps autograd from a gradient that is not read, while the hooks are on.

    The first layer's stays, or nothing would come back to it.
    """

    hooks: Any = None

    def __call__(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        wanted = self.hooks.hooks_enabled and module.training and torch.is_grad_enabled()
        if wanted and args and args[0].requires_grad:
            assert isinstance(module, nn.Conv2d)
            module.weight.requires_grad_(False)


def _train_again(module: nn.Module, args: Any, output: Any) -> None:
    assert isinstance(module, nn.Conv2d)
    module.weight.requires_grad_(True)


def conv2d_grad_sample(layer: nn.Conv2d, activations: list[Tensor], backprops: Tensor) -> dict[Tensor, Tensor]:
    """Compute the gradients of a convolution's parameters, with the records in front."""
    inputs = activations[0].to(backprops.dtype)
    records = len(inputs)
    padding = layer.padding
    if isinstance(padding, str) or layer.padding_mode != "zeros":
        mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
        inputs, padding = F.pad(inputs, layer._reversed_padding_repeated_twice, mode), (0, 0)
    gradients: dict[Tensor, Tensor] = {}
    if layer.weight.requires_grad:
        # Every record becomes a group of channels of one large image; the weight itself is not read.
        weight = layer.weight.detach().new_empty(()).expand(records * layer.out_channels, *layer.weight.shape[1:])
        _, grouped, _ = torch.ops.aten.convolution_backward(
            backprops.reshape(1, records * layer.out_channels, *backprops.shape[2:]),
            inputs.reshape(1, records * layer.in_channels, *inputs.shape[2:]),
            weight,
            None,
            list(layer.stride),
            list(padding),
            list(layer.dilation),
            False,
            [0, 0],
            records * layer.groups,
            [False, True, False],
        )
        gradients[layer.weight] = grouped.reshape(records, *layer.weight.shape)
    if layer.bias is not None and layer.bias.requires_grad:
        gradients[layer.bias] = backprops.sum(dim=(2, 3))
    return gradients
