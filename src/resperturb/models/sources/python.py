"""Networks of a user's own: ``my_package.nets:make``, a function or class that returns a module."""

import hashlib
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from torch import nn

from resperturb.errors import UsageError
from resperturb.models.adapt import replace_head
from resperturb.models.names import NetworkName
from resperturb.models.source import Argument, NetworkSource, Request, register_network
from resperturb.registry import users_function


@register_network("python")
class Python(NetworkSource):
    """A factory in an importable module, or in a module of the current folder.

    It is called with ``num_classes``, ``in_channels`` and ``image_size`` as far as it has parameters of these names,
    and with the arguments of ``--model-args``. If it does not take ``num_classes`` its last layer is made anew.
    """

    examples: ClassVar = "my_package.nets:make, a function of your own"

    def check(self, name: NetworkName, request: Request) -> None:
        """Refuse a name behind which there is no function."""
        super().check(name, request)
        if request.pretrained:
            raise UsageError(f"{name} is your own network: give its weights as a file (--weights FILE).")
        _factory(name)

    def build(self, name: NetworkName, request: Request) -> nn.Module:
        """Call the factory."""
        factory = _factory(name)
        offered = {
            "num_classes": request.num_classes,
            "in_channels": request.in_channels,
            "image_size": request.image_size,
        }
        parameters = inspect.signature(factory).parameters
        anything = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
        given: dict[str, Any] = {key: value for key, value in offered.items() if key in parameters}
        if wrong := [key for key in request.args if key not in parameters and not anything]:
            raise UsageError(f"{name} has no parameter {', '.join(wrong)}; it has {', '.join(parameters)}.")
        model = factory(**{**given, **request.args})
        if not isinstance(model, nn.Module):
            raise UsageError(f"{name} returned {type(model).__name__}, not a torch.nn.Module.")
        if "num_classes" not in given:
            replace_head(model, request.num_classes)
        return model

    def fingerprint(self, name: NetworkName, args: Mapping[str, Argument]) -> str:
        """Change with the source of the factory's module."""
        file = inspect.getsourcefile(inspect.unwrap(_factory(name)))
        return "" if file is None else hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]


def _factory(name: NetworkName) -> Callable[..., Any]:
    return users_function(name.source, name.name, f"the network {name}")
