"""Networks by name: the paper's ResNets, those of timm, torchvision and transformers, your own, and ensembles."""

from resperturb.models.adapt import library
from resperturb.models.build import Ensemble, build
from resperturb.models.names import NetworkName, parse_name
from resperturb.models.source import NetworkSource, Request, register_network
from resperturb.models.sources.resnet import ResNet

__all__ = [
    "Ensemble",
    "NetworkName",
    "NetworkSource",
    "Request",
    "ResNet",
    "build",
    "library",
    "parse_name",
    "register_network",
]
