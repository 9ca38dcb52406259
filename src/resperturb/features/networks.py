"""Classifiers on frozen features as networks: ``features:scattering``, ``features:timm:resnet18``."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from resperturb.data.images import ImageSet
from resperturb.data.records import identity_of
from resperturb.data.rows import Images, in_chunks
from resperturb.errors import UsageError
from resperturb.features.extractor import Extractor, Features, Part, build
from resperturb.features.extractors.scattering import CHANNELS
from resperturb.heads.rows import unit_rows
from resperturb.models.names import NetworkName
from resperturb.models.source import Argument, NetworkSource, Request, register_network
from resperturb.progress import Lines

# Sets of images with known features, and which part of their data set they are.
Sets = Callable[[], Iterable[tuple[ImageSet, Part]]]
# So many unknown images at once are taken for those of a data set whose features are worth reading.
_MANY = 16
_AT_ONCE = 128


class OnFeatures(nn.Module):
    """A classifier on frozen features of images whose pixels are between 0 and 1.

    Only the classifier is trained and saved; the features are bound to it by their digest. Features of images of a
    data set are computed once and looked up by the images' pixels. The head is linear, of rows of norm 1 that end in
    a constant, or a small CNN on scattering.
    """

    features_digest: Tensor

    def __init__(
        self, extractor: Extractor, channels: int, size: tuple[int, int], classes: int, head: str = "linear"
    ) -> None:
        super().__init__()
        self.extractor, self.channels, self.size = extractor, channels, size
        self._source = extractor.describe()
        self._many = 1 if self._source.name.startswith("file:") else _MANY
        self.width, self.linear = extractor.dimensions(channels, size), head == "linear"
        if self.linear:
            linear = nn.Linear(self.width + 1, classes, bias=False, dtype=torch.float64)
            nn.init.zeros_(linear.weight)
            self.head: nn.Module = linear
        else:
            self.head = _cnn(channels * CHANNELS, size, classes)
        self.register_buffer("features_digest", torch.tensor(list(bytes.fromhex(self._source.digest))))
        self.register_load_state_dict_pre_hook(_check_digest)  # type: ignore[no-untyped-call]
        self._sets: Sets | None = None
        self._network: list[nn.Module] = []  # in a list, so that it is no part of the state

    @property
    def description(self) -> str:
        """Where the features come from, in a sentence."""
        parts = self._source.preprocessing, self._source.reduction or "no reduction"
        return f"Features: {self._source.origin.rstrip('.')}; {'; '.join(parts)}."

    def look_up(self, sets: Sets) -> None:
        """Take the features of these images from the cache, once many of them are asked for."""
        self._sets = sets

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits."""
        if torch.compiler.is_compiling():  # not a decorator, which would import the compiler
            answered: Tensor = torch.compiler.disable(self._logits)(images)  # type: ignore[no-untyped-call]
            return answered
        return self._logits(images)

    def _logits(self, images: Tensor) -> Tensor:
        found = self.features((images * 255).round().to(torch.uint8))
        rows = torch.from_numpy(unit_rows(found) if self.linear else found)
        logits: Tensor = self.head(rows.to(self._device))
        return logits

    @property
    def _device(self) -> torch.device:
        return next(self.head.parameters()).device

    def features(self, images: Images) -> Features:
        """Return the features of uint8 images, one row per image."""
        return np.concatenate([self._batch(batch.cpu().contiguous()) for batch in in_chunks(images, _AT_ONCE)])

    def _batch(self, images: Tensor) -> Features:
        known = _known.setdefault(self._source.digest, {})
        keys = [_digest(image) for image in images.numpy()]
        missing = [place for place, key in enumerate(keys) if key not in known]
        if self._sets is not None and len(missing) >= self._many:
            sets, self._sets = self._sets, None
            for group, part in sets():
                _remember(known, self.extractor, self._source.digest, group, part)
            missing = [place for place in missing if keys[place] not in known]
        found = np.empty((len(keys), self.width), dtype=np.float32)
        for place, key in enumerate(keys):
            if key in known:
                found[place] = known[key]
        if missing:
            found[missing] = self._computed(images[missing])
        return found

    def _computed(self, images: Tensor) -> Features:
        if not self._network:
            self._network.append(self.extractor.network(self.channels, self.size))
        with torch.no_grad():
            rows: Features = self._network[0].to(self._device)(images.to(self._device)).float().cpu().numpy()
        return rows


