"""Where networks come from: a base class, and the registry of those who build them.

Adding a source is one file that defines a :class:`NetworkSource` under ``@register_network``; another package adds
one through the entry point group ``resperturb.networks``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from torch import nn

from resperturb.errors import UsageError
from resperturb.models.names import NetworkName
from resperturb.registry import Registry

Norm = Literal["batch", "group"]
Argument = bool | int | float | str | list[bool | int | float | str]


@dataclass(frozen=True)
class Request:
    """What a network is to be built for; the fields are arguments of :func:`resperturb.models.build`."""

    num_classes: int
    in_channels: int = 3
    image_size: tuple[int, int] | None = None
    norm: Norm = "batch"
    skip: bool = True
    dropout: float = 0.0
    args: Mapping[str, Argument] = field(default_factory=dict)
    pretrained: bool = False


class NetworkSource:
    """Builds the networks of one library or family.

    Attributes:
        examples: Names that it knows, for error messages.
        recipe: How users of these networks train them: defaults of the training configuration.
        fine_tuning: What of the recipe changes where training starts from trained weights.
        frozen: Whether its networks are a classifier on frozen features of images.
    """

    examples: ClassVar[str]
    # What users of stock networks choose today: AdamW, a cosine after a short warm-up, ImageNet's pixel statistics.
    recipe: ClassVar[Mapping[str, Any]] = {
        "optimizer": "adamw",
        "lr": 1e-3,
        "weight_decay": 0.05,
        "schedule": "cosine",
        "warmup_epochs": 5,
        "normalization": "imagenet",
    }
    fine_tuning: ClassVar[Mapping[str, Any]] = {"lr": 1e-4, "epochs": 20, "warmup_epochs": 1}
    frozen: ClassVar[bool] = False

    def owns(self, name: str) -> bool:
        """Whether a name without a colon, such as ``resnet8``, is one of its networks."""
        return False

    def check(self, name: NetworkName, request: Request) -> None:
        """Refuse what cannot be built, without building it."""
        if not request.skip:
            raise UsageError(f"{name} has no variant without skip connections; only resnet8 and its sisters do.")
        if request.dropout:
            raise UsageError(f"--dropout is of resnet8 and its sisters; give {name} its own argument (--model-args).")

    def build(self, name: NetworkName, request: Request) -> nn.Module:
        """Build one network, with fresh weights from torch's global generator unless trained ones are asked for.

        What its library refuses may be raised as it is: a user is told that the network cannot be built.
        """
        raise NotImplementedError

    def fingerprint(self, name: NetworkName, args: Mapping[str, Argument]) -> str:
        """What changes when the network that the name stands for changes; empty where only its library can."""
        return ""


network_sources: Registry[type[NetworkSource]] = Registry(
    "network source", group="resperturb.networks", package="resperturb.models.sources"
)
register_network = network_sources.register


def source_of(name: NetworkName) -> NetworkSource:
    """Find who builds a network.

    >>> from resperturb.models.names import parse_name
    >>> type(source_of(parse_name("en5-resnet8"))).__name__
    'ResNets'
    """
    if name.source in network_sources:
        return network_sources[name.source]()
    if name.source:
        return network_sources["python"]()
    for known in network_sources:
        source = network_sources[known]()
        if source.owns(name.name):
            return source
    examples = "; ".join(network_sources[known].examples for known in network_sources)
    raise UsageError(f"unknown network {name.name!r}. There are: {examples}; and ensembles such as en5-resnet8.")
