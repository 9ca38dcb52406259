"""Where images come from: the embedded sample, files, folders, the Hugging Face hub."""

import os
import re
from dataclasses import dataclass, replace
from importlib.resources import as_file
from importlib.resources import files as package_files
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from resperturb.data.arrays import read_npz
from resperturb.data.folders import is_split, read_folder
from resperturb.data.hub import TEST_NAMES, load_hub
from resperturb.data.images import ImageSet
from resperturb.data.records import Label, Records
from resperturb.data.rows import Images, Rows
from resperturb.data.splits import held_out
from resperturb.data.storage import DataIn, chosen_data_in, decoded
from resperturb.data.tables import Columns, read_parquet
from resperturb.errors import UsageError

SAMPLE = "fashion-sample"
DATA_VARIABLE = "RESPERTURB_DATA"
TEST_FRACTION = 0.2
_SAMPLE_CLASSES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
# The test part and the subset of a `limit` must not change with the seed of a run.
_FIXED_SEED = 0
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


@dataclass(frozen=True)
class ShortForm:
    """A data set known by a short name: its name on the hub (None: not there), its columns, where else it is."""

    hub: str | None
    columns: Columns
    published: str = ""


SHORT_FORMS = {
    "mnist": ShortForm("ylecun/mnist", Columns("image", "label")),
    "fashion_mnist": ShortForm("zalando-datasets/fashion_mnist", Columns("image", "label")),
    "cifar10": ShortForm("uoft-cs/cifar10", Columns("img", "label")),
    "cifar100": ShortForm("uoft-cs/cifar100", Columns("img", "fine_label")),
    "idc": ShortForm(
        None,
        Columns("image", "label", "patient"),
        "It is published as Breast Histopathology Images (docs/how-to/reproduce.md has a script for it).",
    ),
}


def load(
    spec: str,
    *,
    split: Literal["train", "test"],
    image_column: str | None = None,
    label_column: str | None = None,
    group_column: str | None = None,
    image_size: int | None = None,
    limit: int | None = None,
    data_in: DataIn | None = None,
) -> ImageSet:
    """Load one part of a data set; see `load_pair`, which loads both for the price of one.

    >>> load("fashion-sample", split="test", limit=100).images.shape
    torch.Size([100, 1, 28, 28])
    """
    if split not in ("train", "test"):
        raise UsageError(f"The split is 'train' or 'test', not {split!r}.")
    # Classes, channels and size belong to the set as a whole: either part alone could get them wrong.
    train, test = load_pair(
        spec,
        image_column=image_column,
        label_column=label_column,
        group_column=group_column,
        image_size=image_size,
        limit=limit,
        data_in=data_in,
    )
    return train if split == "train" else test


