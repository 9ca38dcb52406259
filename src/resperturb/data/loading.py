"""From the name of a data set to training and test images."""

import logging
import os
import re
from collections import Counter
from dataclasses import replace
from multiprocessing import parent_process
from typing import Any

import numpy as np
import torch

from resperturb.data.decoding import MAX_PIXELS, Decoder, Tally
from resperturb.data.images import ImageSet, LoadSummary
from resperturb.data.paths import printable
from resperturb.data.records import Columns, Label, Records
from resperturb.data.rows import Images, Rows
from resperturb.data.sources import read_records
from resperturb.data.splits import held_out
from resperturb.data.storage import DataIn, chosen_data_in, decoded
from resperturb.errors import UsageError

TEST_FRACTION = 0.2
# The test part and the subset of a `limit` must not change with the seed of a run.
_FIXED_SEED = 0
_BEYOND_LIMIT = "images beyond the limit"

_logger = logging.getLogger(__name__)


def load_pair(
    spec: str,
    *,
    image_column: str | None = None,
    label_column: str | None = None,
    group_column: str | None = None,
    group_pattern: str | None = None,
    positive: str | None = None,
    image_size: int | None = None,
    bits: int | None = None,
    limit: int | None = None,
    data_in: DataIn | None = None,
) -> tuple[ImageSet, ImageSet]:
    """Load the training and the test images of ``spec``, as uint8.

    Where there is no test part, a fifth of every class is held out, always the same one.

    Args:
        spec: ``fashion-sample`` (embedded), a ``.parquet`` or ``.npz`` file, a folder of ``train*.parquet`` and
            ``test*.parquet``, an image folder (``train/<class>/**`` and ``test/<class>/**``, or ``<class>/**``; DICOM
            too), a short form (``mnist``, ``fashion_mnist``, ``cifar10``, ``cifar100``, ``idc``), a name on the
            Hugging Face hub, or what a registered data source accepts. Names are looked up first in the folder that
            the environment variable RESPERTURB_DATA names.
        image_column: The column (array) of the images; guessed.
        label_column: The column of the labels; guessed.
        group_column: The group of an image (its patient): no group is in both parts. In an image folder, a column
            of its ``metadata.csv``, ``folder``, or an entry of the DICOM headers.
        group_pattern: A regular expression: what it matches in the group column, or in the names of the files of an
            image folder, is the group.
        positive: Name of the positive one of two classes, which becomes the second.
        image_size: Resize the short side to this number of pixels and take the square in the centre.
        bits: How many bits the values of 16-bit images have (12 for most X-ray and CT images), if the files do not
            say; all 16 unless given.
        limit: Largest number of images of each part, a random but always the same choice.
        data_in: Where decoded images are kept: in ``memory``, or on ``disk``, decoded once into a file that is
            mapped. Results do not depend on it. Left out, the environment variable RESPERTURB_DATA_IN says it, or
            else it is ``memory``.

    Returns:
        The training and the test images; the ``summary`` of either says what was used, converted and skipped.

    Raises:
        UsageError: If there is no such data, or it is damaged, ambiguous or not what a classifier can be trained on.

    >>> train, test = load_pair("fashion-sample")
    >>> print(train.summary)
    fashion-sample: 6,000 images used (4,000 training, 2,000 test).
    """
    _check_whole("image size", image_size, int(MAX_PIXELS**0.5))
    _check_whole("number of bits", bits, 16)
    _check_whole("limit", limit, None)
    place = chosen_data_in(data_in)
    train, test = read_records(str(spec), Columns(image_column, label_column, group_column, _pattern(group_pattern)))
    skipped, noted = Counter(dict(train.skipped)), Counter(dict(train.noted))
    if len(set(train.labels)) < 2:
        raise UsageError(
            f"The images of {train.origin} are all of one class ({train.labels[0]!r}), and a classifier needs two: "
            "add images of another class, or name another label column (--label-column)."
        )
    if test is None:
        kept, out = _held_out(train)
        train, test = train.select(kept), train.select(out)
    else:
        skipped.update(dict(test.skipped))
        noted.update(dict(test.noted))
    if (
        train.groups is not None
        and test.groups is not None
        and len(both := np.intersect1d(train.groups, test.groups))
    ):
        raise UsageError(
            f"{len(both)} group(s), e.g. {str(both[0])!r}, have images in both {train.origin} and {test.origin}: put "
            "all images in one file, and the test part is held out by group."
        )
    if train.names is not None and test.names is not None and train.names != test.names:
        raise UsageError(f"{train.origin} and {test.origin} declare different class names: use the same in both.")
    numbers, classes = _classes(train, positive)
    known = set(train.labels)
    for label, where in zip(test.labels, test.where, strict=True):
        if label not in known:
            raise UsageError(
                f"The label of {where} (test) is {label!r}, which no training image has: correct it, remove the "
                "image, or add training images of that class."
            )
    whole_size = len(train) + len(test)
    train, test = _limited(train, limit), _limited(test, limit)
    if len(set(train.labels)) < 2:
        raise UsageError(f"A limit of {limit} leaves training images of one class only: raise it.")
    if beyond := whole_size - len(train) - len(test):
        skipped[_BEYOND_LIMIT] = beyond
    decoder = Decoder(image_size, bits)
    train_images = decoded(train, decoder, place)
    test_images = decoded(test, decoder, place)
    if train_images.shape[2:] != test_images.shape[2:]:
        sizes = [f"{images.shape[3]}x{images.shape[2]}" for images in (train_images, test_images)]
        raise UsageError(
            f"The training images are {sizes[0]} (width x height) and the test images {sizes[1]}: give "
            "an image size (--image-size) and they are resized to it."
        )
    converted = (*sorted(decoder.tally.converted.items()), *sorted(noted.items()))
    left_out = tuple(sorted(skipped.items()))
    summary = LoadSummary(printable(spec), len(train), len(test), converted, left_out, _advice(decoder.tally))
    unexpected = bool(summary.advice or noted or skipped.keys() - {_BEYOND_LIMIT})
    alone = parent_process() is None and os.environ.get("RANK", "0") == "0"  # one process reports
    _logger.log(logging.WARNING if unexpected and alone else logging.DEBUG, "%s", summary)
    channels = max(train_images.shape[1], test_images.shape[1])

    def image_set(records: Records, images: Images) -> ImageSet:
        if images.shape[1] < channels:  # grey images in a set that has colour elsewhere
            if isinstance(images, Rows):
                images = Rows(images.parts, images.places, channels)
            else:
                images = images.repeat(1, channels, 1, 1)
        labels = torch.tensor([numbers[label] for label in records.labels], dtype=torch.int64)
        return ImageSet(images, labels, classes, records.groups, str(spec), summary)

    return image_set(train, train_images), image_set(test, test_images)


