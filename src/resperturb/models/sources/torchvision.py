"""Networks of torchvision: ``torchvision:resnet18``."""

from typing import Any, ClassVar

from torch import nn

from resperturb.errors import UsageError
from resperturb.models.adapt import adapt_channels, library, replace_head
from resperturb.models.names import NetworkName
from resperturb.models.source import NetworkSource, Request, register_network


@register_network("torchvision")
class Torchvision(NetworkSource):
    """The classification networks of ``torchvision.models``."""

    examples: ClassVar = "torchvision:resnet18 and the other classification networks of torchvision"

    def check(self, name: NetworkName, request: Request) -> None:
        """Refuse names that torchvision does not know."""
        super().check(name, request)
        models = library("torchvision.models", name)
        known = models.list_models(module=models)
        if name.name not in known:
            raise UsageError(f"torchvision has no network {name.name!r}; it has {', '.join(known)}.")

    def build(self, name: NetworkName, request: Request) -> nn.Module:
        """Build a network of torchvision; its first layer is made anew where the images are not of three channels."""
        models = library("torchvision.models", name)
        options: dict[str, Any] = dict(request.args)
        if request.image_size is not None and name.name.startswith("vit_"):
            options.setdefault("image_size", request.image_size[0])
        if request.pretrained:
            model: nn.Module = models.get_model(name.name, weights="DEFAULT", **options)
            replace_head(model, request.num_classes)
        else:
            model = models.get_model(name.name, weights=None, num_classes=request.num_classes, **options)
        return adapt_channels(model, request.in_channels)
