"""When are two networks alike, so that what was read of one holds for the other?

They are if their modules are of the same classes with the same methods, under the same names, and have the same
attributes: all that the reader looks at. Weights do not count. Of what cannot be compared nothing is assumed.
"""

import functools
from collections.abc import Hashable
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn

from resperturb.perturbation.sums.rewrite import class_of

_DEEPEST = 6
_PLAIN = (bool, int, float, complex, str, bytes, type, FunctionType, BuiltinFunctionType, torch.dtype, torch.device)
_IGNORED = ("_parameters", "_buffers", "_modules", "training", "_junction_noise", "_perturbation")
_HOOKS = ("_forward", "_backward", "_state_dict", "_load_state_dict", "_is_full_backward", "__prepare_scriptable__")


class _DifferentError(Exception):
    """Something that cannot be compared."""


def likeness(model: nn.Module) -> Hashable | None:
    """Return what is equal for models that read alike; None if that is not to be known.

    >>> likeness(nn.Linear(2, 3)) == likeness(nn.Linear(2, 3)), likeness(nn.Linear(2, 3)) == likeness(nn.Linear(2, 2))
    (True, False)
    """
    numbers = {id(module): number for number, module in enumerate(model.modules())}
    kinds = dict.fromkeys(class_of(module) for module in model.modules())
    try:
        modules = tuple(
            (name, numbers[id(module)], _of_module(module, numbers))
            for name, module in model.named_modules(remove_duplicate=False)
        )
        return modules, tuple(_methods(kind) for kind in kinds)
    except (_DifferentError, RecursionError):
        return None


def _methods(kind: type) -> Hashable:
    """The methods of a class, which somebody may exchange; those of torch nobody does."""
    owners = (owner for owner in kind.__mro__ if not owner.__module__.startswith("torch."))
    return tuple(value for owner in owners for value in vars(owner).values() if isinstance(value, FunctionType))


def _of_module(module: nn.Module, numbers: dict[int, int]) -> Hashable:
    attributes = {
        name: value for name, value in vars(module).items() if name not in _IGNORED and not name.startswith(_HOOKS)
    }
    absent = tuple(name for names in (module._parameters, module._buffers) for name in names if names[name] is None)
    present = (*module._parameters, *module._buffers)
    missing = tuple(name for name, child in module._modules.items() if child is None)
    return class_of(module), _frozen(attributes, numbers, _DEEPEST), present, absent, missing


def _frozen(value: Any, numbers: dict[int, int], depth: int) -> Hashable:
    if depth == 0:
        raise _DifferentError
    if value is None or isinstance(value, _PLAIN):
        return type(value), value
    if isinstance(value, Tensor):
        return Tensor
    if isinstance(value, nn.Module):
        if id(value) not in numbers:
            raise _DifferentError
        return nn.Module, numbers[id(value)]
    if isinstance(value, MethodType):
        return value.__func__, _frozen(value.__self__, numbers, depth - 1)
    if isinstance(value, functools.partial):
        parts = (value.func, value.args, value.keywords)
        return functools.partial, *(_frozen(part, numbers, depth - 1) for part in parts)
    if isinstance(value, dict):
        items = ((_frozen(k, numbers, depth - 1), _frozen(v, numbers, depth - 1)) for k, v in value.items())
        return type(value), *items
    if isinstance(value, list | tuple | set | frozenset):
        return type(value), *(_frozen(part, numbers, depth - 1) for part in value)
    if hasattr(value, "__dict__"):
        return type(value), _frozen(vars(value), numbers, depth - 1)
    raise _DifferentError