def load_column(spec: str, column: str, columns: Columns, limit: int | None) -> np.ndarray[Any, Any]:
    """Load another column of the training images, in the order of :func:`load_pair`.

    The same sources have it that may have a group column.
    """
    train, test = read_records(spec, columns)
    other, _ = read_records(spec, replace(columns, group=column))
    if test is None:
        kept, _ = _held_out(train)
        other = other.select(kept)
    values = _limited(other, limit).groups
    assert values is not None
    return values


def _held_out(train: Records) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Choose the images of the test where there is no test part: always the same ones."""
    numbers = {label: number for number, label in enumerate(sorted(set(train.labels), key=repr))}
    codes = [numbers[label] for label in train.labels]
    return held_out(codes, TEST_FRACTION, _FIXED_SEED, train.groups)


def _pattern(text: str | None) -> str | None:
    try:
        return text if text is None else re.compile(text).pattern
    except re.error as error:
        raise UsageError(f"--group-pattern {text!r} is no regular expression: {error}.") from None


def _check_whole(name: str, value: object, most: int | None) -> None:
    whole = isinstance(value, int) and not isinstance(value, bool) and value >= 1 and (most is None or value <= most)
    if value is not None and not whole:
        upto = "" if most is None else f" and at most {most}"
        raise UsageError(f"The {name} must be a whole number of at least 1{upto}, not {value!r}.")


def _advice(tally: Tally) -> tuple[str, ...]:
    bits = tally.brightest.bit_length()
    if not 0 < bits < 16:
        return ()
    return (
        f"No value of the 16-bit images is above {tally.brightest}, so they come to "
        f"{(tally.brightest + 128) // 257 + 1} of 256 grey levels: if they hold {bits} bits, as many medical images "
        f"do, say so with --bits {bits}.",
    )


def _classes(train: Records, positive: str | None) -> tuple[dict[Label, int], tuple[str, ...]]:
    """Number the classes, of which the positive one of two is last."""
    distinct = set(train.labels)
    if train.names is not None and all(isinstance(label, int) for label in distinct):
        names = train.names
        numbers: dict[Label, int] = {number: number for number in range(len(names))}
        for label, where in zip(train.labels, train.where, strict=True):
            if label not in numbers:
                raise UsageError(
                    f"The label of {where} is {label}, outside 0..{len(names) - 1}, the classes it declares: correct "
                    "it or remove the image."
                )
    elif len({type(label) for label in distinct}) > 1:
        raise UsageError(f"The labels of {train.origin} mix numbers and text: use one or the other.")
    else:
        numbers = {label: number for number, label in enumerate(sorted(distinct))}
        names = tuple(map(str, numbers))
    if positive is None or (len(names) == 2 and names[1] == positive):
        return numbers, names
    if len(names) != 2 or names[0] != positive:
        raise UsageError(
            f"--positive names one of two classes, and {train.origin} has {', '.join(map(repr, names[:12]))}; not "
            f"{positive!r}."
        )
    return {label: 1 - number for label, number in numbers.items()}, names[::-1]


def _limited(records: Records, limit: int | None) -> Records:
    if limit is None or limit >= len(records):
        return records
    # A prefix would be one class only wherever the source is sorted by class.
    order = np.random.default_rng(_FIXED_SEED).permutation(len(records))
    return records.select(np.sort(order[:limit]))