def _cnn(channels: int, size: tuple[int, int], classes: int) -> nn.Module:
    """Build the networks that Tramer and Boneh 2021 train on scattering: of MNIST, and of CIFAR10 for colours."""
    height, width = (n // 4 for n in size)
    begin = nn.Unflatten(1, (channels, height, width))
    if channels == CHANNELS:
        return nn.Sequential(
            begin,
            nn.Conv2d(channels, 16, 3, stride=2, padding=1),
            nn.Tanh(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.Tanh(),
            nn.Flatten(),
            nn.Linear(32 * -(-height // 2) * -(-width // 2), 32),
            nn.Tanh(),
            nn.Linear(32, classes),
        )
    return nn.Sequential(
        begin,
        nn.Conv2d(channels, 64, 3, padding=1),
        nn.Tanh(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3, padding=1),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(64 * (height // 2) * (width // 2), classes),
    )


# By the digest of an extractor: the features of images by the digest of their pixels.
_known: dict[str, dict[bytes, Any]] = {}
_remembered: set[tuple[str, str]] = set()


def _digest(image: np.ndarray[Any, Any]) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(image).data, digest_size=16).digest()


def _remember(known: dict[bytes, Any], extractor: Extractor, digest: str, images: ImageSet, part: Part) -> None:
    mark = digest, images.fingerprint
    if mark in _remembered or not len(images):
        return
    rows = extractor.compute(images, part, Lines(f"features of the {part} images", unit="images").step)
    for start in range(0, len(images), _AT_ONCE):
        for place, image in enumerate(images.images[start : start + _AT_ONCE].numpy(), start):
            row = rows[place]
            kept = known.setdefault(_digest(image), row)
            if kept is not row and not np.allclose(kept, row, rtol=1e-3, atol=1e-3 * np.abs(row).max()):
                raise UsageError(
                    f"{part} image {place} has the same pixels as another image, and its features differ: features "
                    "must follow from the pixels alone."
                )
    _remembered.add(mark)


def _check_digest(module: nn.Module, state: Mapping[str, Tensor], prefix: str, *unused: object) -> None:
    saved = state.get(f"{prefix}features_digest")
    if saved is not None and not torch.equal(saved.cpu(), module.get_buffer("features_digest").cpu()):
        raise UsageError(
            "the features are not those that this classifier was trained on: the extractor has other weights, other "
            "settings or another version."
        )


@register_network("features")
class FeatureNetworks(NetworkSource):
    """A linear classifier on the features of any extractor; the arguments are those of the extractor."""

    examples: ClassVar = "features:scattering, features:timm:resnet18"
    recipe: ClassVar = {"mean": 0.0, "std": 1.0, "lr": 10.0, "schedule": "constant", "weight_decay": 0.0}
    fine_tuning: ClassVar = {}
    frozen: ClassVar = True

    def check(self, name: NetworkName, request: Request) -> None:
        """Refuse an extractor that there is not, or settings that are not its own."""
        super().check(name, request)
        extractor = extractor_of(name, request.args)
        kind = request.args.get("head", "linear")
        if kind not in ("linear", "cnn"):
            raise UsageError(f"there is no head {kind!r} on features; known are linear and cnn.")
        if kind == "cnn" and (extractor.describe().name != "scattering" or extractor.reduction is not None):
            raise UsageError(
                "head=cnn needs scattering coefficients that nothing reduced: scattering, reduction=none."
            )

    def build(self, name: NetworkName, request: Request) -> OnFeatures:
        """Build a classifier whose weights are 0."""
        if request.image_size is None:
            raise UsageError(f"{name} needs the size of the images.")
        extractor = extractor_of(name, request.args)
        head = str(request.args.get("head", "linear"))
        return OnFeatures(extractor, request.in_channels, request.image_size, request.num_classes, head)

    def fingerprint(self, name: NetworkName, args: Mapping[str, Argument]) -> str:
        """Change with the features of any image."""
        return extractor_of(name, args).describe().digest


def extractor_of(name: NetworkName, args: Mapping[str, Argument]) -> Extractor:
    """Make the extractor of a network ``features:NAME``, of settings among which ``head`` is not its own."""
    weights = str(args.get("weights", ""))
    places = [Path(name.name.partition(":")[2]), Path(weights)]
    files = [file for place in places for file in ([*place.glob("*.npy")] if place.is_dir() else [place])]
    return _built(name.name, json.dumps(dict(args), sort_keys=True), identity_of(files))


@lru_cache(maxsize=4)
def _built(name: str, args: str, files: str) -> Extractor:
    others = json.loads(args)
    others.pop("head", None)
    weights, reduction = others.pop("weights", ""), others.pop("reduction", None)
    return build(name, str(weights), None if reduction is None else str(reduction), others)
