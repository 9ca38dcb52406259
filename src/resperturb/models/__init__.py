"""Residual networks of the paper: CIFAR-style pre-activation ResNets and ensembles of them."""

from resperturb.models.build import build
from resperturb.models.ensemble import Ensemble
from resperturb.models.resnet import ResNet

__all__ = ["Ensemble", "ResNet", "build"]
