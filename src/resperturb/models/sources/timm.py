"""Networks of timm: ``timm:resnet26d``."""

import difflib
from typing import Any, ClassVar

from torch import nn

from resperturb.errors import UsageError
from resperturb.models.adapt import library
from resperturb.models.names import NetworkName
from resperturb.models.source import NetworkSource, Request, register_network


@register_network("timm")
class Timm(NetworkSource):
    """Everything that ``timm.create_model`` builds."""

    examples: ClassVar = "timm:resnet26d and all of timm.list_models()"

    def check(self, name: NetworkName, request: Request) -> None:
        """Refuse names that timm does not know, with those that come near."""
        super().check(name, request)
        timm = library("timm", name)
        if not timm.is_model(name.name):
            near = ", ".join(difflib.get_close_matches(name.name, timm.list_models(), n=5))
            raise UsageError(f"timm has no network {name.name!r}." + (f" Near to it are {near}." if near else ""))

    def build(self, name: NetworkName, request: Request) -> nn.Module:
        """Build a network of timm, for images of any number of channels."""
        timm = library("timm", name)
        options: dict[str, Any] = {"num_classes": request.num_classes, "in_chans": request.in_channels}
        config = timm.get_pretrained_cfg(name.name)
        if request.image_size is not None and config is not None and config.fixed_input_size:
            options["img_size"] = request.image_size
        model: nn.Module = timm.create_model(name.name, pretrained=request.pretrained, **options, **request.args)
        return model
