"""Where images come from: one module per kind of source, each registered; other packages may add more.

A source is a class with ``accepts`` and ``read``, registered under a name (docs/extend.md has one). Another package
offers its module under the entry point group ``resperturb.data_sources``.
"""

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeAlias

import numpy as np

from resperturb.data.paths import exists, expanded, one_line, printable
from resperturb.data.records import Columns, Records
from resperturb.errors import UsageError
from resperturb.registry import Registry

SAMPLE = "fashion-sample"
DATA_VARIABLE = "RESPERTURB_DATA"
# What a test part may be called, the best first.
TEST_NAMES = ("test", "validation", "valid", "val")

# The training and the test records; None where the source has no test part.
Parts: TypeAlias = tuple[Records, Records | None]


# Data sets known by a short name: their names on the hub (None: not there).
SHORT_FORMS = {
    "mnist": "ylecun/mnist",
    "fashion_mnist": "zalando-datasets/fashion_mnist",
    "cifar10": "uoft-cs/cifar10",
    "cifar100": "uoft-cs/cifar100",
    "idc": None,
}
# The columns of their groups.
GROUPS = {"idc": "patient"}


@dataclass(frozen=True)
class Place:
    """What the user asked for: the text, the file or folder of that name if there is one, and the columns."""

    spec: str
    path: Path | None
    columns: Columns

    def locally(self) -> str:
        """Say how to use a local copy of a data set that is known by name."""
        root = os.environ.get(DATA_VARIABLE)
        return (
            f"save it as FOLDER/{self.spec}/train.parquet and FOLDER/{self.spec}/test.parquet and set the "
            f"environment variable {DATA_VARIABLE} to FOLDER (now {root or 'unset'})."
        )


class DataSource(Protocol):
    """One kind of source."""

    def accepts(self, place: Place) -> bool:
        """Say whether ``place`` is of this kind; nothing large is read for it."""

    def read(self, place: Place) -> Parts:
        """Read labels and groups, and where the images are; these are decoded later."""


data_sources = Registry[type[DataSource]](
    "data source", group="resperturb.data_sources", package="resperturb.data.sources"
)


def read_records(spec: str, columns: Columns) -> Parts:
    """Read what ``spec`` names with the first source that accepts it, those of other packages first.

    >>> train, test = read_records("fashion-sample", Columns())
    >>> len(train), train.names[0]
    (4000, 'T-shirt/top')
    """
    place = find_place(spec, columns)
    sources = [data_sources[name] for name in data_sources]
    try:
        for source in sorted(sources, key=lambda kind: kind.__module__.startswith(f"{__name__}.")):
            if source().accepts(place):
                train, test = source().read(place)
                return _matched(train, columns.pattern), None if test is None else _matched(test, columns.pattern)
    except OSError as error:  # a folder that may be listed and not entered, for instance
        file = f" ({printable(error.filename)})" if error.filename else ""
        raise UsageError(f"{place.spec!r} cannot be read: {one_line(error)}{file}.") from None
    if place.path is not None:
        raise UsageError(f"{place.spec!r} is of no known kind: give a .parquet file, an .npz file or a folder.")
    if place.spec in SHORT_FORMS:
        raise UsageError(f"{place.spec!r} is on no hub known here: {place.locally()}")
    raise UsageError(
        f"There is no file or folder {place.spec!r}, and it is none of the known names "
        f"({', '.join([SAMPLE, *SHORT_FORMS])}) nor a hub name (owner/name): check the path."
    )


def _matched(records: Records, pattern: str | None) -> Records:
    """Reduce each group to what a pattern matches in it."""
    if pattern is None:
        return records
    if records.groups is None:
        raise UsageError(
            f"--group-pattern {pattern!r} matches names of files in an image folder; {records.origin} is none, so "
            "name the column to match too: --group-column."
        )
    found = []
    for group, where in zip(records.groups.tolist(), records.where, strict=True):
        match = re.search(pattern, group)
        if match is None or not match[0]:
            raise UsageError(f"--group-pattern {pattern!r} matches nothing in {group!r} ({where}); correct it.")
        found.append(match[0])
    return replace(records, groups=np.array(found, dtype=str))


def find_place(spec: str, columns: Columns) -> Place:
    """Look for ``spec`` in the folder that RESPERTURB_DATA names, then as a path."""
    if not spec.strip():
        raise UsageError(f"Name the data: {SAMPLE!r}, a file, a folder or a hub name.")
    if spec == SAMPLE:
        return Place(spec, None, columns)
    known = replace(columns, group=columns.group or GROUPS.get(spec))
    root = os.environ.get(DATA_VARIABLE)
    if root and is_hub_name(spec) and exists(local := expanded(root) / spec):
        return Place(spec, local, known)
    if exists(path := expanded(spec)):
        return Place(spec, path, columns)
    return Place(spec, None, known)


def is_hub_name(text: str) -> bool:
    """Say whether ``text`` could be the name of a data set on the Hugging Face hub.

    >>> is_hub_name("uoft-cs/cifar10"), is_hub_name("./scans")
    (True, False)
    """
    return re.fullmatch(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", text) is not None