def load_pair(
    spec: str,
    *,
    image_column: str | None = None,
    label_column: str | None = None,
    group_column: str | None = None,
    image_size: int | None = None,
    limit: int | None = None,
    data_in: DataIn | None = None,
) -> tuple[ImageSet, ImageSet]:
    """Load the training and the test images of ``spec``, as uint8.

    ``spec`` is ``fashion-sample`` (embedded), a ``.parquet`` or ``.npz`` file, a folder of ``train*.parquet`` and
    ``test*.parquet``, an image folder (``train/<class>/*`` and ``test/<class>/*``, or ``<class>/*``), a short form
    (``mnist``, ``fashion_mnist``, ``cifar10``, ``cifar100``, ``idc``) or a name on the Hugging Face hub. Names are
    looked up first in the folder that the environment variable RESPERTURB_DATA names. Where there is no test part,
    a fifth of every class is held out, always the same one.

    ``group_column`` says who an image belongs to (a patient): nobody is in both parts. ``image_size`` resizes to
    that square. ``limit`` takes at most so many images of each part, a random but always the same choice.

    ``data_in`` says where the decoded images are kept: in ``memory``; on ``disk``, decoded once into a file that is
    mapped; or ``auto``, which takes the disk for what is larger than a quarter of the memory that is free. Results do
    not depend on it. Left out, the environment variable RESPERTURB_DATA_IN says it, or else it is ``auto``.

    >>> train, test = load_pair("fashion-sample")
    >>> len(train), len(test), train.classes[0]
    (4000, 2000, 'T-shirt/top')
    """
    for name, value in (("image size", image_size), ("limit", limit)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise UsageError(f"The {name} must be a whole number of at least 1, not {value!r}.")
    place = chosen_data_in(data_in)
    train, test = _open(str(spec), Columns(image_column, label_column, group_column))
    if len(set(train.labels)) < 2:
        raise UsageError(
            f"The images of {train.origin} are all of one class ({train.labels[0]!r}), and a classifier needs two: "
            "add images of another class, or name another label column (--label-column)."
        )
    if test is None:
        numbers = {label: number for number, label in enumerate(sorted(set(train.labels), key=repr))}
        codes = [numbers[label] for label in train.labels]
        kept, out = held_out(codes, TEST_FRACTION, _FIXED_SEED, train.groups)
        train, test = train.select(kept), train.select(out)
    _refuse_shared_groups(train, test)
    if train.names is not None and test.names is not None and train.names != test.names:
        raise UsageError(f"{train.origin} and {test.origin} declare different class names: use the same in both.")
    numbers, classes = _classes(train)
    _refuse_unknown_labels(test, set(train.labels))
    train, test = _limited(train, limit), _limited(test, limit)
    if len(set(train.labels)) < 2:
        raise UsageError(f"A limit of {limit} leaves training images of one class only: raise it.")
    train_images = decoded(train, image_size, place)
    test_images = decoded(test, image_size, place)
    if train_images.shape[2:] != test_images.shape[2:]:
        raise UsageError(
            f"The training images are {_size(train_images)} (width x height) and the test images "
            f"{_size(test_images)}: give an image size (--image-size) and they are resized to it."
        )
    channels = max(train_images.shape[1], test_images.shape[1])
    return (
        _image_set(train, train_images, channels, numbers, classes, str(spec)),
        _image_set(test, test_images, channels, numbers, classes, str(spec)),
    )


def _open(spec: str, columns: Columns) -> tuple[Records, Records | None]:
    """Find what ``spec`` names; the second part is None where the source has no test part."""
    if not spec.strip():
        raise UsageError(f"Name the data: {SAMPLE!r}, a file, a folder or a hub name.")
    if spec == SAMPLE:
        return _open_sample(columns)
    short = SHORT_FORMS.get(spec)
    known = columns if short is None else _with_defaults(columns, short.columns)
    root = os.environ.get(DATA_VARIABLE)
    if root and _HUB_NAME.fullmatch(spec):
        local = Path(root).expanduser() / spec
        if local.exists():
            return _open_path(local, known)
    path = Path(spec).expanduser()
    if path.exists():
        return _open_path(path, columns)
    hub = spec if short is None else short.hub
    locally = (
        f"save it as FOLDER/{spec}/train.parquet and FOLDER/{spec}/test.parquet and set the environment variable "
        f"{DATA_VARIABLE} to FOLDER" + (f" (now {root})." if root else " (now unset).")
    )
    if short is not None and hub is None:
        raise UsageError(f"{spec!r} is on no hub known here: {locally} {short.published}".rstrip())
    # A mistyped path is no business of the hub's: ask it only for what cannot be meant as one.
    mistyped = path.suffix.lower() in (".parquet", ".npz") or (short is None and "/" in spec and path.parent.exists())
    if hub is None or mistyped or "/" not in hub or not _HUB_NAME.fullmatch(hub):
        raise UsageError(
            f"There is no file or folder {spec!r}, and it is none of the known names "
            f"({', '.join([SAMPLE, *SHORT_FORMS])}) nor a hub name (owner/name): check the path."
        )
    return load_hub(hub, known, spec, locally)


def _open_path(path: Path, columns: Columns) -> tuple[Records, Records | None]:
    if path.is_dir():
        return _open_folder(path, columns)
    if path.suffix.lower() == ".parquet":
        return read_parquet([path], columns), None
    if path.suffix.lower() == ".npz":
        return read_npz(path, columns)
    raise UsageError(f"{path} is of no known kind: give a .parquet file, an .npz file or a folder.")


def _open_folder(folder: Path, columns: Columns) -> tuple[Records, Records | None]:
    for place in (folder, folder / "data"):  # a clone from the hub keeps its files in data/
        train = sorted(place.glob("train*.parquet"))
        if train:
            tests = (sorted(place.glob(f"{name}*.parquet")) for name in TEST_NAMES)
            test = next((files for files in tests if files), None)
            return read_parquet(train, columns), read_parquet(test, columns) if test else None
    if any(folder.glob("*.parquet")):
        raise UsageError(f"The parquet files of {folder} must be named train*.parquet and test*.parquet.")
    if columns.image or columns.label:
        raise UsageError(
            f"{folder} is an image folder, which has no columns: its labels are the names of the class folders."
        )
    if is_split(folder):
        parts = (folder / name for name in TEST_NAMES)
        held = next((part for part in parts if part.is_dir()), None)
        return read_folder(folder / "train", columns.group), read_folder(held, columns.group) if held else None
    return read_folder(folder, columns.group), None


def _open_sample(columns: Columns) -> tuple[Records, Records | None]:
    with as_file(package_files("resperturb.data") / "embedded" / f"{SAMPLE}.npz") as file:
        train, test = read_npz(file, columns)
    assert test is not None
    return replace(train, names=_SAMPLE_CLASSES), replace(test, names=_SAMPLE_CLASSES)


def _with_defaults(asked: Columns, usual: Columns) -> Columns:
    return Columns(asked.image or usual.image, asked.label or usual.label, asked.group or usual.group)


def _classes(train: Records) -> tuple[dict[Label, int], tuple[str, ...]]:
    """Number the classes: as the source declares them, or else in sorted order."""
    distinct = set(train.labels)
    if train.names is not None and all(isinstance(label, int) for label in distinct):
        numbers: dict[Label, int] = {number: number for number in range(len(train.names))}
        for label, where in zip(train.labels, train.where, strict=True):
            if label not in numbers:
                raise UsageError(
                    f"The label of {where} is {label}, outside 0..{len(train.names) - 1}, the classes it declares: "
                    "correct it or remove the image."
                )
        return numbers, train.names
    if len({type(label) for label in distinct}) > 1:
        raise UsageError(f"The labels of {train.origin} mix numbers and text: use one or the other.")
    ordered = sorted(distinct)
    return {label: number for number, label in enumerate(ordered)}, tuple(str(label) for label in ordered)


def _refuse_unknown_labels(test: Records, known: set[Label]) -> None:
    for label, where in zip(test.labels, test.where, strict=True):
        if label not in known:
            raise UsageError(
                f"The label of {where} (test) is {label!r}, which no training image has: correct it, remove the "
                "image, or add training images of that class."
            )


def _refuse_shared_groups(train: Records, test: Records) -> None:
    if train.groups is None or test.groups is None:
        return
    shared = np.intersect1d(train.groups, test.groups)
    if len(shared):
        raise UsageError(
            f"{len(shared)} group(s), e.g. {str(shared[0])!r}, have images in both {train.origin} and "
            f"{test.origin}: put all images in one file, and the test part is held out by group."
        )


def _limited(records: Records, limit: int | None) -> Records:
    if limit is None or limit >= len(records):
        return records
    # A prefix would be one class only wherever the source is sorted by class.
    order = np.random.default_rng(_FIXED_SEED).permutation(len(records))
    return records.select(np.sort(order[:limit]))


def _image_set(
    records: Records,
    images: Images,
    channels: int,
    numbers: dict[Label, int],
    classes: tuple[str, ...],
    name: str,
) -> ImageSet:
    if images.shape[1] < channels:  # grey images in a set that has colour elsewhere
        if isinstance(images, Rows):
            images = Rows(images.parts, images.places, channels)
        else:
            images = images.repeat(1, channels, 1, 1)
    labels = torch.tensor([numbers[label] for label in records.labels], dtype=torch.int64)
    return ImageSet(images, labels, classes, records.groups, name)


def _size(images: Images) -> str:
    return f"{images.shape[3]}x{images.shape[2]}"
