"""Canaries: records made to be memorised, put into the training data by coins, in memory only.

An audit of ordinary records says what happens to ordinary people. The most exposed are those a model can only
memorise (Carlini et al. 2022; Aerni, Zhang and Tramer 2024), and canaries stand for them:

- ``clean``: an ordinary image with its own label;
- ``mislabelled``: an ordinary image with a wrong label;
- ``out_of_distribution``: independent random pixels, with a random label;
- ``blank``: one flat shade, with a random label;
- ``near_duplicate``: two almost equal copies of an image with two different labels, wrong where there are three
  classes or more. Each copy has its own coin.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from resperturb.data.images import ImageSet
from resperturb.data.rows import Images, as_rows
from resperturb.data.splits import Indices
from resperturb.errors import UsageError

KINDS = ("clean", "mislabelled", "out_of_distribution", "blank", "near_duplicate")
SHADES = 256
# Largest difference of near-duplicates, in 255 grey levels: too small to see.
NEAR = 4

Bools = np.ndarray[Any, np.dtype[np.bool_]]
Names = np.ndarray[Any, np.dtype[np.str_]]


@dataclass(frozen=True, eq=False)
class Canaries:
    """The canaries as images, the kind of each, and the training images that some were made from.

    Where images have groups, each canary is a group of its own. ``left_out`` are the images that no model may be
    trained on with them: the sources, and all of the groups that clean canaries come from. A clean canary stands
    for a person who may be absent, and would look present if other images of that person were trained on.
    """

    images: ImageSet
    kinds: Names
    sources: Indices
    left_out: Indices

    def __len__(self) -> int:
        return len(self.images)


def make_canaries(images: ImageSet, spare: Indices, counts: Mapping[str, int], seed: int) -> Canaries:
    """Make canaries in the shape of ``images``, from the ``spare`` ones among them, which no model is trained on.

    The same arguments always give the same canaries.

    >>> from resperturb.data import load_pair
    >>> sample = load_pair("fashion-sample", limit=20)[0]
    >>> canaries = make_canaries(sample, np.arange(10), {"mislabelled": 3, "blank": 2}, seed=0)
    >>> canaries.kinds.tolist()
    ['mislabelled', 'mislabelled', 'mislabelled', 'blank', 'blank']
    """
    wanted = {kind: int(counts.get(kind, 0)) for kind in KINDS}
    _check(wanted, len(spare))
    rng = np.random.default_rng([seed, 1])
    pairs = wanted["near_duplicate"] // 2
    needed = wanted["clean"] + wanted["mislabelled"] + pairs
    sources = rng.permutation(spare)[:needed].astype(np.int64)
    clean, mislabelled, twins = np.split(sources, [wanted["clean"], needed - pairs])
    shape, random = images.images.shape[1:], wanted["out_of_distribution"]
    classes = images.num_classes
    parts = [
        (images.images[clean].numpy(), images.labels[clean].numpy()),
        (images.images[mislabelled].numpy(), _wrong(rng, images.labels[mislabelled].numpy(), classes, 1)[0]),
        (rng.integers(0, 256, (random, *shape), dtype=np.uint8), rng.integers(0, classes, random)),
        _flat_shades(rng, wanted["blank"], shape, classes),
        _twins(rng, images.images[twins].numpy(), images.labels[twins].numpy(), classes),
    ]
    groups = None if images.groups is None else np.array([f"canary {i}" for i in range(sum(wanted.values()))])
    made = ImageSet(
        torch.from_numpy(np.concatenate([pixels for pixels, _ in parts])),
        torch.from_numpy(np.concatenate([labels for _, labels in parts]).astype(np.int64)),
        images.classes,
        groups,
        f"canaries of {images.name}",
    )
    left_out = sources
    if images.groups is not None:
        left_out = np.union1d(sources, np.flatnonzero(np.isin(images.groups, images.groups[clean])))
    return Canaries(made, np.repeat(KINDS, [wanted[kind] for kind in KINDS]), sources, left_out)


def fair_coins(count: int, seed: int, purpose: int = 0) -> Bools:
    """Draw ``count`` fair coins; seeds 2j and 2j + 1 draw opposite ones.

    So the subsets of an even number of consecutive seeds contain every record equally often, while each subset by
    itself is the outcome of independent fair coins.

    >>> bool((fair_coins(100, seed=6) ^ fair_coins(100, seed=7)).all())
    True
    """
    coins: Bools = np.random.default_rng([seed // 2, 2 + purpose]).random(count) < 0.5
    return ~coins if seed % 2 else coins


def concatenated(one: ImageSet, other: ImageSet) -> ImageSet:
    """Append one set of images to another with the same classes.

    >>> from resperturb.data import load_pair
    >>> sample = load_pair("fashion-sample", limit=20)[0]
    >>> len(concatenated(sample, sample.select([0, 1])))
    22
    """
    groups = None
    if one.groups is not None and other.groups is not None:
        groups = np.concatenate([one.groups, other.groups])
    images: Images
    if isinstance(one.images, torch.Tensor) and isinstance(other.images, torch.Tensor):
        images = torch.cat([one.images, other.images])
    else:
        images = as_rows(one.images).concatenated(as_rows(other.images))
    return ImageSet(images, torch.cat([one.labels, other.labels]), one.classes, groups, one.name)


def _check(wanted: Mapping[str, int], spare: int) -> None:
    if wanted["near_duplicate"] % 2:
        raise UsageError(
            f"near_duplicate canaries come in pairs; ask for an even number, not {wanted['near_duplicate']}."
        )
    if wanted["blank"] > SHADES:
        raise UsageError(f"there are {SHADES} shades, so at most {SHADES} different blank canaries.")
    needed = wanted["clean"] + wanted["mislabelled"] + wanted["near_duplicate"] // 2
    if needed > spare:
        raise UsageError(
            f"these canaries are made from {needed} images that are not trained on otherwise, and there are {spare}; "
            "ask for fewer."
        )


def _wrong(rng: np.random.Generator, labels: Any, classes: int, different: int) -> Any:
    """``different`` wrong labels for each record, distinct where there are classes enough."""
    shifts = np.argsort(rng.random((len(labels), classes - 1)), axis=1)[:, :different] + 1
    return ((labels[:, None] + shifts) % classes).T


def _flat_shades(rng: np.random.Generator, count: int, shape: Any, classes: int) -> tuple[Any, Any]:
    shades = rng.permutation(np.linspace(0, SHADES - 1, count).astype(np.uint8) if count > 1 else np.zeros(count))
    pixels = np.broadcast_to(shades.astype(np.uint8)[:, None, None, None], (count, *shape))
    return pixels.copy(), rng.integers(0, classes, count)


def _twins(rng: np.random.Generator, images: Any, labels: Any, classes: int) -> tuple[Any, Any]:
    change = rng.integers(-NEAR, NEAR + 1, (2, *images.shape))
    pixels = np.clip(images[None].astype(np.int64) + change, 0, 255).astype(np.uint8)
    two = _wrong(rng, labels, classes, 2) if classes > 2 else np.stack([labels, 1 - labels])
    return pixels.reshape(-1, *images.shape[1:]), two.reshape(-1)
