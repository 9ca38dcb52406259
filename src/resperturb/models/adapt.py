"""Making a stock network fit: its first layer for the images, its last for the classes, its norms for DP-SGD."""

import importlib
import importlib.util
import json
import math
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from resperturb.errors import UsageError

GROUPS = 32


def library(module: str, name: object) -> Any:
    """Import a library of networks, with any build of torchvision, or say how to get it for ``name``."""
    try:
        _import_torchvision()
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise UsageError(f"{name} needs {package} ({error}): pip install 'resperturb[networks]'.") from error


def _import_torchvision() -> None:
    """Import torchvision, which timm and transformers import too, also where its compiled operators do not load.

    They do not load with every build of torch. No network needs them, but the import fails at their names, so the
    names that were missed are declared. They are not declared before: a torchvision that loads declares them itself,
    and the process would abort.
    """
    while importlib.util.find_spec("torchvision") is not None:
        try:
            importlib.import_module("torchvision")
            return
        except ImportError:  # what needs torchvision will say so
            return
        except RuntimeError as error:
            missing = re.search(r"operator (torchvision::\w+) does not exist", str(error))
            if missing is None:
                raise
            torch.library.define(missing[1], "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def _parent(model: nn.Module, name: str) -> tuple[nn.Module, str]:
    path, _, last = name.rpartition(".")
    return model.get_submodule(path), last


def last_layer(model: nn.Module) -> str:
    """Name the layer that computes the logits: the last linear layer, or convolution where there is no linear one.

    >>> last_layer(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)))
    '2'
    """
    for kind in (nn.Linear, nn.Conv2d):
        names: list[str] = [name for name, module in model.named_modules() if isinstance(module, kind)]
        if names:
            return names[-1]
    raise UsageError(f"{type(model).__name__} has no linear layer that could be made to fit the classes.")


def replace_head(model: nn.Module, num_classes: int) -> None:
    """Give ``model`` a new last layer of ``num_classes`` outputs, unless it has as many, in place.

    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1000))
    >>> replace_head(model, 2)
    >>> model[2].out_features
    2
    """
    name = last_layer(model)
    old = model.get_submodule(name)
    parent, attribute = _parent(model, name)
    if isinstance(old, nn.Linear) and old.out_features != num_classes:
        setattr(parent, attribute, nn.Linear(old.in_features, num_classes, bias=old.bias is not None))
    elif isinstance(old, nn.Conv2d) and old.out_channels != num_classes:
        setattr(parent, attribute, _like(old, old.in_channels, num_classes))


def _like(old: nn.Conv2d, inputs: int, outputs: int) -> nn.Conv2d:
    return nn.Conv2d(
        inputs,
        outputs,
        old.kernel_size,  # type: ignore[arg-type]
        old.stride,  # type: ignore[arg-type]
        old.padding,  # type: ignore[arg-type]
        old.dilation,  # type: ignore[arg-type]
        bias=old.bias is not None,
    )


def adapt_channels(model: nn.Module, channels: int) -> nn.Module:
    """Make the first convolution take ``channels``; trained kernels are averaged over colours, as timm does.

    >>> adapt_channels(nn.Sequential(nn.Conv2d(3, 8, 3)), channels=1)[0].in_channels
    1
    """
    for name, layer in model.named_modules():
        if isinstance(layer, nn.Conv2d):
            if layer.in_channels != channels:
                parent, attribute = _parent(model, name)
                new = _like(layer, channels, layer.out_channels)
                with torch.no_grad():
                    mean = layer.weight.sum(dim=1, keepdim=True) / channels
                    new.weight.copy_(mean.expand_as(new.weight))
                    if layer.bias is not None and new.bias is not None:
                        new.bias.copy_(layer.bias)
                setattr(parent, attribute, new)
            return model
    return model


def without_batch_norm(model: nn.Module) -> list[str]:
    """Replace every BatchNorm of ``model`` by GroupNorm, and in-place activations by others; return what was changed.

    BatchNorm mixes the records of a batch, so no gradient is of one record alone; and Opacus's hooks see a tensor
    that an in-place activation has overwritten.

    >>> without_batch_norm(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)))
    ['1 BatchNorm layer became GroupNorm, which does not mix the records of a batch.']
    """
    replaced = 0
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            parent, attribute = _parent(model, name)
            groups = math.gcd(GROUPS, module.num_features)
            new: nn.Module = nn.GroupNorm(groups, module.num_features, eps=module.eps, affine=module.affine)
            if module.affine:
                new.weight, new.bias = module.weight, module.bias
            if type(module).__name__ == "BatchNormAct2d":  # timm's, which ends in an activation of its own
                new = nn.Sequential(new, module.drop, module.act)  # type: ignore[arg-type]
            setattr(parent, attribute, new)
            replaced += 1
    in_place = [module for module in model.modules() if getattr(module, "inplace", False) is True]
    for module in in_place:
        module.inplace = False  # type: ignore[assignment]
    changes = []
    if replaced:
        layers = "layer" if replaced == 1 else "layers"
        changes.append(f"{replaced} BatchNorm {layers} became GroupNorm, which does not mix the records of a batch.")
    if in_place:
        changes.append(f"{len(in_place)} activations no longer overwrite their input.")
    return changes


def load_weights(model: nn.Module, path: Path) -> list[str]:
    """Start ``model`` from the safetensors file at ``path``; a last layer of another size stays as it is.

    The names of the weights of such a last layer are returned. Pickles are not read: they can run code.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not path.is_file():
        raise UsageError(f"there is no file {path} with weights; --weights takes a safetensors file, or pretrained.")
    try:
        tensors = load_file(path)
    except (SafetensorError, json.JSONDecodeError) as error:
        raise UsageError(
            f"{path} is not a safetensors file ({error}). Pickles are not read, since they can run code: save the "
            "weights with safetensors.torch.save_file(model.state_dict(), ...)."
        ) from error
    own = model.state_dict()
    head = last_layer(model) + "."
    kept = [name for name in own if name.startswith(head) and _differs(own[name], tensors.get(name))]
    wrong = [name for name, value in own.items() if name not in kept and _differs(value, tensors.get(name))]
    foreign = sorted(tensors.keys() - own.keys())
    if wrong or foreign:
        shown = ", ".join([*wrong, *foreign][:5])
        raise UsageError(
            f"{path} holds the weights of another network than {type(model).__name__}: {len(wrong)} are missing or "
            f"of another shape, {len(foreign)} are unknown to it ({shown})."
        )
    model.load_state_dict({name: own[name] if name in kept else tensors[name] for name in own})
    return kept


def _differs(own: Tensor, given: Tensor | None) -> bool:
    return given is None or given.shape != own.shape
