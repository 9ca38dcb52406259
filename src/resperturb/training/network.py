"""The network of a training: checked before the data is read, then built for the images, with its noise."""

import hashlib
from pathlib import Path

import torch
from torch import nn

from resperturb.data.images import ImageSet
from resperturb.errors import UsageError
from resperturb.features.extractor import Part
from resperturb.features.networks import OnFeatures
from resperturb.models.build import build_with_notes
from resperturb.models.source import Request, source_of
from resperturb.perturbation import perturb
from resperturb.training.config import PRETRAINED, TrainConfig
from resperturb.training.inputs import load_inputs


def request_of(config: TrainConfig, classes: int, channels: int, size: tuple[int, int] | None = None) -> Request:
    """Put together what the network of a configuration is built for."""
    pretrained = config.weights == PRETRAINED
    return Request(classes, channels, size, config.norm, config.skip, config.dropout, config.model_args, pretrained)


def check_network(config: TrainConfig) -> None:
    """Refuse a network that cannot be built, or weights that are not there, before anything is read."""
    name = config.network
    source_of(name).check(name.single, request_of(config, classes=2, channels=3))
    path = _weights_file(config)
    if path is not None and not path.is_file():
        raise UsageError(f"there is no file {path} with weights; --weights takes a safetensors file, or pretrained.")


def network_fingerprint(config: TrainConfig) -> str:
    """Sixteen hexadecimal digits that change with the code of a user's own network and with a file of weights.

    They are empty if the configuration names the network completely.
    """
    parts = [source_of(config.network).fingerprint(config.network, config.model_args)]
    if (path := _weights_file(config)) is not None:
        parts.append(hashlib.sha256(path.read_bytes()).hexdigest())
    return hashlib.sha256("".join(parts).encode()).hexdigest()[:16] if any(parts) else ""


def _weights_file(config: TrainConfig) -> Path | None:
    return None if config.weights in (None, PRETRAINED) else Path(str(config.weights))


def build_model(config: TrainConfig, images: ImageSet) -> nn.Module:
    """Build the network of a configuration for such images, with its noise, from torch's global generator."""
    return build_noisy(config, images)[0]


def build_noisy(config: TrainConfig, images: ImageSet) -> tuple[nn.Module, list[str]]:
    """Build like :func:`build_model`, and say in sentences what had to be changed in the network."""
    request = request_of(config, images.num_classes, images.channels, images.size)
    model, notes = build_with_notes(config.model, request, _weights_file(config))
    _check_outputs(model, images, config)
    know_features(model, config)
    if isinstance(model, OnFeatures):
        notes.append(model.description)
    strategy = config.perturbation
    return (model if strategy is None else perturb(model, strategy)), notes


def know_features(model: nn.Module, config: TrainConfig) -> None:
    """Let a network on frozen features read those of its images from the cache, once it is asked for many of them."""
    if not isinstance(model, OnFeatures):
        return

    def sets() -> tuple[tuple[ImageSet, Part], ...]:
        try:
            inputs = load_inputs(config.data)
        except UsageError:  # the images are not here: then features are computed
            return ()
        return (inputs.train, "train"), (inputs.test, "test")

    model.look_up(sets)


def _check_outputs(model: nn.Module, images: ImageSet, config: TrainConfig) -> None:
    """Refuse a network that does not give one logit per class for these images, before it is trained for hours."""
    if not config.network.source or source_of(config.network).frozen:
        return
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            answer = model(torch.zeros(2, images.channels, *images.size))
    except (RuntimeError, ValueError, AssertionError, TypeError) as error:
        height, width = images.size
        raise UsageError(
            f"{config.model} cannot take images of {width} x {height} pixels and {images.channels} channels: {error} "
            "Some networks need larger ones: --image-size 224."
        ) from error
    finally:
        model.train(was_training)
    if not isinstance(answer, torch.Tensor) or answer.shape != (2, images.num_classes):
        got = tuple(answer.shape) if isinstance(answer, torch.Tensor) else type(answer).__name__
        raise UsageError(
            f"{config.model} answers two images by {got}; it must give logits of shape (2, {images.num_classes})."
        )
